// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
)

var _ = Describe("The network of a Project", func() {
	It("is repaired after a user deletes or changes it", func(ctx SpecContext) {
		s := newScene()
		p := s.ready(ctx)
		for _, name := range []string{"agentplatform-build", "agentplatform-runner"} {
			policy := &networkingv1.NetworkPolicy{ObjectMeta: s.At(name)}
			s.ExpectExists(ctx, policy)
			want := policy.DeepCopy()
			policy.Spec.Egress, policy.Labels = nil, nil
			s.ExpectApplied(ctx, policy)
			s.ExpectReconciled(ctx, s.r, p)
			s.ExpectExists(ctx, policy)
			Expect(policy.Spec).To(Equal(want.Spec), name)
			Expect(policy.Labels).To(Equal(want.Labels), name)

			s.ExpectGone(ctx, policy)
			s.ExpectReconciled(ctx, s.r, p)
			policy = &networkingv1.NetworkPolicy{ObjectMeta: s.At(name)}
			s.ExpectExists(ctx, policy)
			Expect(policy.Spec).To(Equal(want.Spec), name)
		}
		trusted := &corev1.ConfigMap{ObjectMeta: s.At(base.DispatchCA)}
		s.ExpectExists(ctx, trusted)
		trusted.Data[base.DispatchCAKey] = "a stranger's"
		s.ExpectApplied(ctx, trusted)
		s.ExpectReconciled(ctx, s.r, p)
		s.ExpectExists(ctx, trusted)
		Expect(trusted.Data).To(HaveKeyWithValue(base.DispatchCAKey, "authorities"))
		s.ExpectAtRest(ctx, s.r, p)
	})

	It("trusts the current CA", func(ctx SpecContext) {
		s := newScene()
		p := s.ready(ctx)
		secret := &corev1.Secret{ObjectMeta: s.At(certificate)}
		s.ExpectExists(ctx, secret)
		secret.StringData = map[string]string{base.DispatchCAKey: "other authorities"}
		s.ExpectApplied(ctx, secret)
		s.ExpectReconciled(ctx, s.r, p)
		trusted := &corev1.ConfigMap{ObjectMeta: s.At(base.DispatchCA)}
		s.ExpectExists(ctx, trusted)
		Expect(trusted.Data).To(HaveKeyWithValue(base.DispatchCAKey, "other authorities"))
	})

	It("blocks pods while a foreign policy has the name", func(ctx SpecContext) {
		s := newScene()
		foreign := &networkingv1.NetworkPolicy{ObjectMeta: s.At("agentplatform-runner")}
		p := s.Project()
		s.ExpectApplied(ctx, s.Secret(certificate, nil), foreign, p)
		Expect(s.ExpectReconciled(ctx, s.r, p).RequeueAfter).To(Equal(base.MaxRetryInterval), "it is no watched object")
		Expect(State(p)).To(Equal("Ready=False/NameCollision Stalled observed"))
		Expect(p.Status.Condition(v1alpha1.ConditionNetworkReady).Reason).To(Equal(v1alpha1.ReasonNameCollision))
		s.ExpectGone(ctx, foreign)
		s.ExpectReconciled(ctx, s.r, p)
		Expect(State(p)).To(Equal("Ready=True/Succeeded observed"))
		Expect(p.Status.IsTrue(v1alpha1.ConditionNetworkReady)).To(BeTrue())
	})

	for _, fault := range Faults {
		It("survives "+fault.Name, func(ctx SpecContext) {
			s := newScene()
			p := s.Project()
			s.ExpectApplied(ctx, s.Secret(certificate, map[string]string{base.DispatchCAKey: "authorities"}), p)
			s.ExpectSurvives(ctx, fault, s.r, p, children...)
			Expect(v1alpha1.IsReady(p)).To(BeTrue())
		})
	}
})
