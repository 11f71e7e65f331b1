// SPDX-License-Identifier: Apache-2.0

package gitfollower_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
)

// stopped sets a deployment's status to failed with a reason.
func (f *follower) stopped(ctx context.Context, name string, reason v1alpha1.DeploymentFailure) {
	GinkgoHelper()
	d := &v1alpha1.Deployment{ObjectMeta: f.At(name)}
	f.ExpectExists(ctx, d)
	d.Status.Phase, d.Status.FailureReason = v1alpha1.DeploymentFailed, reason
	f.ExpectStatus(ctx, d)
}

var _ = Describe("An Environment whose Deployment failed because of its connectors", func() {
	set := func(ctx context.Context, f *follower, e *v1alpha1.Environment, variables ...v1alpha1.EnvironmentVariable) {
		GinkgoHelper()
		e.Spec.Variables = variables
		f.ExpectApplied(ctx, e)
		f.ExpectReconciled(ctx, f.R, e)
	}
	variable := func(value string) v1alpha1.EnvironmentVariable {
		return v1alpha1.EnvironmentVariable{Name: "CRM", Value: ptr.To(value)}
	}

	DescribeTable("retries its commit once per change of the variables", func(ctx SpecContext, change func(*v1alpha1.Environment, string)) {
		f := newFollower(ctx)
		commit := f.repository.Commit("main", "agents/a.yaml", "name: a")
		e := f.Environment("dev", func(e *v1alpha1.Environment) { change(e, commit) })
		f.ApplyAndReconcile(ctx, e)
		f.look(ctx)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(ConsistOf(commit))
		f.stopped(ctx, e.Status.Git.Deployment, v1alpha1.FailureConnectors)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(HaveLen(1), "nothing has changed")

		for tries := 2; tries <= 3; tries++ {
			set(ctx, f, e, variable(string(rune('0'+tries))))
			Expect(f.commits(ctx)).To(HaveLen(tries))
			f.ExpectReconciled(ctx, f.R, e)
			f.stopped(ctx, e.Status.Git.Deployment, v1alpha1.FailureConnectors)
			f.ExpectReconciled(ctx, f.R, e)
			f.ExpectAtRest(ctx, f.R, e)
			Expect(f.commits(ctx)).To(HaveLen(tries), "once, although it failed again")
		}
		Expect(e.Status.IsTrue(v1alpha1.ConditionSourceFollowed)).To(BeFalse())
	},
		Entry("followed commit", func(e *v1alpha1.Environment, _ string) { e.Spec.Git.AutoDeploy = true }),
		Entry("named commit", func(e *v1alpha1.Environment, commit string) { e.Spec.Git.Commit = v1alpha1.GitCommit(commit) }),
	)

	It("retries when a Secret has the missing value", func(ctx SpecContext) {
		f := newFollower(ctx)
		f.repository.Commit("main", "agents/a.yaml", "name: a")
		secret := f.Secret("crm", map[string]string{"else": "x"})
		f.ExpectApplied(ctx, secret)
		e := f.Environment("dev", following, func(e *v1alpha1.Environment) {
			e.Spec.Variables = []v1alpha1.EnvironmentVariable{{Name: "CRM", SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "crm", Key: "token"}}}
		})
		f.ApplyAndReconcile(ctx, e)
		f.look(ctx)
		f.ExpectReconciled(ctx, f.R, e)
		f.stopped(ctx, e.Status.Git.Deployment, v1alpha1.FailureConnectors)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(HaveLen(1))
		secret.StringData = map[string]string{"token": "secret"}
		f.ExpectApplied(ctx, secret)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(HaveLen(2))
		Expect(e.Status.Git.Variables).NotTo(ContainSubstring("secret"))
	})

	It("retries a failed build once when an OAuth app appears", func(ctx SpecContext) {
		f := newFollower(ctx)
		f.repository.Commit("main", "agents/a.yaml", "name: a")
		f.ExpectApplied(ctx, f.Secret("crm", map[string]string{"secret": "x"}))
		e := f.Environment("dev", following)
		f.ApplyAndReconcile(ctx, e)
		f.look(ctx)
		f.ExpectReconciled(ctx, f.R, e)
		f.stopped(ctx, e.Status.Git.Deployment, v1alpha1.FailureBuild)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(HaveLen(1), "nothing has changed")
		e.Spec.OAuthApps = []v1alpha1.OAuthApp{OAuthApp("crm", "crm", "secret")}
		f.ExpectApplied(ctx, e)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(HaveLen(2))
		f.stopped(ctx, e.Status.Git.Deployment, v1alpha1.FailureBuild)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(HaveLen(2), "once, although it failed again")
		f.stopped(ctx, e.Status.Git.Deployment, v1alpha1.FailureTests)
		e.Spec.OAuthApps = nil
		f.ExpectApplied(ctx, e)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(HaveLen(2), "tests need no OAuth app")
	})

	DescribeTable("does not retry for variables", func(ctx SpecContext, reason v1alpha1.DeploymentFailure) {
		f := newFollower(ctx)
		f.repository.Commit("main", "agents/a.yaml", "name: a")
		e := f.Environment("dev", following)
		f.ApplyAndReconcile(ctx, e)
		f.look(ctx)
		f.ExpectReconciled(ctx, f.R, e)
		f.stopped(ctx, e.Status.Git.Deployment, reason)
		set(ctx, f, e, variable("x"))
		Expect(f.commits(ctx)).To(HaveLen(1))
	},
		Entry("after a failed build", v1alpha1.FailureBuild),
		Entry("after failed tests", v1alpha1.FailureTests),
	)
})
