// SPDX-License-Identifier: Apache-2.0

package commitstatus_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/commitstatus"
	"github.com/agentplatform/agentplatform/controllers/deployment"
)

var _ = Describe("The status of a Deployment's commit", func() {
	It("does not delay other projects or deployments while a provider hangs", func(ctx SpecContext) {
		credentials := func() map[string]string { return map[string]string{"bearerToken": reportToken} }
		hanging, well := newProvider(ctx, credentials()), newProvider(ctx, credentials())
		hanging.hangs, hanging.reached = make(chan struct{}), make(chan struct{}, 10)
		one, two := hanging.Deployment("one"), hanging.Deployment("two")
		results := make(chan time.Duration, 1)
		go func() {
			defer GinkgoRecover()
			results <- hanging.at(ctx, one, v1alpha1.DeploymentBuilding)
		}()
		Eventually(ctx, hanging.reached).Should(Receive())

		Expect(hanging.at(ctx, two, v1alpha1.DeploymentBuilding)).To(Equal(time.Second), "its next one comes later, and takes no place meanwhile")
		Expect(hanging.reached).NotTo(Receive())
		well.r = hanging.r
		Expect(well.at(ctx, well.Deployment("one"), v1alpha1.DeploymentBuilding)).To(BeZero())
		Expect(well.states()).To(ConsistOf("pending agentplatform/" + well.Namespace + "/the-dev"))
		for _, p := range []*provider{hanging, well} {
			d := p.Deployment("three")
			p.ExpectApplied(ctx, d)
			builds := &deployment.Reconciler{Base: p.Base, Store: p.Store, Keys: p.Keys, Pods: base.PodOptions{Image: "platform:1", DispatchURL: "http://dispatch:8081"}}
			p.ExpectReconciled(ctx, builds, d)
			Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentBuilding))
		}
		Expect(results).NotTo(Receive(), "it hangs all the while")
		close(hanging.hangs)
		Eventually(ctx, results).Should(Receive(BeZero()))
		Expect(hanging.states()).To(ConsistOf("pending agentplatform/" + hanging.Namespace + "/the-dev"))
	})

	It("is reported to the repository's provider, each state once", func(ctx SpecContext) {
		p := newProvider(ctx, map[string]string{"username": "u", "password": reportToken})
		d := p.Deployment("one")
		p.ExpectApplied(ctx, d)
		Expect(p.at(ctx, d, v1alpha1.DeploymentPending)).To(BeZero())
		Expect(p.states()).To(BeEmpty(), "nothing is built yet")
		Expect(p.at(ctx, d, v1alpha1.DeploymentBuilding)).To(BeZero())
		Expect(p.states()).To(Equal([]string{"pending agentplatform/" + p.Namespace + "/the-dev"}))
		Expect(d.Status.CommitStatus).To(Equal(&v1alpha1.DeploymentCommitStatus{State: "Pending", Context: "agentplatform/" + p.Namespace + "/the-dev", Reason: "Reported", Message: "reported to Gitea as agentplatform/" + p.Namespace + "/the-dev"}))
		Expect(p.at(ctx, d, v1alpha1.DeploymentDeployed)).To(BeZero())
		Expect(p.states()).To(Equal([]string{"success agentplatform/" + p.Namespace + "/the-dev"}))
		Expect(d.Status.CommitStatus.State).To(Equal("Success"))

		By("a restarted manager")
		p.r = &commitstatus.Reconciler{Base: p.Base, Guard: p.r.Guard}
		version := d.ResourceVersion
		Expect(p.again(ctx, d)).To(BeZero())
		Expect(p.states()).To(BeEmpty())
		Expect(d.ResourceVersion).To(Equal(version), "it is at rest")
	})

	It("never contains the passphrase of a key", func(ctx SpecContext) {
		p := newProvider(ctx, map[string]string{"identity": "a key", "password": "of the key"})
		p.project.Spec.Git.URL = "ssh://git@127.0.0.1/team/agents"
		p.ExpectApplied(ctx, p.project)
		d := p.Deployment("one")
		p.at(ctx, d, v1alpha1.DeploymentBuilding)
		Expect(d.Status.CommitStatus.Reason).To(Equal(v1alpha1.CommitStatusCredentialsMissing))
	})

	It("is no error while the Project is missing, and is reported when it exists", func(ctx SpecContext) {
		p := newProvider(ctx, map[string]string{"bearerToken": reportToken})
		spec := p.project.Spec
		p.ExpectGone(ctx, p.project)
		d := p.Deployment("one")
		Expect(p.at(ctx, d, v1alpha1.DeploymentBuilding)).To(BeZero(), "a Project that comes wakes it")
		Expect(d.Status.CommitStatus).To(BeNil())
		Expect(p.states()).To(BeEmpty())
		p.project = p.ExpectProject(ctx, func(project *v1alpha1.Project) { project.Spec = spec })
		p.again(ctx, d)
		Expect(p.states()).To(HaveLen(1))
	})

	DescribeTable("reports the outcome", func(ctx SpecContext, phase v1alpha1.DeploymentPhase, state string) {
		p := newProvider(ctx, map[string]string{"bearerToken": reportToken})
		p.at(ctx, p.Deployment("one"), phase)
		Expect(p.states()).To(Equal([]string{state + " agentplatform/" + p.Namespace + "/the-dev"}))
	},
		Entry("deployed", v1alpha1.DeploymentDeployed, "success"),
		Entry("failed", v1alpha1.DeploymentFailed, "failure"),
		Entry("cancelled", v1alpha1.DeploymentCancelled, "error"),
	)

	It("is retried with growing intervals for an hour, until the provider accepts it", func(ctx SpecContext) {
		p := newProvider(ctx, map[string]string{"bearerToken": reportToken})
		p.answers(http.StatusForbidden)
		d := p.Deployment("one")
		Expect(p.at(ctx, d, v1alpha1.DeploymentDeployed)).To(Equal(10 * time.Second))
		Expect(d.Status.CommitStatus.Reason).To(Equal(v1alpha1.CommitStatusRefused))
		Expect(d.Status.CommitStatus.State).To(BeEmpty())
		Expect(d.Status.CommitStatus.Message).To(And(ContainSubstring("Gitea answered 403 Forbidden"), ContainSubstring("to write commit statuses")))
		version := d.ResourceVersion
		p.Clock.Step(10 * time.Minute)
		Expect(p.again(ctx, d)).To(BeNumerically("~", 5*time.Minute, time.Second))
		Expect(p.states()).To(HaveLen(2))
		Expect(d.ResourceVersion).To(Equal(version), "nothing is new")

		p.answers(http.StatusOK)
		p.Clock.Step(20 * time.Second)
		Expect(p.again(ctx, d)).To(BeZero())
		Expect(d.Status.CommitStatus.Reason).To(Equal(v1alpha1.CommitStatusReported))
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed))

		By("one that ended long ago")
		p.states()
		old := p.Deployment("old")
		p.ExpectApplied(ctx, old)
		then := metav1.NewTime(p.Clock.Now().Add(-61 * time.Minute).Truncate(time.Second))
		old.Status.Phase, old.Status.Commit, old.Status.EndedAt = v1alpha1.DeploymentFailed, strings.Repeat("a", 40), &then
		p.ExpectStatus(ctx, old)
		Expect(p.again(ctx, old)).To(BeZero())
		Expect(p.states()).To(BeEmpty())
		Expect(old.Status.CommitStatus).To(BeNil())

		By("one with an end time in the future")
		then = metav1.NewTime(p.Clock.Now().AddDate(1000, 0, 0).Truncate(time.Second))
		old.Status.EndedAt = &then
		p.ExpectStatus(ctx, old)
		Expect(p.again(ctx, old)).To(BeZero())
		Expect(p.states()).To(BeEmpty())

		By("a missing token")
		shown, err := json.Marshal(d)
		Expect(err).NotTo(HaveOccurred())
		for _, text := range append(p.Events.Sent(), string(shown), p.log.String()) {
			Expect(text).NotTo(ContainSubstring(reportToken))
		}
	})

	It("causes no more requests for a thousand deployments than for one while the provider rejects them", func(ctx SpecContext) {
		p := newProvider(ctx, map[string]string{"bearerToken": reportToken})
		p.answers(http.StatusBadGateway)
		many := make([]*v1alpha1.Deployment, 12)
		for i := range many {
			many[i] = p.Deployment(string(rune('a' + i)))
			p.commit = fmt.Sprintf("%040x", i)
			p.at(ctx, many[i], v1alpha1.DeploymentDeployed)
		}
		Expect(p.states()).To(HaveLen(1))
		Expect(many[0].Status.CommitStatus.Reason).To(Equal(v1alpha1.CommitStatusRefused))
		Expect(many[1].Status.CommitStatus).To(BeNil(), "it has not been tried")
		pause := 10 * time.Second
		for range 8 {
			for _, d := range many {
				Expect(p.again(ctx, d)).To(And(BeNumerically(">=", pause), BeNumerically("<=", max(pause*3/2, 30*time.Minute))))
			}
			Expect(p.states()).To(BeEmpty())
			p.Clock.Step(pause)
			for _, d := range many {
				p.again(ctx, d)
			}
			Expect(p.states()).To(HaveLen(1), "after %s", pause)
			pause = min(2*pause, 10*time.Minute)
		}
		Expect(pause).To(Equal(10*time.Minute), "the longest")

		By("a changed Project")
		p.project.Spec.Git.URL += ".git"
		Expect(p.Admin.Update(ctx, p.project)).To(Succeed())
		p.again(ctx, many[0])
		Expect(p.states()).To(BeEmpty(), "one that changes all the time has no more calls by that")
		p.Clock.Step(10 * time.Second)
		p.again(ctx, many[0])
		Expect(p.states()).To(HaveLen(1))
		Expect(p.again(ctx, many[1])).To(BeNumerically("<=", 15*time.Second), "its pauses begin anew")

		By("another token in the Secret that it names")
		for _, pause := range []time.Duration{10 * time.Second, 20 * time.Second} {
			p.Clock.Step(pause)
			p.again(ctx, many[0])
			Expect(p.states()).To(HaveLen(1))
		}
		Expect(p.again(ctx, many[1])).To(BeNumerically(">", 15*time.Second))
		p.ExpectApplied(ctx, p.Secret("other", map[string]string{"bearerToken": "none"}))
		Expect(p.again(ctx, many[1])).To(BeNumerically(">", 15*time.Second), "another Secret is nothing to it")
		secret := p.Secret("git", nil)
		p.ExpectExists(ctx, secret)
		secret.Data["bearerToken"] = []byte("another")
		Expect(p.Admin.Update(ctx, secret)).To(Succeed())
		Expect(p.again(ctx, many[1])).To(BeNumerically("<=", 15*time.Second), "its pauses begin anew")
		Expect(p.r.UnreportedWith(ctx, secret)).To(HaveLen(len(many)), "and it gets the reports that waited")
		Expect(p.r.UnreportedWith(ctx, p.Secret("other", nil))).To(BeEmpty())

		By("a provider that accepts it")
		p.answers(http.StatusCreated)
		p.Clock.Step(10 * time.Second)
		for _, d := range many {
			Expect(p.again(ctx, d)).To(BeZero())
		}
		Expect(p.states()).NotTo(BeEmpty())
		Expect(p.r.UnreportedWith(ctx, secret)).To(BeEmpty())
	})

	It("is reported after a pause if the provider is slow", func(ctx SpecContext) {
		p := newProvider(ctx, map[string]string{"bearerToken": reportToken})
		p.hangs, p.reached = make(chan struct{}), make(chan struct{}, 10)
		one, two := p.Deployment("one"), p.Deployment("two")
		results := make(chan time.Duration, 1)
		go func() {
			defer GinkgoRecover()
			results <- p.at(ctx, one, v1alpha1.DeploymentBuilding)
		}()
		Eventually(ctx, p.reached).Should(Receive())
		p.Clock.Step(5 * time.Second)
		close(p.hangs)
		Eventually(ctx, results).Should(Receive(BeZero()))
		Expect(one.Status.CommitStatus.Reason).To(Equal(v1alpha1.CommitStatusReported))

		Expect(p.at(ctx, two, v1alpha1.DeploymentBuilding)).To(And(BeNumerically(">=", 10*time.Second), BeNumerically("<=", 15*time.Second)))
		Expect(p.reached).NotTo(Receive())
		p.Clock.Step(10 * time.Second)
		Expect(p.again(ctx, two)).To(BeZero())
		Expect(two.Status.CommitStatus.Reason).To(Equal(v1alpha1.CommitStatusReported))
		p.Clock.Step(time.Second)
		Expect(p.at(ctx, two, v1alpha1.DeploymentDeployed)).To(BeZero(), "it was quick the last time")
	})

	It("explains why it is not reported", func(ctx SpecContext) {
		p := newProvider(ctx, map[string]string{"identity": "a key", "known_hosts": "a host"})
		d := p.Deployment("one")
		Expect(p.at(ctx, d, v1alpha1.DeploymentDeployed)).To(Equal(10 * time.Second))
		Expect(d.Status.CommitStatus.Reason).To(Equal(v1alpha1.CommitStatusCredentialsMissing))
		Expect(d.Status.CommitStatus.Message).To(ContainSubstring(`Secret "git" has no bearerToken and, for HTTPS, no password`))

		for _, c := range []struct {
			change  func(*v1alpha1.ProjectGit)
			reason  v1alpha1.CommitStatusReason
			message string
		}{
			{func(git *v1alpha1.ProjectGit) { git.SecretRef.Name = "none" }, v1alpha1.CommitStatusCredentialsMissing, `Secret "none" does not exist`},
			{func(git *v1alpha1.ProjectGit) { git.SecretRef = nil }, v1alpha1.CommitStatusCredentialsMissing, "git.secretRef"},
			{func(git *v1alpha1.ProjectGit) { git.Provider = "" }, v1alpha1.CommitStatusProviderUnknown, "set spec.git.provider"},
		} {
			c.change(p.project.Spec.Git)
			Expect(p.Admin.Update(ctx, p.project)).To(Succeed())
			p.again(ctx, d)
			Expect(d.Status.CommitStatus.Reason).To(Equal(c.reason))
			Expect(d.Status.CommitStatus.Message).To(ContainSubstring(c.message))
		}
		Expect(p.states()).To(BeEmpty())
	})

	It("is the status of the newest deployment of the commit, and never of an upload", func(ctx SpecContext) {
		p := newProvider(ctx, map[string]string{"bearerToken": reportToken})
		older, newer := p.Deployment("a"), p.Deployment("b")
		p.ExpectApplied(ctx, older, newer)
		p.at(ctx, newer, v1alpha1.DeploymentBuilding)
		p.at(ctx, older, v1alpha1.DeploymentCancelled)
		Expect(p.states()).To(Equal([]string{"pending agentplatform/" + p.Namespace + "/the-dev"}))

		uploaded := p.Deployment("uploaded")
		p.ExpectApplied(ctx, uploaded)
		now := metav1.NewTime(p.Clock.Now().Truncate(time.Second))
		uploaded.Status.Phase, uploaded.Status.EndedAt = v1alpha1.DeploymentDeployed, &now
		p.ExpectStatus(ctx, uploaded)
		Expect(p.again(ctx, uploaded)).To(BeZero())
		Expect(p.states()).To(BeEmpty())
	})

	It("stays known if another deployment of the commit is cancelled", func(ctx SpecContext) {
		p := newProvider(ctx, map[string]string{"bearerToken": reportToken})
		status := func(state string) []string { return []string{state + " agentplatform/" + p.Namespace + "/the-dev"} }
		p.at(ctx, p.Deployment("a"), v1alpha1.DeploymentDeployed)
		Expect(p.states()).To(Equal(status("success")))
		again := p.Deployment("b")
		p.at(ctx, again, v1alpha1.DeploymentBuilding)
		Expect(p.states()).To(Equal(status("pending")))
		Expect(p.at(ctx, again, v1alpha1.DeploymentCancelled)).To(BeZero())
		Expect(p.states()).To(Equal(status("success")), "it is live all the same")
		Expect(again.Status.CommitStatus.State).To(Equal("Success"))
		Expect(p.again(ctx, again)).To(BeZero())
		Expect(p.states()).To(BeEmpty(), "once")
	})

	It("makes no request if the provider has every state", func(ctx SpecContext) {
		p := newProvider(ctx, map[string]string{"bearerToken": reportToken})
		live, cancelled, refused := p.Deployment("a"), p.Deployment("b"), p.Deployment("c")
		Expect(p.at(ctx, live, v1alpha1.DeploymentDeployed)).To(BeZero())
		Expect(p.at(ctx, cancelled, v1alpha1.DeploymentCancelled)).To(BeZero())
		Expect(cancelled.Status.CommitStatus.State).To(Equal("Success"), "that of the one before")
		p.answers(http.StatusBadGateway)
		p.commit = strings.Repeat("a", 40)
		Expect(p.at(ctx, refused, v1alpha1.DeploymentBuilding)).To(Equal(10 * time.Second))
		for _, d := range []*v1alpha1.Deployment{live, cancelled} {
			p.Cluster.Calls()
			Expect(p.again(ctx, d)).To(BeZero(), "the pause is nothing to it")
			Expect(p.Cluster.Calls()).To(HaveExactElements(HaveField("String()", "get Deployment "+d.Name)))
		}
	})

	It("stays if the store has lost the outcome, and does not stay pending", func(ctx SpecContext) {
		p := newProvider(ctx, map[string]string{"bearerToken": reportToken})
		lost := p.Deployment("one")
		p.at(ctx, lost, v1alpha1.DeploymentDeployed)
		p.states()
		p.Clock.Step(20 * time.Hour)
		lost.Status.FailureReason = v1alpha1.FailureStoreRestored
		Expect(p.at(ctx, lost, v1alpha1.DeploymentFailed)).To(BeZero())
		Expect(p.states()).To(BeEmpty(), "it succeeded")
		Expect(lost.Status.CommitStatus.State).To(Equal("Success"))

		p.commit = strings.Repeat("b", 40)
		building := p.Deployment("two")
		p.at(ctx, building, v1alpha1.DeploymentBuilding)
		p.states()
		building.Status.FailureReason = v1alpha1.FailureStoreRestored
		Expect(p.at(ctx, building, v1alpha1.DeploymentFailed)).To(BeZero())
		Expect(p.states()).To(Equal([]string{"error agentplatform/" + p.Namespace + "/the-dev"}))
	})

	It("is not written to a Deployment that was re-created during a request", func(ctx SpecContext) {
		p := newProvider(ctx, map[string]string{"bearerToken": reportToken})
		d := p.Deployment("one")
		p.at(ctx, d, v1alpha1.DeploymentBuilding)
		d.Status.CommitStatus = nil
		p.ExpectStatus(ctx, d)
		Expect(p.ExpectReplaced(ctx, p.r, d).Status.CommitStatus).To(BeNil())
	})

	It("is not reported if the deployment was cancelled before its build", func(ctx SpecContext) {
		p := newProvider(ctx, map[string]string{"bearerToken": reportToken})
		d := p.Deployment("one")
		p.ExpectApplied(ctx, d)
		now := metav1.NewTime(p.Clock.Now().Truncate(time.Second))
		d.Status.Phase, d.Status.Commit, d.Status.EndedAt = v1alpha1.DeploymentCancelled, reportCommit, &now
		p.ExpectStatus(ctx, d)
		p.again(ctx, d)
		Expect(p.states()).To(BeEmpty())
		Expect(d.Status.CommitStatus).To(BeNil())
	})
})
