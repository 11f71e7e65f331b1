// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
)

// replacedBy re-creates a deployment just before a reconciler writes its status, and returns the new
// object.
func (s *scene) replacedBy(ctx context.Context, r reconcile.Reconciler, d *v1alpha1.Deployment) *v1alpha1.Deployment {
	GinkgoHelper()
	anew := s.Deployment(d.Name)
	s.Cluster.Fail(func(c Call) error {
		if c.Verb == "patch status" && anew.UID == "" {
			s.ExpectGone(ctx, d)
			s.ExpectApplied(ctx, anew)
		}
		return nil
	})
	_, err := r.Reconcile(ctx, s.Request(d))
	Expect(err).NotTo(HaveOccurred())
	s.Cluster.Fail(nil)
	s.ExpectExists(ctx, anew)
	Expect(anew.UID).NotTo(Or(BeEmpty(), Equal(d.UID)))
	return anew
}

var _ = Describe("A Deployment that is re-created while the earlier one is reconciled", func() {
	It("gets no status of the earlier one", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		s.ExpectBuilt(ctx, s.Key(d), "hello")
		anew := s.replacedBy(ctx, s.r, d)
		Expect(anew.Status.Phase).To(BeEmpty())
		Expect(anew.Status.Conditions).To(BeEmpty())
	})

	It("gets no commit status of the earlier one", func(ctx SpecContext) {
		p := newProvider(ctx, map[string]string{"bearerToken": reportToken})
		d := p.Deployment("one")
		p.at(ctx, d, v1alpha1.DeploymentBuilding)
		d.Status.CommitStatus = nil
		p.ExpectStatus(ctx, d)
		anew := p.replacedBy(ctx, p.reporter, d)
		Expect(anew.Status.CommitStatus).To(BeNil())
	})
})
