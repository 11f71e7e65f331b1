// SPDX-License-Identifier: Apache-2.0

package connectors_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

func TestCreateConnector_CreatesLink(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	path := "/v1/projects/" + w.ProjectID.String() + "/connectors"
	r := w.Send(t, key, http.MethodPost, path+"?agent_name=hello&environment_id="+w.EnvironmentID("production"),
		`{"name":"Tickets","type":"webhook","mode":"sync","config":{"timeout_seconds":30}}`)
	require.Equal(t, http.StatusCreated, r.Code, "%s", r.Body)
	made := apiservertest.Decode[connectors.Connector](t, r.Body.Bytes())
	require.Equal(t, path+"/"+made.ID, r.Header().Get("Location"))
	require.Equal(t, apiservertest.GatewayURL+"/hooks/"+w.ProjectID.String()+"/"+made.ID, *made.WebhookURL)
	of := secrets.Generated{ProjectID: w.ProjectID, ConnectorID: uuid.MustParse(made.ID), Version: 1}
	keyID, err := w.Store.DerivationKey(t.Context(), store.Key{ProjectID: of.ProjectID, ID: of.ConnectorID}, of.Version)
	require.NoError(t, err)
	derived, err := w.PlatformKeys.Secret(keyID, of)
	require.NoError(t, err)
	require.Equal(t, derived, *made.Secret)
	require.Equal(t, w.EnvironmentID("production"), *made.EnvironmentID)
	require.Equal(t, []string{"hello"}, made.Agents)
	require.Equal(t, map[string]any{"authentication": "secret", "require_authentication": true, "secret": nil, "context_headers": []any{}, "files_required": false, "timeout_seconds": 30.0}, made.Config.Value)

	got := w.Send(t, key, http.MethodGet, r.Header().Get("Location"), "")
	require.Equal(t, made, apiservertest.Decode[connectors.Connector](t, got.Body.Bytes()))
	status, body := w.Call(t, key, http.MethodGet, "/connectors?environment_id="+w.EnvironmentID("production"), "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, []connectors.Connector{made}, apiservertest.Decode[[]connectors.Connector](t, body))

	links := "/connectors/" + made.ID + "/links"
	status, body = w.Call(t, key, http.MethodPost, links, `{"agent_name":"other","files_required":true}`)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	status, _ = w.Call(t, key, http.MethodPost, links, `{"agent_name":"other"}`)
	require.Equal(t, http.StatusConflict, status)
	status, body = w.Call(t, key, http.MethodGet, links, "")
	require.Equal(t, http.StatusOK, status)
	require.Len(t, apiservertest.Decode[[]connectors.Link](t, body), 2)
}

func TestGetConnector_Returns503WithoutPlatformKey(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	conn := &v1alpha1.Connector{ObjectMeta: w.Meta("ask"), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", Mode: v1alpha1.ModeSync, Webhook: &v1alpha1.WebhookConnector{},
	}}
	w.Create(t, conn)
	get := func() (int, []byte) {
		return w.Call(t, w.CreateKey(t, nil), http.MethodGet, "/connectors/"+conn.Status.ID, "")
	}
	status, _ := get()
	require.Equal(t, http.StatusOK, status)
	before, err := w.PlatformKeys.Ring()
	require.NoError(t, err)
	other, err := secrets.NewRing()
	require.NoError(t, err)
	require.NoError(t, w.PlatformKeys.Set(other, nil))
	status, body := get()
	require.Equal(t, http.StatusServiceUnavailable, status, "%s", body)
	require.NoError(t, w.PlatformKeys.Set(before, nil))
	status, _ = get()
	require.Equal(t, http.StatusOK, status)
}

func TestCreateConnector_RejectsInvalidInput(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	for name, body := range map[string]string{
		"body":                           `{"name":`,
		"body.type":                      `{"name":"a","type":"CANARY"}`,
		"body.config.schedule":           `{"name":"a","type":"cron","config":{"schedule":"CANARY"}}`,
		"body.config.timezone":           `{"name":"a","type":"cron","config":{"schedule":"@daily","timezone":"Mars/CANARY"}}`,
		"body.config.missed_ticks":       `{"name":"a","type":"cron","config":{"schedule":"@daily","missed_ticks":"CANARY"}}`,
		"body.config.payload":            `{"name":"a","type":"cron","config":{"schedule":"@daily","payload":{"a":"CANARY` + strings.Repeat("x", 64<<10) + `"}}}`,
		"body.config.prompt":             `{"name":"a","type":"cron","config":{"schedule":"@daily","prompt":"CANARY` + strings.Repeat("x", 16<<10) + `"}}`,
		"body.config.authentication":     `{"name":"a","type":"cron","config":{"schedule":"@daily","authentication":"none"}}`,
		"body.config.password":           `{"name":"a","type":"webhook","config":{"password":"CANARY"}}`,
		"body.config.url":                `{"name":"a","type":"webhook","mode":"outbound","config":{"url":"ftp://CANARY"}}`,
		"body.config.headers":            `{"name":"a","type":"webhook","mode":"outbound","config":{"url":"https://a.example","headers":{"Webhook-Id":"CANARY"}}}`,
		"body.config.headers.X-Key":      `{"name":"a","type":"webhook","mode":"outbound","config":{"url":"https://a.example","headers":{"X-Key":"********"}}}`,
		"body.config.retry.max_attempts": `{"name":"a","type":"webhook","mode":"outbound","config":{"url":"https://a.example","retry":{"max_attempts":"CANARY"}}}`,
		"body.config.headers_secret":     `{"name":"a","type":"webhook","mode":"outbound","config":{"url":"https://a.example","headers_secret":"CANARY"}}`,
		"body.config.retry":              `{"name":"a","type":"webhook","mode":"outbound","config":{"url":"https://a.example","retry":{"schedule_seconds":[86401]}}}`,
		"body.config.bridge":             `{"name":"a","type":"webhook","mode":"outbound","config":{"url":"https://a.example","bridge":"CANARY"}}`,
		"body.config.files_required":     `{"name":"a","type":"webhook","mode":"outbound","config":{"url":"https://a.example","files_required":true}}`,
		"body.config.timeout_seconds":    `{"name":"a","type":"webhook","mode":"sync","config":{"timeout_seconds":901}}`,
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := w.Call(t, key, http.MethodPost, "/connectors?environment_id="+w.EnvironmentID("production"), body)
			if name == "body" {
				require.Contains(t, []int{400, 422}, status)
				return
			}
			require.Equal(t, http.StatusUnprocessableEntity, status, "%s", answer)
			require.NotContains(t, string(answer), "CANARY")
			require.Equal(t, name, apiservertest.Decode[rest.Problem](t, answer).Errors[0].Location)
		})
	}
}

func TestCreateConnector_RemovesObjectsOfFailedCall(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	status, answer := w.Call(t, w.CreateKey(t, nil), http.MethodPost,
		"/connectors?agent_name=NOT%20AN%20AGENT&environment_id="+w.EnvironmentID("production"),
		`{"name":"Tickets","type":"webhook"}`)
	require.Equal(t, http.StatusUnprocessableEntity, status, "%s", answer)
	var connectors v1alpha1.ConnectorList
	require.NoError(t, w.Client.List(t.Context(), &connectors, client.InNamespace(w.Namespace)))
	require.Empty(t, connectors.Items)
}

func TestCodeConnector_RejectsChanges(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	conn := &v1alpha1.Connector{ObjectMeta: w.Meta("production.tickets"), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", DisplayName: "Tickets", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
	conn.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true"}
	w.Create(t, conn)
	key := w.CreateKey(t, nil)
	status, _ := w.Call(t, key, http.MethodPost, "/connectors?environment_id="+w.EnvironmentID("production"), `{"name":"Tickets","type":"webhook"}`)
	require.Equal(t, http.StatusConflict, status)
	status, _ = w.Call(t, key, http.MethodPost, "/connectors/"+conn.Status.ID+"/links", `{"agent_name":"hello"}`)
	require.Equal(t, http.StatusConflict, status)
}

// controlled is a client in front of controllers that are done with what is
// read for the second time.
type controlled struct {
	client.Client
	read map[string]bool
}

func (c *controlled) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, o, opts...); err != nil {
		return err
	}
	if object, ok := o.(v1alpha1.ConditionedObject); ok {
		if c.read[object.ObjectKind()] {
			v1alpha1.MarkReady(object, "")
		}
		c.read[object.ObjectKind()] = true
	}
	return nil
}

// An event right after the response must start a run, although the link is in effect later than the connector.
func TestCreateConnector_WaitsForLink(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	w.Server.Service.ReadyTimeout = 2 * time.Second
	front := &controlled{Client: w.Server.Service.Client, read: map[string]bool{}}
	w.Server.Service.Client = front
	status, body := w.Call(t, key, http.MethodPost, "/connectors?agent_name=hello&environment_id="+w.EnvironmentID("production"),
		`{"name":"Tickets","type":"webhook"}`)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	require.True(t, front.read["Connector"])
	require.True(t, front.read["ConnectorLink"], "the link is waited for")
}
