// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	"context"

	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/store"
)

// configured creates the runners' configuration like the environment controller.
func (s *scene) configured(ctx context.Context) {
	GinkgoHelper()
	config := s.Secret(base.RunnerConfig("dev"), map[string]string{"providers.json": "{}"})
	config.Labels = map[string]string{base.LabelManagedBy: base.ManagedBy}
	Expect(controllerutil.SetControllerReference(s.environment, config, s.Admin.Scheme())).To(Succeed())
	s.ExpectApplied(ctx, config)
}

var _ = Describe("The test phase", func() {
	// configured returns the Secrets with the configuration of the test container.
	configured := func(pod corev1.PodSpec) (names []string) {
		for _, v := range pod.Volumes {
			if v.Name == "config" {
				names = append(names, v.Secret.SecretName)
			}
		}
		return names
	}

	It("uses the configuration of the runners or of the test environment, and waits for it", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		Expect(configured(s.job(ctx, d).Spec.Template.Spec)).To(ConsistOf("dev-runner-config"))

		s.environment.Spec.TestEnvironment = "lab"
		s.ExpectApplied(ctx, s.environment)
		next := s.reconciled(ctx, s.Deployment("v2"))
		Expect(State(next)).To(Equal("Ready=False/ReferenceMissing Reconciling"))
		Expect(Message(next)).To(ContainSubstring(`Environment "lab"`))
		Expect(s.Children(ctx, next.UID)).To(BeEmpty())

		s.ExpectEnvironment(ctx, "lab")
		s.ExpectReconciled(ctx, s.r, next)
		Expect(configured(s.job(ctx, next).Spec.Template.Spec)).To(ConsistOf("lab-runner-config"))
	})

	It("waits for the model providers of the project, unless it is skipped", func(ctx SpecContext) {
		s := newScene(ctx)
		s.project.Spec.ModelProviders = []v1alpha1.ModelProvider{{Prefix: "llm", Type: v1alpha1.ModelProviderOpenAI, BaseURL: "https://llm.example.com/v1"}}
		s.ExpectApplied(ctx, s.project)
		d := s.reconciled(ctx, s.Deployment("v1"))
		Expect(State(d)).To(Equal("Ready=False/Progressing Reconciling"))
		Expect(Message(d)).To(ContainSubstring(`the tests need the model providers and variables of Environment "dev", whose runners do not have them yet`))
		Expect(s.Children(ctx, d.UID)).To(BeEmpty())

		untested := s.reconciled(ctx, s.Deployment("v2", func(d *v1alpha1.Deployment) { d.Spec.SkipTests = true }))
		Expect(configured(s.job(ctx, untested).Spec.Template.Spec)).To(ConsistOf("dev-runner-config"), "for variables alone")
		Expect(s.outcome(ctx, untested).SkipTests).To(BeTrue())

		By("which are not in a foreign Secret with that name")
		foreign := s.Secret(base.RunnerConfig("dev"), map[string]string{"providers.json": "{}"})
		s.ExpectApplied(ctx, foreign)
		third := s.reconciled(ctx, s.Deployment("v3"))
		Expect(Message(third)).To(ContainSubstring(`in Secret "dev-runner-config", which the platform did not create`))
		Expect(s.Children(ctx, third.UID)).To(BeEmpty())
		s.ExpectGone(ctx, foreign)

		s.configured(ctx)
		s.ExpectReconciled(ctx, s.r, third)
		Expect(configured(s.job(ctx, third).Spec.Template.Spec)).To(ConsistOf("dev-runner-config"))
	})

	It("fails the deployment with a failed case, and reports the number of failures", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		Expect(s.Store.ReportBuild(ctx, s.Key(d), store.BuildReport{
			Phase: store.PhaseTesting, Commit: "0123456789abcdef0123456789abcdef01234567",
		})).To(Succeed())
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=Unknown/Testing Reconciling"))
		Expect(d.Status.Step).To(Equal(v1alpha1.StepTesting))
		Expect(d.Status.Tests).To(BeNil())
		Expect(s.Store.FinishBuild(ctx, s.Key(d), store.BuildResult{
			FailureReason: store.FailureTests, Message: "1 of 3 test cases failed: hello/greets",
			TestResults: json.RawMessage(`[{"passed":true},{"passed":false},{"passed":true}]`),
		})).To(Succeed())
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=False/TestsFailed Stalled observed"))
		Expect(Message(d)).To(ContainSubstring("1 of 3 test cases failed: hello/greets"))
		Expect(d.Status.FailureReason).To(Equal(v1alpha1.FailureTests))
		Expect(d.Status.Tests).To(HaveValue(Equal(v1alpha1.DeploymentTests{Total: 3, Failed: 1})))
		Expect(d.Status.IsTrue(v1alpha1.ConditionBuilt)).To(BeTrue(), "the bundle is stored")
		Expect(d.Status.Condition(v1alpha1.ConditionTestsPassed).Reason).To(Equal(v1alpha1.ReasonTestsFailed))
		Expect(s.live(ctx)).To(BeEmpty())
		s.ExpectAtRest(ctx, s.r, d)
	})
})
