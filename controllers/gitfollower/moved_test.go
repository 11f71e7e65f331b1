// SPDX-License-Identifier: Apache-2.0

package gitfollower_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// adopted makes a commit live in the store by a Deployment without an object, as after a move.
func (f *follower) adopted(ctx context.Context, e *v1alpha1.Environment, name, commit string) {
	GinkgoHelper()
	f.recorded(ctx, e, f.Deployment(name), commit, "")
}

// recorded makes a commit's folder live in the store by a Deployment.
func (f *follower) recorded(ctx context.Context, e *v1alpha1.Environment, d *v1alpha1.Deployment, commit, path string) {
	GinkgoHelper()
	key := f.Key(d)
	fingerprint, err := d.Spec.Fingerprint()
	Expect(err).NotTo(HaveOccurred())
	_, err = f.Store.BeginDeployment(ctx, store.DeploymentSpec{
		Ref: f.Ref(d), ID: key.ID, ProjectID: key.ProjectID, EnvironmentID: f.Key(e).ID, Fingerprint: fingerprint, SourceType: "git",
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(f.Store.StartBuild(ctx, key, path)).To(Succeed())
	Expect(f.Store.ReportBuild(ctx, key, store.BuildReport{Phase: store.PhasePacking, Commit: commit})).To(Succeed())
	f.ExpectBuilt(ctx, key, "hello")
	_, err = f.Store.Activate(ctx, store.Activation{Deployment: key})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("An Environment that was moved with its store", func() {
	one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)

	It("does not build the live deployment again, whoever requests it", func(ctx SpecContext) {
		f := newFollower(ctx)
		head := f.repository.Commit("main", "agents/a.yaml", "name: a")
		for name, follow := range map[string]func(*v1alpha1.Environment){
			"pinned":   func(e *v1alpha1.Environment) { e.Spec.Git.Commit = v1alpha1.GitCommit(head) },
			"follower": following,
		} {
			e := f.Environment(name)
			f.ApplyAndReconcile(ctx, e)
			f.adopted(ctx, e, name+"-7", head)
			follow(e)
			f.ApplyAndReconcile(ctx, e)
			f.look(ctx)
			f.ExpectReconciled(ctx, f.R, e)
			Expect(f.commits(ctx)).To(BeEmpty(), name)
			Expect(e.Status.Git).To(Equal(&v1alpha1.EnvironmentGitStatus{Commit: head, Path: ptr.To(""), Deployment: name + "-7", Revision: 1}))
			Expect(e.Status.IsTrue(v1alpha1.ConditionSourceFollowed)).To(BeTrue())
			f.ExpectAtRest(ctx, f.R, e)
		}
	})

	It("builds commits that are not live or will not stay live", func(ctx SpecContext) {
		f := newFollower(ctx)
		e := f.Environment("dev")
		f.ApplyAndReconcile(ctx, e)
		f.adopted(ctx, e, "before", one)
		f.adopted(ctx, e, "now", two)
		at := func(commit string) {
			GinkgoHelper()
			e.Spec.Git.Commit = v1alpha1.GitCommit(commit)
			f.ApplyAndReconcile(ctx, e)
		}
		at(one)
		Expect(f.commits(ctx)).To(ConsistOf(one), "it was live before, and its object is missing")
		at(two)
		Expect(f.commits(ctx)).To(ConsistOf(one, two), "the build of the other one would go live")
		f.ended(ctx, e.Status.Git.Deployment, v1alpha1.DeploymentCancelled)

		By("another one with a pending activation request")
		d := f.deployed(ctx, one, false)
		e.Spec.Git.Commit = ""
		f.ApplyAndReconcile(ctx, e)
		d.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(f.Clock.Now().Truncate(time.Second))}
		f.ExpectApplied(ctx, d)
		at(two)
		Expect(f.commits(ctx)).To(ConsistOf(one, two, two))
		again := &v1alpha1.Deployment{ObjectMeta: f.At(e.Status.Git.Deployment)}
		f.ended(ctx, again.Name, v1alpha1.DeploymentCancelled)

		By("the request has a response")
		f.ExpectExists(ctx, d)
		d.MarkActivation(v1alpha1.ActivationSuperseded, "")
		f.ExpectStatus(ctx, d)
		e.Spec.Git.Commit = ""
		f.ApplyAndReconcile(ctx, e)
		at(two)
		Expect(f.commits(ctx)).To(HaveLen(3))
		Expect(e.Status.Git.Deployment).To(Equal("now"))
	})

	It("is restored over a later activation request", func(ctx SpecContext) {
		f := newFollower(ctx)
		e := f.Environment("dev")
		at := func(commit string) {
			GinkgoHelper()
			e.Spec.Git.Commit = v1alpha1.GitCommit(commit)
			f.ApplyAndReconcile(ctx, e)
		}
		at(one)
		f.deployed(ctx, one, false)
		at(two)
		f.deployed(ctx, two, true)
		at(one)
		Expect(f.deployed(ctx, one, false).ActivationPending()).To(BeTrue())
		at(two)
		Expect(f.deployed(ctx, two, true).ActivationPending()).To(BeTrue(), "else the other one would go live, which is asked for no more")
	})

	It("is built from the current folder, even if statuses are lost", func(ctx SpecContext) {
		f := newFollower(ctx)
		e := f.Environment("dev", func(e *v1alpha1.Environment) { e.Spec.Git.Commit = v1alpha1.GitCommit(one) })
		f.ApplyAndReconcile(ctx, e)
		old := &v1alpha1.Deployment{ObjectMeta: f.At(e.Status.Git.Deployment)}
		f.ExpectExists(ctx, old)
		f.recorded(ctx, e, old, one, "")
		f.project.Spec.Git.Path = "agents"
		f.ExpectApplied(ctx, f.project)
		lost := func(phase v1alpha1.DeploymentPhase) {
			GinkgoHelper()
			f.ExpectExists(ctx, old)
			old.Status = v1alpha1.DeploymentStatus{Phase: phase}
			f.ExpectStatus(ctx, old)
			e.Status = v1alpha1.EnvironmentStatus{}
			f.ExpectStatus(ctx, e)
			f.ExpectReconciled(ctx, f.R, e)
		}

		By("an Environment and a Deployment from a backup without a status")
		lost("")
		anew := e.Status.Git.Deployment
		Expect(anew).NotTo(Equal(old.Name))
		Expect(f.commits(ctx)).To(ConsistOf(one, one))
		f.built(ctx, anew, one, "agents")

		By("a Deployment without the folder in its status, and a rollback to an earlier commit")
		e.Spec.Git.Commit = v1alpha1.GitCommit(two)
		f.ApplyAndReconcile(ctx, e)
		f.built(ctx, e.Status.Git.Deployment, two, "agents")
		f.ExpectGone(ctx, &v1alpha1.Deployment{ObjectMeta: f.At(anew)})
		e.Spec.Git.Commit = v1alpha1.GitCommit(one)
		f.ExpectApplied(ctx, e)
		lost(v1alpha1.DeploymentDeployed)
		Expect(e.Status.Git.Deployment).NotTo(Equal(old.Name))
		Expect(f.commits(ctx)).To(ConsistOf(one, one, two))
		f.ExpectExists(ctx, old)
		Expect(old.Spec.Activation).To(BeNil())

		By("the previous folder, which is live already")
		f.project.Spec.Git.Path = ""
		f.ExpectApplied(ctx, f.project)
		f.ended(ctx, e.Status.Git.Deployment, v1alpha1.DeploymentCancelled)
		lost("")
		Expect(e.Status.Git.Deployment).To(Equal(old.Name))
		Expect(f.commits(ctx)).To(ConsistOf(one, one, two))
	})
})
