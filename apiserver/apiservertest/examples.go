// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// Upload is a body that starts like a gzip archive. The facade does not read further.
const Upload = "\x1f\x8b {an archive}"

// Endpoints are all endpoints of the facade.
var Endpoints = func() (out []rest.Endpoint) {
	for _, section := range (&apiserver.Server{}).Sections() {
		out = append(out, section.Endpoints()...)
	}
	return out
}()

// Placeholder matches a placeholder in the path of an example.
var Placeholder = regexp.MustCompile(`\{[a-z_]+\}`)

// FillPath replaces the placeholders in the path of an example by IDs.
func FillPath(t testing.TB, example string, ids map[string]string) string {
	t.Helper()
	return Placeholder.ReplaceAllStringFunc(example, func(name string) string {
		id, known := ids[strings.Trim(name, "{}")]
		require.True(t, known, "%s in %s", name, example)
		return id
	})
}

// RandomPath returns the path of an endpoint with random IDs.
func RandomPath(e rest.Endpoint) string {
	path := e.Path
	if e.IsSupported() {
		path = e.Example.Path
	}
	return Placeholder.ReplaceAllStringFunc(path, func(string) string { return uuid.NewString() })
}

// AcceptedBody returns a body that the endpoint accepts, or any body for unsupported endpoints.
func AcceptedBody(e rest.Endpoint) string {
	if e.IsSupported() || e.Method == rest.Get {
		return ExampleBody(e)
	}
	return `{"nonsense":true}`
}

// ExampleBody returns the body of an endpoint's example.
func ExampleBody(e rest.Endpoint) string {
	if e.Upload != nil {
		return Upload
	}
	return e.Example.Body
}

// SupportedEndpoints returns the supported endpoints.
func SupportedEndpoints(t testing.TB) (out []rest.Endpoint) {
	t.Helper()
	for _, e := range Endpoints {
		if e.IsSupported() {
			out = append(out, e)
		}
	}
	require.NotEmpty(t, out)
	return out
}

// NewObjects creates a connector, a link, runs and other objects that no call has changed. It returns their IDs and the
// IDs of the objects of the project.
func (p *ProjectWithHistory) NewObjects(t testing.TB) map[string]string {
	t.Helper()
	name := "fresh-" + uuid.NewString()[:8]
	conn := &v1alpha1.Connector{ObjectMeta: p.Meta(name), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
	p.Create(t, conn)
	link := &v1alpha1.ConnectorLink{ObjectMeta: p.Meta(name), Spec: v1alpha1.ConnectorLinkSpec{
		Connector: v1alpha1.ConnectorName(name), Agent: "hello",
	}}
	p.Create(t, link)
	ids := maps.Clone(p.IDs)
	ids["connector"], ids["link"] = conn.Status.ID, link.Status.ID
	require.NoError(t, p.Store.PutConnector(t.Context(), store.Connector{
		Ref: p.StoredRef(t, store.KindConnector, name), ID: uuid.MustParse(conn.Status.ID), ProjectID: p.ProjectID,
		EnvironmentID: p.ObjectID(t, "environment"), Name: name, Type: "webhook", Mode: "inbound", Enabled: true, Config: []byte("{}"),
	}))
	ids["receiver"] = p.CreateReceiver(t, name+"-receiver").ID.String()
	spare := &v1alpha1.Environment{ObjectMeta: p.Meta(name)}
	p.Create(t, spare)
	ids["spare_environment"] = spare.Status.ID
	ids["failed_deployment"] = p.FailedDeployment(t).String()
	ids["open_deployment"] = p.OpenDeployment(t).String()
	tested := &v1alpha1.Environment{ObjectMeta: p.Meta(name + "-test"), Spec: v1alpha1.EnvironmentSpec{Kind: v1alpha1.EnvironmentTest}}
	p.Create(t, tested)
	ids["test_environment"] = tested.Status.ID
	open, _ := p.AcceptEvent(t, "hello")
	ids["open_run"], ids["replay"] = open.String(), p.StartReplay(t)
	ended, _ := p.AcceptEvent(t, "hello")
	require.NoError(t, p.Store.Cancel(t.Context(), store.Key{ProjectID: p.ProjectID, ID: ended}, runerror.Cancelled, "over"))
	ids["ended_run"] = ended.String()
	return ids
}
