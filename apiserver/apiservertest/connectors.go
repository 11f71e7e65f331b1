// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
)

// CreateConnector creates an inbound connector in the environment production.
func (p *Project) CreateConnector(t testing.TB, name string, change func(*v1alpha1.Connector)) *v1alpha1.Connector {
	t.Helper()
	conn := &v1alpha1.Connector{ObjectMeta: p.Meta(name), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
	if change != nil {
		change(conn)
	}
	p.Create(t, conn)
	return conn
}

// GetConnector reads a connector by REST.
func (p *Project) GetConnector(t testing.TB, key string, conn *v1alpha1.Connector) connectors.Connector {
	t.Helper()
	status, body := p.Call(t, key, http.MethodGet, "/connectors/"+conn.Status.ID, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	return Decode[connectors.Connector](t, body)
}

// ConnectorObject reads the Connector with an ID from Kubernetes.
func (p *Project) ConnectorObject(t testing.TB, id string) *v1alpha1.Connector {
	t.Helper()
	var list v1alpha1.ConnectorList
	require.NoError(t, p.Client.List(t.Context(), &list, client.InNamespace(p.Namespace), client.MatchingFields{"spec.id": id}))
	require.Len(t, list.Items, 1)
	return &list.Items[0]
}

// CreateOutboundConnector creates an outbound connector by REST.
func (p *Project) CreateOutboundConnector(t *testing.T, key, name, config string) connectors.Connector {
	t.Helper()
	status, body := p.Call(t, key, http.MethodPost, "/connectors?environment_id="+p.EnvironmentID("production"),
		`{"name":"`+name+`","type":"webhook","mode":"outbound","config":`+config+`}`)
	require.Equal(t, http.StatusCreated, status, string(body))
	return Decode[connectors.Connector](t, body)
}
