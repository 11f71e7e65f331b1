// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/store"
)

// step is the state of a deployment after a reconcile.
type step struct {
	state string
	phase v1alpha1.DeploymentPhase
	step  v1alpha1.DeploymentStep
	wait  time.Duration
}

var _ = Describe("A Deployment", func() {
	It("goes from created to live, step by step", func(ctx SpecContext) {
		s := bare()
		d := s.Deployment("v1")
		s.ExpectApplied(ctx, d)
		reaches := func(want step) {
			GinkgoHelper()
			wait := s.ExpectReconciled(ctx, s.r, d).RequeueAfter
			Expect(step{State(d), d.Status.Phase, d.Status.Step, wait}).To(Equal(want))
		}
		reaches(step{"Ready=False/ProjectMissing Reconciling", "", "", base.MaxRetryInterval})
		s.project = s.ExpectProject(ctx)
		reaches(step{"Ready=False/ReferenceMissing Reconciling", "", "", base.MaxRetryInterval})
		s.environment = s.ExpectEnvironment(ctx, "dev")
		reaches(step{"Ready=Unknown/Fetching Reconciling", v1alpha1.DeploymentBuilding, v1alpha1.StepFetching, look})
		for _, at := range []struct {
			phase store.DeploymentPhase
			step  v1alpha1.DeploymentStep
		}{
			{store.PhasePacking, v1alpha1.StepPacking}, {store.PhaseTesting, v1alpha1.StepTesting},
		} {
			Expect(s.Store.ReportBuild(ctx, s.Key(d), store.BuildReport{Phase: at.phase, Commit: "0123456789abcdef0123456789abcdef01234567"})).To(Succeed())
			reaches(step{"Ready=Unknown/" + string(at.step) + " Reconciling", v1alpha1.DeploymentBuilding, at.step, look})
			Expect(d.Status.Commit).To(HavePrefix("0123456789"))
			Expect(d.Status.StartedAt).NotTo(BeNil())
		}
		digest := s.ExpectBuilt(ctx, s.Key(d), "hello", "bye")
		reaches(step{"Ready=True/Succeeded observed", v1alpha1.DeploymentDeployed, "", 0})
		Expect(d.Status.Live).To(BeTrue())
		Expect(s.live(ctx)).To(Equal("v1"))
		Expect(d.Status.Bundle.Digest).To(Equal(digest))
		Expect(d.Status.Agents).To(HaveLen(2))
		Expect(d.Status.EndedAt).NotTo(BeNil())
		Expect(d.Status.ActivatedAt).NotTo(BeNil())
		for _, kind := range []string{
			v1alpha1.ConditionSourceFetched, v1alpha1.ConditionBuilt, v1alpha1.ConditionTestsPassed, v1alpha1.ConditionConnectorsApplied, v1alpha1.ConditionLive,
		} {
			Expect(d.Status.IsTrue(kind)).To(BeTrue(), kind)
		}
		Expect(s.Events.Sent()).To(ContainElement("Normal Activated: live in Environment \"dev\""))
		Expect(s.ExpectAtRest(ctx, s.r, d).RequeueAfter).To(BeZero())

		By("keeping its state while the store is unavailable")
		s.Store.GoAway()
		s.ExpectReconcileFails(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=True/Succeeded Reconciling observed"))
		s.Store.ComeBack()

		By("being superseded")
		next := s.deployed(ctx, s.Deployment("v2"))
		Expect(s.live(ctx)).To(Equal("v2"))
		s.Events.Sent()
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=True/Succeeded observed"))
		Expect(d.Status.Live).To(BeFalse())
		Expect(d.Status.Condition(v1alpha1.ConditionLive).Message).NotTo(ContainSubstring(`"v2"`), "another one may be live at any time")
		Expect(s.Events.Sent()).To(ConsistOf(`Normal NotLive: Environment "dev" runs Deployment "v2"`))

		By("losing its environment")
		s.environmentGone(ctx)
		s.ExpectReconciled(ctx, s.r, next)
		Expect(State(next)).To(Equal("Ready=True/Succeeded observed"))
		Expect(next.Status.Live).To(BeFalse())
		Expect(next.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed), "what became of it stays")
	})

	It("is cancelled on request, and the status reports it", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		job := s.job(ctx, d)
		d.Spec.Cancel = true
		s.ExpectApplied(ctx, d)
		Expect(s.ExpectReconciled(ctx, s.r, d).RequeueAfter).To(BeZero())
		Expect(State(d)).To(Equal("Ready=True/Cancelled observed"))
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentCancelled))
		s.ExpectNotFound(ctx, job)
		s.ExpectAtRest(ctx, s.r, d)
		Expect(s.live(ctx)).To(BeEmpty())
	})

	It("is superseded by a newer one, and never goes live", func(ctx SpecContext) {
		s := newScene(ctx)
		first := s.reconciled(ctx, s.Deployment("v1"))
		job := s.job(ctx, first)
		second := s.deployed(ctx, s.Deployment("v2"))
		s.ExpectReconciled(ctx, s.r, first)
		Expect(State(first)).To(Equal("Ready=True/Cancelled observed"))
		s.ExpectNotFound(ctx, job)
		Expect(s.live(ctx)).To(Equal(second.Name))
	})

	It("waits while the environment is suspended", func(ctx SpecContext) {
		s := newScene(ctx)
		s.project.Spec.Git.Path = "services/support"
		s.ExpectApplied(ctx, s.project)
		s.environment.Spec.Suspend, s.environment.Spec.Git.Branch = true, "main"
		s.ExpectApplied(ctx, s.environment)
		d := s.reconciled(ctx, s.Deployment("v1"))
		Expect(State(d)).To(Equal("Ready=Unknown/Pending Reconciling"))
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentPending))
		Expect(Message(d)).To(ContainSubstring("suspended"))
		Expect(d.Status.Branch).To(Equal("main"))
		Expect(d.Status.Path).To(BeNil())
		Expect(s.Children(ctx, d.UID)).To(BeEmpty())
		s.environment.Spec.Suspend, s.environment.Spec.Git.Branch = false, "other"
		s.ExpectApplied(ctx, s.environment)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=Unknown/Fetching Reconciling"))
		Expect(d.Status.Path).To(HaveValue(Equal("services/support")))
		Expect(s.job(ctx, d).Spec.Template.Spec.InitContainers[0].Args).To(ContainElements("--branch=main", "--path=services/support"), "the Job fetches the recorded source")

		By("losing status and Job, while the project has another folder")
		s.project.Spec.Git.Path = "services/sales"
		s.ExpectApplied(ctx, s.project)
		s.ExpectGone(ctx, s.job(ctx, d))
		s.ExpectGone(ctx, s.Secret("v1-build-token", nil)) // there is no garbage collector here
		d.Status = v1alpha1.DeploymentStatus{}
		s.ExpectStatus(ctx, d)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=Unknown/Fetching Reconciling"), Message(d))
		Expect(d.Status.Path).To(HaveValue(Equal("services/support")))
		Expect(s.job(ctx, d).Spec.Template.Spec.InitContainers[0].Args).To(ContainElement("--path=services/support"))
	})

	It("is built from the folder of the repeated or live deployment, whatever the project's folder is", func(ctx SpecContext) {
		s := newScene(ctx)
		s.project.Spec.Git.Path = "services/support"
		s.ExpectApplied(ctx, s.project)
		first := s.deployed(ctx, s.Deployment("v1"))
		Expect(first.Status.Path).To(HaveValue(Equal("services/support")))
		s.project.Spec.Git.Path = "services/sales"
		s.ExpectApplied(ctx, s.project)
		again := func(name, commit string) *v1alpha1.Deployment {
			return s.reconciled(ctx, s.Deployment(name, func(d *v1alpha1.Deployment) {
				d.Spec.RedeployOf, d.Spec.Source.Git.Commit = v1alpha1.DeploymentID(first.Status.ID), v1alpha1.GitCommit(commit)
			}))
		}
		Expect(again("v2", first.Status.Commit).Status.Path).To(HaveValue(Equal("services/support")))
		Expect(again("v3", strings.Repeat("c", 40)).Status.Path).To(HaveValue(Equal("services/sales")), "another commit is another source")

		By("restoring the store from before the live deployment")
		lost := s.Deployment("v4")
		s.ExpectApplied(ctx, lost)
		lost.Status.Live, lost.Status.Commit, lost.Status.Path = true, first.Status.Commit, first.Status.Path
		s.ExpectStatus(ctx, lost)
		s.ExpectReconciled(ctx, s.r, lost)
		Expect(lost.Status.Path).To(HaveValue(Equal("services/support")))
	})

	It("waits for the repository, its credentials and the network", func(ctx SpecContext) {
		s := bare()
		s.project = s.ExpectProject(ctx, func(p *v1alpha1.Project) { p.Spec.Git = nil })
		s.environment = s.ExpectEnvironment(ctx, "dev")
		d := s.reconciled(ctx, s.Deployment("v1"))
		Expect(State(d)).To(Equal("Ready=False/GitMissing Reconciling"))
		since := d.Status.DeepCopy()
		s.ExpectReconciled(ctx, s.r, d)
		Expect(d.Status).To(Equal(*since), "the status keeps the time of the change")
		s.project.Spec.Git = &v1alpha1.ProjectGit{URL: "https://git.example.com/a.git", SecretRef: &v1alpha1.SecretReference{Name: "git"}}
		s.ExpectApplied(ctx, s.project)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=False/SecretMissing Reconciling"))
		Expect(s.Children(ctx, d.UID)).To(BeEmpty())
		Expect(s.outcome(ctx, d).Status).To(Equal(store.DeploymentPending))
		s.ExpectApplied(ctx, s.Secret("git", map[string]string{"bearerToken": "x"}))
		s.project.Status.Conditions = nil
		s.ExpectStatus(ctx, s.project)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=Unknown/Progressing Reconciling"), "no pod before the network is there")
		Expect(s.Children(ctx, d.UID)).To(BeEmpty())
		s.project.MarkNetworkReady()
		s.ExpectStatus(ctx, s.project)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=Unknown/Fetching Reconciling"))
	})

	It("is rejected if its name belonged to another source", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.deployed(ctx, s.Deployment("v1"))
		s.ExpectGone(ctx, s.job(ctx, d))
		s.ExpectDeleted(ctx, s.r, d)
		other := s.reconciled(ctx, s.Deployment("v1", func(d *v1alpha1.Deployment) { d.Spec.Source.Git.Branch = "other" }))
		Expect(State(other)).To(Equal("Ready=False/NameReused Stalled observed"))
		Expect(Message(other)).To(ContainSubstring("with another source or environment"))
		s.ExpectGone(ctx, other)

		By("taking the outcome from the store for the same source")
		again := s.reconciled(ctx, s.Deployment("v1"))
		Expect(State(again)).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.Children(ctx, again.UID)).To(BeEmpty(), "nothing is built again")
	})

	It("keeps its outcome in the store after its deletion", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.deployed(ctx, s.Deployment("v1"))
		s.ExpectDeleted(ctx, s.r, d)
		Expect(s.outcome(ctx, d).Status).To(Equal(store.DeploymentDeployed))
		Expect(s.live(ctx)).To(Equal("v1"), "the live deployment stays live")
		open := s.reconciled(ctx, s.Deployment("v2"))
		s.ExpectDeleted(ctx, s.r, open)
		Expect(s.outcome(ctx, open).Status).To(Equal(store.DeploymentCancelled))
	})
})
