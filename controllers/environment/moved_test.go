// SPDX-License-Identifier: Apache-2.0

package environment_test

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

// adopted lets a store that was moved have a commit live in an environment, by a Deployment
// whose object did not come along.
func (f *follower) adopted(ctx context.Context, e *v1alpha1.Environment, name, commit string) {
	GinkgoHelper()
	d := f.Deployment(name)
	key := f.Key(d)
	_, err := f.Store.BeginDeployment(ctx, store.DeploymentSpec{
		Ref: f.Ref(d), ID: key.ID, ProjectID: key.ProjectID, EnvironmentID: f.Key(e).ID, Fingerprint: name, SourceType: "git",
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(f.Store.StartBuild(ctx, key)).To(Succeed())
	Expect(f.Store.ReportBuild(ctx, key, store.BuildReport{Phase: store.PhasePacking, Commit: commit})).To(Succeed())
	f.ExpectBuilt(ctx, key, "hello")
	_, err = f.Store.Activate(ctx, store.Activation{Deployment: key})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("An Environment that was moved with its store", func() {
	one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)

	It("builds nothing anew of what is live, whoever asks for it", func(ctx SpecContext) {
		f := newFollower(ctx)
		head := f.repository.Commit("main", "agents/a.yaml", "name: a")
		for name, follow := range map[string]func(*v1alpha1.Environment){
			"pinned":   func(e *v1alpha1.Environment) { e.Spec.Git.Commit = v1alpha1.GitCommit(head) },
			"follower": following,
		} {
			e := f.Environment(name)
			f.reconciled(ctx, e)
			f.adopted(ctx, e, name+"-7", head)
			follow(e)
			f.reconciled(ctx, e)
			f.look(ctx)
			f.ExpectReconciled(ctx, f.r, e)
			Expect(f.commits(ctx)).To(BeEmpty(), name)
			Expect(e.Status.Git).To(Equal(&v1alpha1.EnvironmentGitStatus{Commit: head, Path: ptr.To(""), Deployment: name + "-7", Revision: 1}))
			Expect(e.Status.IsTrue(v1alpha1.ConditionSourceFollowed)).To(BeTrue())
			f.ExpectAtRest(ctx, f.r, e)
		}
	})

	It("builds what is not live, and what will not stay so", func(ctx SpecContext) {
		f := newFollower(ctx)
		e := f.Environment("dev")
		f.reconciled(ctx, e)
		f.adopted(ctx, e, "before", one)
		f.adopted(ctx, e, "now", two)
		at := func(commit string) {
			GinkgoHelper()
			e.Spec.Git.Commit = v1alpha1.GitCommit(commit)
			f.reconciled(ctx, e)
		}
		at(one)
		Expect(f.commits(ctx)).To(ConsistOf(one), "it was live before, and its object is missing")
		at(two)
		Expect(f.commits(ctx)).To(ConsistOf(one, two), "the build of the other one would go live")
		f.ended(ctx, e.Status.Git.Deployment, v1alpha1.DeploymentCancelled)

		By("another one that was asked to be live again")
		d := f.deployed(ctx, one, false)
		e.Spec.Git.Commit = ""
		f.reconciled(ctx, e)
		d.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(f.Clock.Now().Truncate(time.Second))}
		f.ExpectApplied(ctx, d)
		at(two)
		Expect(f.commits(ctx)).To(ConsistOf(one, two, two))
		again := &v1alpha1.Deployment{ObjectMeta: f.At(e.Status.Git.Deployment)}
		f.ended(ctx, again.Name, v1alpha1.DeploymentCancelled)

		By("which has been answered")
		f.ExpectExists(ctx, d)
		d.MarkActivation(v1alpha1.ActivationSuperseded, "")
		f.ExpectStatus(ctx, d)
		e.Spec.Git.Commit = ""
		f.reconciled(ctx, e)
		at(two)
		Expect(f.commits(ctx)).To(HaveLen(3))
		Expect(e.Status.Git.Deployment).To(Equal("now"))
	})

	It("is brought back over what was asked to be live meanwhile", func(ctx SpecContext) {
		f := newFollower(ctx)
		e := f.Environment("dev")
		at := func(commit string) {
			GinkgoHelper()
			e.Spec.Git.Commit = v1alpha1.GitCommit(commit)
			f.reconciled(ctx, e)
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
})
