// SPDX-License-Identifier: Apache-2.0

package apikey_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/apikey"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/store"
)

func TestAPIKey_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "apikey")
}

// scene is a namespace with a reconciler of API keys.
type scene struct {
	*Fixture
	r *apikey.Reconciler
}

func newScene() *scene {
	GinkgoHelper()
	f := New()
	return &scene{Fixture: f, r: &apikey.Reconciler{Base: f.Base, Audit: f.Store}}
}

// key returns an API key that Anna owns.
func (s *scene) key(name string, changes ...func(*v1alpha1.APIKey)) *v1alpha1.APIKey {
	made := keys.Generate()
	k := &v1alpha1.APIKey{ObjectMeta: s.At(name), Spec: v1alpha1.APIKeySpec{
		Hash: made.Hash(), KeyID: made.ID(), Owner: v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "anna"},
	}}
	for _, change := range changes {
		change(k)
	}
	return k
}

// reconciled applies a key, reconciles it and returns the time until the next reconcile.
func (s *scene) reconciled(ctx context.Context, k *v1alpha1.APIKey) time.Duration {
	GinkgoHelper()
	s.ExpectApplied(ctx, k)
	return s.ExpectReconciled(ctx, s.r, k).RequeueAfter
}

// told returns the operations in the audit log, oldest first.
func (s *scene) told(ctx context.Context) (operations []string) {
	GinkgoHelper()
	entries, err := s.Store.ListAudit(ctx, store.AuditQuery{ProjectID: s.ProjectID(s.Namespace), Limit: 100})
	Expect(err).NotTo(HaveOccurred())
	for _, e := range entries {
		operations = append([]string{e.Operation + " " + e.Object.Name}, operations...)
	}
	return operations
}
