// SPDX-License-Identifier: Apache-2.0

package gitfollower_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// setProviders replaces the model providers of the project and reconciles an environment.
func (f *follower) setProviders(ctx context.Context, e *v1alpha1.Environment, providers ...v1alpha1.ModelProvider) {
	GinkgoHelper()
	f.project.Spec.ModelProviders = providers
	f.ExpectApplied(ctx, f.project)
	f.ExpectReconciled(ctx, f.R, e)
}

// newProvider returns a model provider.
func newProvider(prefix, url string) v1alpha1.ModelProvider {
	return v1alpha1.ModelProvider{Prefix: prefix, Type: v1alpha1.ModelProviderOpenAI, BaseURL: url}
}

var _ = Describe("An Environment whose Deployment lacks a model provider", func() {
	DescribeTable("retries its commit once per change of the providers", func(ctx SpecContext, reason v1alpha1.DeploymentFailure, change func(*v1alpha1.Environment, string)) {
		f := newFollower(ctx)
		commit := f.repository.Commit("main", "agents/a.yaml", "name: a")
		e := f.Environment("dev", func(e *v1alpha1.Environment) { change(e, commit) })
		f.ApplyAndReconcile(ctx, e)
		f.look(ctx)
		f.ExpectReconciled(ctx, f.R, e)
		f.stopped(ctx, e.Status.Git.Deployment, reason)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(HaveLen(1), "nothing has changed")
		Expect(e.Status.Git.ModelProviders).To(BeEmpty())

		openai, ours := newProvider("openai", "https://llm.example.com/v1"), newProvider("our", "https://llm.example.com/v1")
		f.setProviders(ctx, e, openai)
		Expect(f.commits(ctx)).To(HaveLen(2))
		f.stopped(ctx, e.Status.Git.Deployment, reason)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(HaveLen(2), "once, although it failed again")
		f.setProviders(ctx, e, newProvider("openai", "https://other.example.com/v1"))
		Expect(f.commits(ctx)).To(HaveLen(2), "the address does not matter")

		f.setProviders(ctx, e, openai, ours)
		Expect(f.commits(ctx)).To(HaveLen(3))
		f.setProviders(ctx, e, ours, openai)
		f.stopped(ctx, e.Status.Git.Deployment, reason)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(HaveLen(3), "the order does not matter")
	},
		Entry("followed commit", v1alpha1.FailureModelProvider, func(e *v1alpha1.Environment, _ string) { e.Spec.Git.AutoDeploy = true }),
		Entry("followed commit whose tests failed", v1alpha1.FailureTests, func(e *v1alpha1.Environment, _ string) { e.Spec.Git.AutoDeploy = true }),
		Entry("named commit", v1alpha1.FailureModelProvider, func(e *v1alpha1.Environment, commit string) { e.Spec.Git.Commit = v1alpha1.GitCommit(commit) }),
	)

	DescribeTable("does not retry for model providers", func(ctx SpecContext, reason v1alpha1.DeploymentFailure) {
		f := newFollower(ctx)
		f.repository.Commit("main", "agents/a.yaml", "name: a")
		e := f.Environment("dev", following)
		f.ApplyAndReconcile(ctx, e)
		f.look(ctx)
		f.ExpectReconciled(ctx, f.R, e)
		f.stopped(ctx, e.Status.Git.Deployment, reason)
		f.setProviders(ctx, e, newProvider("openai", "https://llm.example.com/v1"))
		Expect(f.commits(ctx)).To(HaveLen(1))
	},
		Entry("after a failed build", v1alpha1.FailureBuild),
		Entry("after failed connectors", v1alpha1.FailureConnectors),
	)

	It("requests a rejected activation again", func(ctx SpecContext) {
		one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)
		f := newFollower(ctx)
		e := f.Environment("dev", func(e *v1alpha1.Environment) { e.Spec.Git.Commit = v1alpha1.GitCommit(one) })
		f.ApplyAndReconcile(ctx, e)
		f.deployed(ctx, one, false)
		e.Spec.Git.Commit = v1alpha1.GitCommit(two)
		f.ApplyAndReconcile(ctx, e)
		f.deployed(ctx, two, true)
		e.Spec.Git.Commit = v1alpha1.GitCommit(one)
		f.ApplyAndReconcile(ctx, e)
		back := f.deployed(ctx, one, false)
		asked := func() metav1.Time {
			GinkgoHelper()
			f.ExpectExists(ctx, back)
			return back.Spec.Activation.RequestedAt
		}
		first := asked()
		back.MarkActivation(v1alpha1.ActivationModelProviderMissing, "no provider")
		f.ExpectStatus(ctx, back)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(asked()).To(Equal(first), "nothing has changed")
		f.setProviders(ctx, e, newProvider("openai", "https://llm.example.com/v1"))
		Expect(asked().After(first.Time)).To(BeTrue())
		Expect(f.commits(ctx)).To(ConsistOf(one, two))
		f.ExpectAtRest(ctx, f.R, e)
	})
})
