// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/controllers/project"
	"github.com/agentplatform/agentplatform/internal/egress"
)

func TestProject_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "project")
}

// certificate is the Secret with the certificate of the dispatch port.
const certificate = "dispatch-tls"

// scene is a namespace with a reconciler of projects. The platform uses the same namespace.
type scene struct {
	*controllertest.Fixture
	r *project.Reconciler
}

func newScene() *scene {
	GinkgoHelper()
	f := controllertest.New()
	rules, err := egress.Flags{Allow: "git=10.20.0.0/16,model=10.0.0.0/8"}.Rules()
	Expect(err).NotTo(HaveOccurred())
	return &scene{Fixture: f, r: &project.Reconciler{Base: f.Base, Store: f.Store, Keys: f.Keys, GatewayURL: "https://hooks.example.com/", Network: project.Network{
		SystemNamespace: f.Namespace, DispatchTLSSecret: certificate, Egress: rules,
	}}}
}

// children are the children of a project.
var children = []string{"NetworkPolicy agentplatform-build", "NetworkPolicy agentplatform-runner", "ConfigMap agentplatform-dispatch-ca"}
