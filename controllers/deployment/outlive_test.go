// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
)

// environmentGone deletes the environment, also from the store, as its controller does.
func (s *scene) environmentGone(ctx context.Context) {
	GinkgoHelper()
	s.ExpectGone(ctx, s.environment)
	Expect(s.Store.Remove(ctx, s.Key(s.environment).ProjectID, s.Ref(s.environment))).To(Succeed())
}

var _ = Describe("A Deployment whose Environment is deleted", func() {
	It("is cancelled while it is built, and its Job goes", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		job := s.job(ctx, d)

		By("the object is gone, and the store does not know yet")
		s.ExpectGone(ctx, s.environment)
		Expect(s.ExpectReconciled(ctx, s.r, d).RequeueAfter).To(Equal(2 * time.Second))
		Expect(State(d)).To(Equal("Ready=False/ReferenceMissing Reconciling"))
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentBuilding))

		By("the store has cancelled it")
		Expect(s.Store.Remove(ctx, s.Key(s.environment).ProjectID, s.Ref(s.environment))).To(Succeed())
		Expect(s.ExpectReconciled(ctx, s.r, d).RequeueAfter).To(BeZero())
		Expect(State(d)).To(Equal("Ready=True/Cancelled observed"))
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentCancelled))
		Expect(d.Status.Message).To(Equal("the environment was deleted"))
		s.ExpectNotFound(ctx, job)
		s.ExpectAtRest(ctx, s.r, d)
	})

	It("waits where the store does not know it, for both may come back from a backup", func(ctx SpecContext) {
		s := bare()
		s.project = s.ExpectProject(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		d.Status.Phase, d.Status.Live = v1alpha1.DeploymentDeployed, true
		s.ExpectStatus(ctx, d)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=False/ReferenceMissing Reconciling"))
		Expect(d.Status.Live).To(BeTrue())
	})
})
