// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/plan"
)

// allow writes the plan of the team's project, like an operator.
func (t *team) allow(ctx context.Context, text string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}
	Expect(t.client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
	before := namespace.DeepCopy()
	namespace.Annotations = map[string]string{plan.Annotation: text}
	Expect(t.client.Patch(ctx, namespace, client.MergeFrom(before))).To(Succeed())
}

// stalled waits until an object is stalled for a reason, and returns the message.
func (t *team) stalled(ctx context.Context, o v1alpha1.ConditionedObject, reason string) string {
	GinkgoHelper()
	t.eventually(ctx, o.(client.Object), func() bool {
		stalled := o.CommonStatus().Condition(v1alpha1.ConditionStalled)
		return stalled != nil && stalled.Reason == reason
	})
	return o.CommonStatus().Condition(v1alpha1.ConditionStalled).Message
}

// absent reports whether an object does not exist.
func (t *team) absent(ctx context.Context, o client.Object) {
	GinkgoHelper()
	err := t.client.Get(ctx, client.ObjectKeyFromObject(o), o)
	Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%T %s is there: %v", o, o.GetName(), err)
}

var _ = Describe("The plan of a project", func() {
	It("limits the environments in effect, and admits the next one after a deletion", func(ctx SpecContext) {
		t := start().empty()
		t.allow(ctx, "environments: 1")
		t.populate(ctx)
		DeferCleanup(t.clear)
		first := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		t.eventually(ctx, first, func() bool { return first.Status.ID != "" })
		project := &v1alpha1.Project{ObjectMeta: t.at("project")}
		t.eventually(ctx, project, func() bool { return ptr.Deref(project.Status.Limits.Environments, 0) == 1 })

		second, third := &v1alpha1.Environment{ObjectMeta: t.at("second")}, &v1alpha1.Environment{ObjectMeta: t.at("third")}
		Expect(t.client.Create(ctx, second)).To(Succeed())
		Expect(t.stalled(ctx, second, v1alpha1.ReasonLimitReached)).To(ContainSubstring("the project has reached its limit of 1 environments"))
		Expect(t.client.Create(ctx, third)).To(Succeed())
		t.stalled(ctx, third, v1alpha1.ReasonLimitReached)
		waiting := t.deployTo(ctx, "v1", "second")
		t.eventually(ctx, waiting, func() bool {
			reconciling := waiting.Status.Condition(v1alpha1.ConditionReconciling)
			return reconciling != nil && reconciling.Message == `Environment "second" is not in effect yet; see its conditions`
		})
		Expect(second.Status.ID).To(BeEmpty())
		t.absent(ctx, &appsv1.Deployment{ObjectMeta: t.at("second-runner")})
		t.absent(ctx, &batchv1.Job{ObjectMeta: t.at("v1-build")})

		By("admitting the next one without a change of it")
		Expect(t.client.Delete(ctx, first)).To(Succeed())
		t.eventually(ctx, second, func() bool { return second.Status.ID != "" && !v1alpha1.IsStalled(second) })
		t.eventually(ctx, &appsv1.Deployment{ObjectMeta: t.at("second-runner")}, func() bool { return true })
		t.eventually(ctx, &batchv1.Job{ObjectMeta: t.at("v1-build")}, func() bool { return true })
		t.stalled(ctx, third, v1alpha1.ReasonLimitReached)

		By("raising the limit")
		t.allow(ctx, "environments: 2")
		t.eventually(ctx, third, func() bool { return third.Status.ID != "" && !v1alpha1.IsStalled(third) })

		By("lowering it in the project")
		Expect(t.client.Get(ctx, client.ObjectKeyFromObject(project), project)).To(Succeed())
		before := project.DeepCopy()
		project.Spec.Limits.Environments = ptr.To(int32(1))
		Expect(t.client.Patch(ctx, project, client.MergeFrom(before))).To(Succeed())
		t.stalled(ctx, third, v1alpha1.ReasonLimitReached)
		Expect(third.Status.ID).NotTo(BeEmpty(), "the environment stays in effect")
		Expect(t.client.Get(ctx, client.ObjectKeyFromObject(project), project)).To(Succeed())
		before = project.DeepCopy()
		project.Spec.Limits.Environments = ptr.To(int32(1000))
		Expect(t.client.Patch(ctx, project, client.MergeFrom(before))).To(Succeed())
		t.eventually(ctx, third, func() bool { return !v1alpha1.IsStalled(third) })
		t.eventually(ctx, project, func() bool { return ptr.Deref(project.Status.Limits.Environments, 0) == 2 })
	}, SpecTimeout(2*time.Minute))

	It("blocks pods that it does not allow, until it allows them", func(ctx SpecContext) {
		t := start().team(ctx)
		DeferCleanup(t.clear)
		toleration := corev1.Toleration{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists}
		sensitive := &v1alpha1.Environment{ObjectMeta: t.at("sensitive"), Spec: v1alpha1.EnvironmentSpec{Runner: v1alpha1.RunnerPool{
			Tolerations: []corev1.Toleration{toleration}, NodeSelector: map[string]string{"pool": "agents"},
			ImagePullSecrets: []v1alpha1.SecretReference{{Name: "registry"}},
		}}}
		Expect(t.client.Create(ctx, sensitive)).To(Succeed())
		version := t.deployTo(ctx, "v1", "sensitive")
		message := t.stalled(ctx, sensitive, v1alpha1.ReasonNotAllowed)
		Expect(message).To(HavePrefix(`spec.runner.tolerations[0]: "node-role.kubernetes.io/control-plane" is not allowed; the plan allows: none`))
		t.eventually(ctx, version, func() bool { return version.Status.Condition(v1alpha1.ConditionReconciling) != nil })
		t.absent(ctx, &appsv1.Deployment{ObjectMeta: t.at("sensitive-runner")})
		t.absent(ctx, &batchv1.Job{ObjectMeta: t.at("v1-build")})

		t.allow(ctx, "runner: {tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]}")
		pool, job := &appsv1.Deployment{ObjectMeta: t.at("sensitive-runner")}, &batchv1.Job{ObjectMeta: t.at("v1-build")}
		t.eventually(ctx, pool, func() bool { return true })
		t.eventually(ctx, job, func() bool { return true })
		for _, spec := range []corev1.PodSpec{pool.Spec.Template.Spec, job.Spec.Template.Spec} {
			Expect(spec.Tolerations).To(Equal([]corev1.Toleration{toleration}))
			Expect(spec.NodeSelector).To(HaveKeyWithValue("pool", "agents"))
			Expect(spec.ImagePullSecrets).To(HaveLen(1))
			for _, c := range append(spec.InitContainers, spec.Containers...) {
				Expect(c.Resources.Limits.Memory().String()).To(Equal("512Mi"), c.Name)
				Expect(c.Resources.Limits.Cpu().String()).To(Equal("1"), c.Name)
				Expect(c.Resources.Requests.Memory().IsZero()).To(BeFalse(), c.Name)
			}
		}
	}, SpecTimeout(2*time.Minute))

	It("is reported if it is invalid, and the platform's plan applies", func(ctx SpecContext) {
		t := start().empty()
		t.allow(ctx, "environment: 1")
		t.populate(ctx)
		DeferCleanup(t.clear)
		project := &v1alpha1.Project{ObjectMeta: t.at("project")}
		t.eventually(ctx, project, func() bool { return project.Status.IsTrue(v1alpha1.ConditionPlanInvalid) && v1alpha1.IsReady(project) })
		message := project.Status.Condition(v1alpha1.ConditionPlanInvalid).Message
		Expect(message).To(ContainSubstring(`agentplatform.dev/plan`))
		Expect(message).To(ContainSubstring(`unknown field "environment"`))
		Expect(project.Status.Limits.Environments).To(HaveValue(BeEquivalentTo(20)))
		Eventually(ctx, func() []string {
			events := &eventsv1.EventList{}
			Expect(t.client.List(ctx, events, client.InNamespace(t.namespace))).To(Succeed())
			var reasons []string
			for _, e := range events.Items {
				reasons = append(reasons, e.Regarding.Kind+" "+e.Reason)
			}
			return reasons
		}).WithTimeout(30 * time.Second).Should(ContainElement("Project " + v1alpha1.ReasonInvalidPlan))

		t.allow(ctx, "environments: 3")
		t.eventually(ctx, project, func() bool {
			return project.Status.Condition(v1alpha1.ConditionPlanInvalid) == nil && ptr.Deref(project.Status.Limits.Environments, 0) == 3
		})
	}, SpecTimeout(time.Minute))
})
