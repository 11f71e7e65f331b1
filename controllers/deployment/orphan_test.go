// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
)

// environmentGone deletes the environment and its row, like its controller.
func (s *scene) environmentGone(ctx context.Context) {
	GinkgoHelper()
	s.ExpectGone(ctx, s.environment)
	Expect(s.Store.Remove(ctx, s.Key(s.environment).ProjectID, s.Ref(s.environment))).To(Succeed())
}

var _ = Describe("A Deployment of a deleted Environment", func() {
	It("is cancelled during its build, and its Job is deleted", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		job := s.job(ctx, d)

		By("deleting the object before the row")
		s.ExpectGone(ctx, s.environment)
		Expect(s.ExpectReconciled(ctx, s.r, d).RequeueAfter).To(Equal(2 * time.Second))
		Expect(State(d)).To(Equal("Ready=False/ReferenceMissing Reconciling"))
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentBuilding))

		By("cancelling it in the store")
		Expect(s.Store.Remove(ctx, s.Key(s.environment).ProjectID, s.Ref(s.environment))).To(Succeed())
		Expect(s.ExpectReconciled(ctx, s.r, d).RequeueAfter).To(BeZero())
		Expect(State(d)).To(Equal("Ready=True/Cancelled observed"))
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentCancelled))
		Expect(d.Status.Message).To(Equal("the environment was deleted"))
		s.ExpectNotFound(ctx, job)
		s.ExpectAtRest(ctx, s.r, d)
	})

	It("waits if the store does not have it, because both may come back from a backup", func(ctx SpecContext) {
		s := bare()
		s.project = s.ExpectProject(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		d.Status.Phase, d.Status.Live = v1alpha1.DeploymentDeployed, true
		s.ExpectStatus(ctx, d)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=False/ReferenceMissing Reconciling"))
		Expect(d.Status.Live).To(BeTrue())
		Expect(s.ExpectAtRest(ctx, s.r, d).RequeueAfter).To(BeZero(), "the environment wakes it")
	})

	It("is deleted after a while if the platform created it, and stays otherwise", func(ctx SpecContext) {
		s := newScene(ctx)
		ours := func(d *v1alpha1.Deployment) {
			d.Labels = map[string]string{base.LabelManagedBy: base.ManagedBy}
		}
		failed := s.reconciled(ctx, s.Deployment("failed", ours))
		s.failed(ctx, s.job(ctx, failed), "", "it broke")
		s.ExpectReconciled(ctx, s.r, failed)
		made, kept := s.deployed(ctx, s.Deployment("made", ours)), s.deployed(ctx, s.Deployment("kept"))
		s.environmentGone(ctx)

		Expect(s.ExpectAtRest(ctx, s.r, kept).RequeueAfter).To(BeZero())
		Expect(State(kept)).To(Equal("Ready=True/Succeeded observed"))
		Expect(kept.Status.Live).To(BeFalse())
		for _, d := range []*v1alpha1.Deployment{made, failed} {
			after := s.ExpectReconciled(ctx, s.r, d).RequeueAfter
			Expect(after).To(And(BeNumerically(">", 9*time.Minute), BeNumerically("<=", 10*time.Minute)))
			Expect(State(d)).To(Equal("Ready=Unknown/EnvironmentGone Reconciling observed"))
			Expect(d.Status.Phase.Terminal()).To(BeTrue())
		}

		By("a restored environment finds it")
		s.environment = s.ExpectEnvironment(ctx, "dev")
		Expect(s.ExpectReconciled(ctx, s.r, made).RequeueAfter).To(BeZero())
		Expect(State(made)).To(Equal("Ready=True/Succeeded observed"))
		s.ExpectReconciled(ctx, s.r, kept)
		Expect(s.live(ctx)).To(Equal("kept"))

		By("deleting it without one")
		s.environmentGone(ctx)
		s.ExpectReconciled(ctx, s.r, made)
		s.ExpectGone(ctx, s.project) // which deletes all its rows
		s.ExpectAtRest(ctx, s.r, made)
		s.Clock.SetTime(made.Status.Condition(v1alpha1.ConditionReconciling).LastTransitionTime.Add(10 * time.Minute))
		for _, d := range []*v1alpha1.Deployment{made, failed} {
			_, err := s.r.Reconcile(ctx, s.Request(d))
			Expect(err).NotTo(HaveOccurred())
			s.ExpectNotFound(ctx, d)
			Expect(s.outcome(ctx, d).Status.Terminal()).To(BeTrue(), "what became of it stays in the store")
		}
		s.ExpectReconciled(ctx, s.r, kept)
		Expect(State(kept)).To(Equal("Ready=True/Succeeded observed"))
	})

	It("is cancelled during its build, even if the Project was deleted first", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		job := s.job(ctx, d)
		s.ExpectGone(ctx, s.project)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(ContainSubstring("ProjectMissing"))
		s.ExpectExists(ctx, job)
		s.environmentGone(ctx)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=True/Cancelled observed"))
		s.ExpectNotFound(ctx, job)
		s.ExpectAtRest(ctx, s.r, d)
	})
})
