// SPDX-License-Identifier: Apache-2.0

package connector_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/connector"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

func TestConnector_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "connector")
}

// scene is a project with the environment "dev" and a reconciler of connectors.
type scene struct {
	*Fixture
	r *connector.Reconciler
}

func newScene(ctx context.Context) *scene {
	GinkgoHelper()
	s := bare()
	s.ExpectProject(ctx)
	s.ExpectEnvironment(ctx, "dev")
	return s
}

// bare returns an empty namespace.
func bare() *scene {
	GinkgoHelper()
	f := New()
	return &scene{Fixture: f, r: &connector.Reconciler{
		Base: f.Base, Store: f.Store, Keys: f.Keys, Damper: &connector.ReportDamper{}, GatewayURL: "https://hooks.example.com/",
	}}
}

// reconciled applies a connector and reconciles it.
func (s *scene) reconciled(ctx context.Context, c *v1alpha1.Connector) *v1alpha1.Connector {
	GinkgoHelper()
	s.ExpectApplied(ctx, c)
	s.ExpectReconciled(ctx, s.r, c)
	return c
}

// row returns the row that the gateway reads.
func (s *scene) row(ctx context.Context, c *v1alpha1.Connector) store.Connector {
	GinkgoHelper()
	row, err := s.Store.Connector(ctx, s.Key(c))
	Expect(err).NotTo(HaveOccurred())
	return row
}

// shown returns the secret in the child Secret.
func (s *scene) shown(ctx context.Context, c *v1alpha1.Connector) string {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: s.At(c.Name + "-connector")}
	s.ExpectExists(ctx, secret)
	return string(secret.Data[secrets.PurposeSecret])
}
