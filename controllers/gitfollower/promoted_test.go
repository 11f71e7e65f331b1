// SPDX-License-Identifier: Apache-2.0

package gitfollower_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

var _ = Describe("An Environment whose manifest names a commit", func() {
	one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)
	at := func(commit string) func(*v1alpha1.Environment) {
		return func(e *v1alpha1.Environment) { e.Spec.Git.Commit = v1alpha1.GitCommit(commit) }
	}

	It("is promoted, and rolled back without a build", func(ctx SpecContext) {
		f := newFollower(ctx)
		e := f.Environment("dev", at(one))
		f.ApplyAndReconcile(ctx, e)
		Expect(f.commits(ctx)).To(ConsistOf(one))
		f.deployed(ctx, one, false)
		at(two)(e)
		f.ApplyAndReconcile(ctx, e)
		Expect(f.commits(ctx)).To(ConsistOf(one, two))
		first := f.deployed(ctx, one, false)
		first.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC))} // a user's request that was rejected
		f.ExpectApplied(ctx, first)
		f.deployed(ctx, two, true)

		at(one)(e)
		f.ApplyAndReconcile(ctx, e)
		Expect(f.commits(ctx)).To(ConsistOf(one, two))
		back := f.deployed(ctx, one, true)
		Expect(back.Spec.Activation).NotTo(BeNil())
		Expect(back.Spec.Activation.RequestedAt.Time).To(BeTemporally("~", f.Clock.Now(), time.Second))
		Expect(e.Status.Git).To(Equal(&v1alpha1.EnvironmentGitStatus{Commit: one, Path: ptr.To(""), Deployment: back.Name, Revision: 3}))
		f.ExpectAtRest(ctx, f.R, e)
	})

	It("is built again if the bundle was deleted", func(ctx SpecContext) {
		f := newFollower(ctx)
		e := f.Environment("dev", at(one))
		f.ApplyAndReconcile(ctx, e)
		f.deployed(ctx, one, false)
		at(two)(e)
		f.ApplyAndReconcile(ctx, e)
		f.deployed(ctx, two, true)
		at(one)(e)
		f.ApplyAndReconcile(ctx, e)
		back := f.deployed(ctx, one, false)
		back.MarkActivation(v1alpha1.ActivationBundleGone, "gone")
		f.ExpectStatus(ctx, back)
		f.ApplyAndReconcile(ctx, e)
		Expect(f.commits(ctx)).To(ConsistOf(one, two, one))
		Expect(e.Status.Git.Deployment).NotTo(Equal(back.Name))
		Expect(e.Status.Condition(v1alpha1.ConditionSourceFollowed).Status).To(Equal(metav1.ConditionTrue))
		f.ExpectAtRest(ctx, f.R, e)
	})

	It("is built again from a changed folder, and earlier builds do not count", func(ctx SpecContext) {
		f := newFollower(ctx)
		e := f.Environment("dev", at(one))
		f.ApplyAndReconcile(ctx, e)
		old := e.Status.Git.Deployment
		f.built(ctx, old, one, "")
		live := f.Deployment(old)
		_, err := f.Store.BeginDeployment(ctx, store.DeploymentSpec{
			Ref: f.Ref(live), ID: f.Key(live).ID, ProjectID: f.Key(live).ProjectID, EnvironmentID: f.Key(e).ID, Fingerprint: "a", SourceType: "git", Commit: one,
		})
		Expect(err).NotTo(HaveOccurred())
		_, err = f.Store.Database.ExecContext(ctx, `UPDATE environments SET live_deployment_id = ?, live_activated_at = 1`, f.Key(live).ID.String())
		Expect(err).NotTo(HaveOccurred())
		_, err = f.Store.Database.ExecContext(ctx, `UPDATE deployments SET resolved_commit = ?`, one)
		Expect(err).NotTo(HaveOccurred())
		f.ExpectReconciled(ctx, f.R, e)
		Expect(e.Status.LiveCommit).To(Equal(one))
		Expect(e.Status.Git.Deployment).To(Equal(old))

		f.project.Spec.Git.Path = "agents"
		f.ExpectApplied(ctx, f.project)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(ConsistOf(one, one))
		anew := e.Status.Git.Deployment
		Expect(anew).NotTo(Equal(old))
		f.ended(ctx, anew, v1alpha1.DeploymentFailed)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(e.Status.Condition(v1alpha1.ConditionSourceFollowed).Reason).To(Equal(v1alpha1.ReasonDeploymentFailed))
		f.built(ctx, anew, one, "agents")
		_, err = f.Store.Database.ExecContext(ctx, `UPDATE environments SET live_deployment_id = NULL, live_activated_at = NULL`)
		Expect(err).NotTo(HaveOccurred())

		By("promote and roll back")
		at(two)(e)
		f.ApplyAndReconcile(ctx, e)
		f.built(ctx, e.Status.Git.Deployment, two, "agents")
		at(one)(e)
		f.ApplyAndReconcile(ctx, e)
		Expect(f.commits(ctx)).To(ConsistOf(one, one, two))
		Expect(e.Status.Git.Deployment).To(Equal(anew))

		By("the previous folder activates its earlier build")
		f.built(ctx, anew, one, "agents")
		f.project.Spec.Git.Path = ""
		f.ExpectApplied(ctx, f.project)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(ConsistOf(one, one, two))
		Expect(e.Status.Git.Deployment).To(Equal(old))
	})

	It("stays unchanged if the commit is live already", func(ctx SpecContext) {
		f := newFollower(ctx)
		mine := f.Deployment("mine", func(d *v1alpha1.Deployment) {
			d.Spec.Environment, d.Spec.Source.Git = "dev", &v1alpha1.DeploymentGitSource{Commit: v1alpha1.GitCommit(one)}
		})
		f.ExpectApplied(ctx, mine)
		f.deployed(ctx, one, true)
		e := f.Environment("dev", at(one))
		f.ApplyAndReconcile(ctx, e)
		Expect(f.commits(ctx)).To(ConsistOf(one))
		Expect(e.Status.Git.Deployment).To(Equal("mine"))

		By("a user's deployment is not activated")
		at(two)(e)
		f.ApplyAndReconcile(ctx, e)
		f.deployed(ctx, one, false)
		f.deployed(ctx, two, true)
		at(one)(e)
		f.ApplyAndReconcile(ctx, e)
		Expect(f.commits(ctx)).To(ConsistOf(one, two, one))
	})

	It("is rolled back although the status of the earlier deployment is stale", func(ctx SpecContext) {
		f := newFollower(ctx)
		e := f.Environment("dev", at(one))
		f.ApplyAndReconcile(ctx, e)
		f.deployed(ctx, one, true)
		at(two)(e)
		f.ApplyAndReconcile(ctx, e)
		second := f.deployed(ctx, two, true)
		_, err := f.Store.BeginDeployment(ctx, store.DeploymentSpec{
			Ref: f.Ref(second), ID: f.Key(second).ID, ProjectID: f.Key(second).ProjectID, EnvironmentID: f.Key(e).ID, Fingerprint: "a", SourceType: "git",
		})
		Expect(err).NotTo(HaveOccurred())
		_, err = f.Store.Database.ExecContext(ctx, `UPDATE environments SET live_deployment_id = ?, live_activated_at = 1`, f.Key(second).ID.String())
		Expect(err).NotTo(HaveOccurred())
		at(one)(e)
		f.ApplyAndReconcile(ctx, e)
		Expect(f.deployed(ctx, one, true).Spec.Activation).NotTo(BeNil())
	})

	It("is promoted during a build of another commit", func(ctx SpecContext) {
		f := newFollower(ctx)
		e := f.Environment("dev", at(one))
		f.ApplyAndReconcile(ctx, e)
		f.deployed(ctx, one, true)
		at(two)(e)
		f.ApplyAndReconcile(ctx, e)
		at(one)(e)
		f.ApplyAndReconcile(ctx, e)
		Expect(f.commits(ctx)).To(ConsistOf(one, two))
		Expect(f.deployed(ctx, one, true).Spec.Activation).NotTo(BeNil(), "else the other one would go live when it is built")
	})

	It("is promoted, rolled back and promoted again, with a new build after each failure", func(ctx SpecContext) {
		f := newFollower(ctx)
		e := f.Environment("dev", at(one))
		f.ApplyAndReconcile(ctx, e)
		f.deployed(ctx, one, true)
		at(two)(e)
		f.ApplyAndReconcile(ctx, e)
		there := e.Status.Git.Deployment
		f.ended(ctx, there, v1alpha1.DeploymentCancelled)
		at(one)(e)
		f.ApplyAndReconcile(ctx, e)
		at(two)(e)
		f.ApplyAndReconcile(ctx, e)
		again := e.Status.Git.Deployment
		Expect(again).NotTo(Equal(there))
		Expect(f.commits(ctx)).To(ConsistOf(one, two, two))

		By("after its status was lost, an ended deployment is not reused")
		f.ended(ctx, again, v1alpha1.DeploymentFailed)
		e.Status.Git = nil
		f.ExpectStatus(ctx, e)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(e.Status.Git.Deployment).NotTo(BeElementOf(there, again))

		By("nor a deleted Deployment that the store has")
		third := f.Deployment(e.Status.Git.Deployment)
		_, err := f.Store.BeginDeployment(ctx, store.DeploymentSpec{
			Ref: f.Ref(third), ID: f.Key(third).ID, ProjectID: f.Key(third).ProjectID, EnvironmentID: f.Key(e).ID, Fingerprint: "a", SourceType: "git",
		})
		Expect(err).NotTo(HaveOccurred())
		f.ExpectGone(ctx, &v1alpha1.Deployment{ObjectMeta: f.At(third.Name)})
		f.ExpectGone(ctx, &v1alpha1.Deployment{ObjectMeta: f.At(again)})
		e.Status.Git = nil
		f.ExpectStatus(ctx, e)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(e.Status.Git.Deployment).NotTo(BeElementOf(there, third.Name))
		Expect(f.commits(ctx)).To(ConsistOf(one, two, two))
	})

	It("is not in progress if a newer deployment is", func(ctx SpecContext) {
		f := newFollower(ctx)
		e := f.Environment("dev", at(one))
		f.ApplyAndReconcile(ctx, e)
		at(two)(e)
		f.ApplyAndReconcile(ctx, e)
		at(one)(e)
		f.ApplyAndReconcile(ctx, e)
		Expect(f.commits(ctx)).To(ConsistOf(one, two, one))
		Expect(e.Status.Git.Revision).To(Equal(int64(3)))

		By("after the status was lost, the same Deployment is used")
		asked := *e.Status.Git
		e.Status.Git.Commit, e.Status.Git.Revision = two, 2
		f.ExpectStatus(ctx, e)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(HaveLen(3))
		Expect(*e.Status.Git).To(Equal(asked))
	})

	It("has its runners although Kubernetes rejects the Deployment", func(ctx SpecContext) {
		f := newFollower(ctx)
		quota := &corev1.ResourceQuota{ObjectMeta: f.At("none"), Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{"count/deployments.agentplatform.dev": resource.MustParse("0")},
		}}
		f.ExpectApplied(ctx, quota)
		quota.Status.Hard = quota.Spec.Hard
		f.ExpectStatus(ctx, quota)
		e := f.Environment("dev", at(one))
		after := f.ApplyAndReconcile(ctx, e)
		Expect(after).To(And(BeNumerically(">", 0), BeNumerically("<=", 30*time.Second)))
		f.Pool(ctx, e)
		condition := e.Status.Condition(v1alpha1.ConditionSourceFollowed)
		Expect(condition.Status).To(Equal(metav1.ConditionFalse))
		Expect(condition.Reason).To(Equal(v1alpha1.ReasonRefused))
		Expect(condition.Message).To(ContainSubstring("quota"))
		Expect(v1alpha1.IsStalled(e)).To(BeFalse())
	})

	It("does not adopt another user's Deployment", func(ctx SpecContext) {
		f := newFollower(ctx)
		e := f.Environment("dev", at(one))
		f.ApplyAndReconcile(ctx, e)
		name := e.Status.Git.Deployment
		f.ExpectGone(ctx, &v1alpha1.Deployment{ObjectMeta: f.At(name)})
		f.ExpectApplied(ctx, f.Deployment(name, func(d *v1alpha1.Deployment) {
			d.Spec.Environment, d.Spec.Source.Git = "dev", &v1alpha1.DeploymentGitSource{Commit: v1alpha1.GitCommit(two)}
		}))
		e.Status.Git = nil
		f.ExpectStatus(ctx, e)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(e.Status.Git.Deployment).NotTo(Equal(name))
		Expect(e.Status.Git.Revision).To(Equal(int64(2)))
		Expect(f.commits(ctx)).To(ConsistOf(one, two))
	})
})

var _ = Describe("An Environment that was brought to a commit", func() {
	one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)
	at := func(commit string) func(*v1alpha1.Environment) {
		return func(e *v1alpha1.Environment) { e.Spec.Git.Commit = v1alpha1.GitCommit(commit) }
	}

	It("follows its source only while the commit is live or in progress", func(ctx SpecContext) {
		f := newFollower(ctx)
		e := f.Environment("dev", at(one))
		f.ApplyAndReconcile(ctx, e)
		said := func() string {
			GinkgoHelper()
			f.ExpectReconciled(ctx, f.R, e)
			condition := e.Status.Condition(v1alpha1.ConditionSourceFollowed)
			_, ended, _ := strings.Cut(condition.Message, `"`+e.Status.Git.Deployment+`"`)
			return string(condition.Status) + condition.Reason + ended
		}
		const remedy = ". Name another commit in spec.git, or create a Deployment of this commit"
		Expect(said()).To(Equal("TrueSucceeded"))

		By("deployed, and another one activated")
		d := f.deployed(ctx, one, true)
		Expect(said()).To(Equal("TrueSucceeded"))
		f.deployed(ctx, one, false)
		Expect(said()).To(Equal("FalseDeploymentFailed, which is not live, because another deployment is" + remedy))
		f.ExpectAtRest(ctx, f.R, e)
		f.ExpectExists(ctx, d)
		d.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(f.Clock.Now().Truncate(time.Second))}
		f.ExpectApplied(ctx, d)
		Expect(said()).To(Equal("TrueSucceeded"))

		By("failed and deleted")
		f.ended(ctx, d.Name, v1alpha1.DeploymentFailed)
		Expect(said()).To(Equal("FalseDeploymentFailed, which is Failed; see its conditions" + remedy))
		f.ExpectGone(ctx, &v1alpha1.Deployment{ObjectMeta: f.At(d.Name)})
		Expect(said()).To(Equal("FalseDeploymentFailed, which is gone" + remedy))
		Expect(f.commits(ctx)).To(BeEmpty())

		By("suspended, and another commit requested")
		at(two)(e)
		e.Spec.Suspend = true
		f.ApplyAndReconcile(ctx, e)
		Expect(e.Status.Condition(v1alpha1.ConditionSourceFollowed)).To(BeNil(), "it would speak of the commit before")
		e.Spec.Suspend = false

		By("deleted while in progress")
		at(two)(e)
		f.ApplyAndReconcile(ctx, e)
		Expect(said()).To(Equal("TrueSucceeded"))
		f.ExpectGone(ctx, &v1alpha1.Deployment{ObjectMeta: f.At(e.Status.Git.Deployment)})
		Expect(said()).To(Equal("FalseDeploymentFailed, which is gone" + remedy))
	})
})
