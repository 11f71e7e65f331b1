// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/store"
)

// setProviders replaces the model providers of the project.
func (s *scene) setProviders(ctx context.Context, prefixes ...string) {
	GinkgoHelper()
	s.project.Spec.ModelProviders = nil
	for _, prefix := range prefixes {
		s.project.Spec.ModelProviders = append(s.project.Spec.ModelProviders, v1alpha1.ModelProvider{
			Prefix: prefix, Type: v1alpha1.ModelProviderOpenAI, BaseURL: "https://llm.example.com/v1",
		})
	}
	s.ExpectApplied(ctx, s.project)
}

// deployModels deploys code with the agent "hello" and these models, until the deployment ends.
func (s *scene) deployModels(ctx context.Context, name string, models ...string) *v1alpha1.Deployment {
	GinkgoHelper()
	d := s.reconciled(ctx, s.Deployment(name, func(d *v1alpha1.Deployment) { d.Spec.SkipTests = true }))
	s.buildModels(ctx, d, models...)
	return d
}

// buildModels ends the build of a deployment whose code has the agent "hello" with these models.
func (s *scene) buildModels(ctx context.Context, d *v1alpha1.Deployment, models ...string) {
	GinkgoHelper()
	s.ExpectBuildResult(ctx, s.Key(d), store.BuildResult{Agents: []store.Agent{
		{Name: "hello", Type: "llm", SourcePath: "agents/hello.yaml", Models: models},
	}})
	s.ExpectReconciled(ctx, s.r, d)
}

var _ = Describe("A Deployment with models", func() {
	It("fails before it goes live if the project lacks the provider of a model", func(ctx SpecContext) {
		s := newScene(ctx)
		s.setProviders(ctx, "openai")
		Expect(s.deployModels(ctx, "v1", "openai/gpt-5", "scripted/hello").Status.Phase).To(Equal(v1alpha1.DeploymentDeployed))
		d := s.deployModels(ctx, "v2", "openai/gpt-5", "our/large")
		Expect(State(d)).To(Equal("Ready=False/ModelProviderMissing Stalled observed"))
		Expect(d.Status.FailureReason).To(Equal(v1alpha1.FailureModelProvider))
		Expect(d.Status.Message).To(Equal(`model "our/large" of agent "hello": no model provider has the prefix "our"; ` +
			"add it to spec.modelProviders of the Project, or correct the model"))
		Expect(d.Status.IsTrue(v1alpha1.ConditionBuilt)).To(BeTrue())
		Expect(d.Status.Condition(v1alpha1.ConditionConnectorsApplied).Reason).To(Equal(v1alpha1.ReasonModelProviderMissing))
		Expect(s.outcome(ctx, d).FailureReason).To(Equal(store.FailureModelProvider))
		Expect(s.live(ctx)).To(Equal("v1"))
		s.ExpectAtRest(ctx, s.r, d)

		By("deploying the same code after the provider was added")
		s.setProviders(ctx, "openai", "our")
		s.ExpectReconciled(ctx, s.r, d)
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentFailed), "its outcome is final")
		again := s.deployModels(ctx, "v3", "openai/gpt-5", "our/large")
		Expect(State(again)).To(Equal("Ready=True/Succeeded observed"), Message(again))
		Expect(s.live(ctx)).To(Equal("v3"))
	})

	It("is not activated again without the provider, and is after the provider was added", func(ctx SpecContext) {
		s := newScene(ctx)
		s.setProviders(ctx, "openai", "our")
		first := s.deployModels(ctx, "v1", "our/large")
		second := s.deployModels(ctx, "v2", "openai/gpt-5")
		s.setProviders(ctx, "openai")
		Expect(s.activate(ctx, first, 0)).To(Equal(v1alpha1.ActivationModelProviderMissing))
		Expect(first.Status.Activation.Message).To(ContainSubstring(`model "our/large" of agent "hello"`))
		Expect(State(first)).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.live(ctx)).To(Equal("v2"))
		s.ExpectAtRest(ctx, s.r, first)
		Expect(s.activate(ctx, second, time.Second)).To(Equal(v1alpha1.ActivationActivated))

		s.setProviders(ctx, "openai", "our")
		Expect(s.activate(ctx, first, 2*time.Second)).To(Equal(v1alpha1.ActivationActivated))
		Expect(s.live(ctx)).To(Equal("v1"))
	})

	It("stays live without the provider, and comes back with its environment", func(ctx SpecContext) {
		s := newScene(ctx)
		s.setProviders(ctx, "our")
		d := s.deployModels(ctx, "v1", "our/large")
		s.setProviders(ctx)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(s.live(ctx)).To(Equal("v1"))
		Expect(s.activate(ctx, d, 0)).To(Equal(v1alpha1.ActivationActivated), "it is live already")
		s.ExpectGone(ctx, s.environment)
		Expect(s.Store.Remove(ctx, s.Key(s.environment).ProjectID, s.Ref(s.environment))).To(Succeed())
		s.ExpectReconciled(ctx, s.r, d)
		Expect(d.Status.Live).To(BeFalse())
		s.environment = s.ExpectEnvironment(ctx, "dev")
		s.ExpectReconciled(ctx, s.r, d)
		Expect(s.live(ctx)).To(Equal("v1"))
	})

	It("goes live again without the provider after an older store was restored", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.Deployment("v1", func(d *v1alpha1.Deployment) { d.Spec.SkipTests = true })
		s.ExpectApplied(ctx, d)
		d.Status.Phase, d.Status.Live = v1alpha1.DeploymentDeployed, true
		s.ExpectStatus(ctx, d)
		s.ExpectReconciled(ctx, s.r, d)
		s.buildModels(ctx, d, "our/large")
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed), Message(d))
		Expect(s.live(ctx)).To(Equal("v1"))
	})
})
