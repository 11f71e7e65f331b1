// SPDX-License-Identifier: Apache-2.0

package environment_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/controllers/controllertest/environmenttest"
	"github.com/agentplatform/agentplatform/store"
)

var _ = Describe("An Environment", func() {
	It("goes from created to ready when its dependencies exist and its runners start", func(ctx SpecContext) {
		s := environmenttest.New()
		e := s.Environment("dev")
		Expect(s.ApplyAndReconcile(ctx, e)).To(Equal(base.MaxRetryInterval))
		Expect(State(e)).To(Equal("Ready=False/ProjectMissing Reconciling"))

		project := s.Project()
		s.ExpectApplied(ctx, project)
		Expect(s.ExpectReconciled(ctx, s.R, e).RequeueAfter).To(Equal(2 * time.Second))
		Expect(State(e)).To(Equal("Ready=Unknown/Progressing Reconciling"))
		Expect(s.Children(ctx, e.UID)).To(BeEmpty(), "no pod before the network is there")
		Expect(s.Row(ctx, e).Slug).To(Equal("dev"), "connectors and links may be in effect already")

		project.MarkNetworkReady()
		s.ExpectStatus(ctx, project)
		Expect(s.ExpectReconciled(ctx, s.R, e).RequeueAfter).To(Equal(base.MaxRetryInterval))
		Expect(State(e)).To(Equal("Ready=False/RunnersStarting Reconciling"))
		Expect(Message(e)).To(Equal("0 of 1 runners ready"))
		Expect(s.Children(ctx, e.UID)).To(ConsistOf(environmenttest.ChildrenOfDev))
		Expect(e.Status.Runner.Selector).To(ContainSubstring("agentplatform.dev/environment=dev"))

		s.StartRunners(ctx, e, 1)
		Expect(s.ExpectReconciled(ctx, s.R, e).RequeueAfter).To(BeZero())
		Expect(State(e)).To(Equal("Ready=True/Succeeded observed"))
		Expect(e.Status.IsTrue(v1alpha1.ConditionRunnersReady)).To(BeTrue())
		Expect(e.Status.Runner.ReadyReplicas).To(BeEquivalentTo(1))
		Expect(e.Status.Default).To(BeTrue(), "it was the first")
		Expect(s.ExpectAtRest(ctx, s.R, e).RequeueAfter).To(BeZero())

		By("a new configuration without an observed state")
		e.Spec.Runner.Concurrency = 7
		s.ApplyAndReconcile(ctx, e)
		Expect(State(e)).To(Equal("Ready=False/RunnersStarting Reconciling"))
		s.StartRunners(ctx, e, 1)
		s.ExpectReconciled(ctx, s.R, e)
		Expect(State(e)).To(Equal("Ready=True/Succeeded observed"))

		By("staying ready while the store is unavailable")
		s.Store.GoAway()
		s.ExpectReconcileFails(ctx, s.R, e)
		Expect(State(e)).To(Equal("Ready=True/Succeeded Reconciling observed"))
		s.Store.ComeBack()

		By("being suspended")
		pool := s.Pool(ctx, e)
		e.Spec.Suspend, e.Spec.Runner.Concurrency = true, 9
		Expect(s.ApplyAndReconcile(ctx, e)).To(BeZero())
		Expect(State(e)).To(Equal("Ready=True/Suspended observed"))
		Expect(s.Pool(ctx, e).ResourceVersion).To(Equal(pool.ResourceVersion), "the pods stay as they are")
		s.ExpectAtRest(ctx, s.R, e)
		e.Spec.Suspend = false
		s.ApplyAndReconcile(ctx, e)
		Expect(State(e)).To(Equal("Ready=False/RunnersStarting Reconciling"))

		By("losing its project")
		s.ExpectGone(ctx, project)
		s.ExpectReconciled(ctx, s.R, e)
		Expect(State(e)).To(Equal("Ready=False/ProjectMissing Reconciling"))
	})

	It("reports why its runners do not start", func(ctx SpecContext) {
		s := environmenttest.NewWithProject(ctx)
		e := s.Environment("dev")
		s.ApplyAndReconcile(ctx, e)
		pod := s.CreatePod(ctx, e, corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "runner", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}},
		}}})
		s.ExpectReconciled(ctx, s.R, e)
		Expect(State(e)).To(Equal("Ready=False/RunnersFailing Reconciling"))
		Expect(Message(e)).To(ContainSubstring("no such image"))
		Expect(e.Status.Condition(v1alpha1.ConditionRunnersReady).Reason).To(Equal(v1alpha1.ReasonRunnersFailing))
		s.ExpectGone(ctx, pod)

		pool := s.Pool(ctx, e)
		pool.Status = appsv1.DeploymentStatus{ObservedGeneration: pool.Generation, Conditions: []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota: pods",
		}}}
		s.ExpectStatus(ctx, pool)
		s.ExpectReconciled(ctx, s.R, e)
		Expect(State(e)).To(Equal("Ready=False/RunnersFailing Reconciling"))
		Expect(Message(e)).To(ContainSubstring("exceeded quota: pods"))
		s.StartRunners(ctx, e, 1)
		s.ExpectReconciled(ctx, s.R, e)
		Expect(State(e)).To(Equal("Ready=True/Succeeded observed"))
	})

	It("is stalled if the plan does not allow it, and has no pool", func(ctx SpecContext) {
		s := environmenttest.NewWithProject(ctx)
		e := s.Environment("dev", func(e *v1alpha1.Environment) {
			e.Spec.Runner.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64")}
		})
		Expect(s.ApplyAndReconcile(ctx, e)).To(BeZero(), "the plan is watched")
		Expect(State(e)).To(Equal("Ready=False/NotAllowed Stalled observed"))
		Expect(s.Children(ctx, e.UID)).To(BeEmpty())
		e.Spec.Runner.Resources.Limits = nil
		s.ApplyAndReconcile(ctx, e)
		Expect(State(e)).To(Equal("Ready=False/RunnersStarting Reconciling"))
	})

	It("waits for the slug of an older one, and gets it after a deletion", func(ctx SpecContext) {
		s := environmenttest.NewWithProject(ctx)
		first := s.Environment("dev")
		second := s.Environment("other", func(e *v1alpha1.Environment) { e.Spec.DisplayName = "Dev" })
		s.ApplyAndReconcile(ctx, first)
		Expect(s.ApplyAndReconcile(ctx, second)).To(Equal(base.MaxRetryInterval))
		Expect(State(second)).To(Equal("Ready=False/SlugTaken Stalled observed"))
		Expect(second.Status.Slug).To(BeEmpty())
		Expect(s.Children(ctx, second.UID)).To(BeEmpty())

		s.ExpectDeleted(ctx, s.R, first)
		Expect(s.Queued()).To(Equal([]string{"other"}))
		_, err := s.Store.Environment(ctx, s.Key(first))
		Expect(err).To(MatchError(store.ErrNotFound))
		s.ExpectReconciled(ctx, s.R, second)
		Expect(State(second)).To(Equal("Ready=False/RunnersStarting Reconciling observed"))
		Expect(second.Status.Slug).To(Equal("dev"))
	})

	It("waits for the limit of environments, and starts after a deletion", func(ctx SpecContext) {
		s := environmenttest.NewWithProject(ctx, func(p *v1alpha1.Project) { p.Spec.Limits.Environments = ptr.To(int32(1)) })
		first, second := s.Environment("dev"), s.Environment("second")
		s.ApplyAndReconcile(ctx, first)
		Expect(s.ApplyAndReconcile(ctx, second)).To(Equal(base.MaxRetryInterval))
		Expect(State(second)).To(Equal("Ready=False/LimitReached Stalled observed"))
		Expect(second.Status.ID).To(BeEmpty(), "it is not in effect")
		s.ExpectDeleted(ctx, s.R, first)
		Expect(s.Queued()).To(Equal([]string{"second"}))
		s.ExpectReconciled(ctx, s.R, second)
		Expect(second.Status.ID).To(Equal(s.Key(second).ID.String()))
		Expect(v1alpha1.IsStalled(second)).To(BeFalse())
	})

	It("shows its live deployment, and whether it is the default", func(ctx SpecContext) {
		s := environmenttest.NewWithProject(ctx)
		first := s.ExpectReady(ctx, s.Environment("dev"))
		second := s.ExpectReady(ctx, s.Environment("prod"))
		Expect(second.Status.Default).To(BeFalse())
		Expect(second.Status.Condition(v1alpha1.ConditionDeploymentLive).Message).To(HavePrefix("no deployment is live"))
		Expect(Message(second)).To(Equal("in effect; runs wait until a deployment is live"), "which is Ready all the same")
		live := s.ExpectLive(ctx, second, "v1", "hello")
		s.ExpectReconciled(ctx, s.R, second)
		Expect(second.Status.Condition(v1alpha1.ConditionDeploymentLive).Message).To(Equal(`Deployment "v1" is live`))
		Expect(second.Status.IsTrue(v1alpha1.ConditionDeploymentLive)).To(BeTrue())
		Expect(State(second)).To(Equal("Ready=True/Succeeded observed"))
		Expect(Message(second)).To(Equal("in effect"))
		Expect(second.Status.LiveDeployment).To(Equal("v1"))
		Expect(second.Status.LiveDeploymentID).To(Equal(live.ID.String()))
		s.ExpectAtRest(ctx, s.R, second)

		project := s.Project()
		s.ExpectExists(ctx, project)
		project.Spec.DefaultEnvironment = "prod"
		s.ExpectApplied(ctx, project)
		for _, e := range []*v1alpha1.Environment{first, second} {
			s.ExpectReconciled(ctx, s.R, e)
			Expect(e.Status.Default).To(Equal(e.Name == "prod"), e.Name)
		}
		project.Spec.DefaultEnvironment = "not-there"
		s.ExpectApplied(ctx, project)
		for _, e := range []*v1alpha1.Environment{first, second} {
			s.ExpectReconciled(ctx, s.R, e)
			Expect(e.Status.Default).To(Equal(e.Name == "dev"), e.Name)
		}
	})

	It("polls plans that it may not watch", func(ctx SpecContext) {
		s := environmenttest.NewWithProject(ctx)
		s.Namespaces = []string{s.Namespace}
		e := s.ExpectReady(ctx, s.Environment("dev"))
		Expect(s.ExpectAtRest(ctx, s.R, e).RequeueAfter).To(Equal(30 * time.Second))
	})
})

func TestEnvironment_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "environment")
}
