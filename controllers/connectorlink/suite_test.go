// SPDX-License-Identifier: Apache-2.0

package connectorlink_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/connectorlink"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
)

func TestConnectorLink_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "connectorlink")
}

// scene is a project with the environment "dev", its connector "ask", and a reconciler of links.
type scene struct {
	*Fixture
	r           *connectorlink.Reconciler
	environment *v1alpha1.Environment
	connector   *v1alpha1.Connector
}

func bare() *scene {
	GinkgoHelper()
	f := New()
	return &scene{Fixture: f, r: &connectorlink.Reconciler{Base: f.Base, Store: f.Store}}
}

func newScene(ctx context.Context) *scene {
	GinkgoHelper()
	s := bare()
	s.ExpectProject(ctx)
	s.environment = s.ExpectEnvironment(ctx, "dev")
	s.connector = s.Connector("ask")
	s.ExpectConnector(ctx, s.connector)
	return s
}

// agents returns the agents that the gateway starts for an event of "ask".
func (s *scene) agents(ctx context.Context) []string {
	GinkgoHelper()
	route, err := s.Store.Route(ctx, s.Key(s.connector))
	Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, l := range route.Links {
		names = append(names, l.AgentName)
	}
	return names
}
