// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

func TestEnvironmentsAreShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, emptyStore{})
	project := &v1alpha1.Project{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: v1alpha1.ProjectName}, project))
	project.Spec.DefaultEnvironment = "staging"
	require.NoError(t, w.client.Update(t.Context(), project))

	status, body := w.call(t, w.key(t, nil), http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	list := decode[[]Environment](t, body)
	require.Len(t, list, 2)
	require.Equal(t, "staging", list[0].Name, "the default first")
	require.True(t, list[0].IsDefault)
	require.Equal(t, w.environmentID("staging"), list[0].ID)
	require.Equal(t, w.projectID.String(), list[0].ProjectID)
	require.Len(t, list[0].Permissions, len(permissions))
	fields := decode[[]map[string]any](t, body)[0]
	require.Contains(t, fields, "live_deployment_id")
	require.Nil(t, fields["live_deployment_id"])
	require.Regexp(t, `Z$`, fields["created_at"])
}

func TestCreateAConnectorWithItsLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t, emptyStore{})
	key := w.key(t, nil)
	path := "/v1/projects/" + w.projectID.String() + "/connectors"
	r := w.send(t, key, http.MethodPost, path+"?agent_name=hello&environment_id="+w.environmentID("production"),
		`{"name":"Tickets","type":"webhook","mode":"sync","config":{"timeout_seconds":30}}`)
	require.Equal(t, http.StatusCreated, r.Code, "%s", r.Body)
	made := decode[Connector](t, r.Body.Bytes())
	require.Equal(t, path+"/"+made.ID, r.Header().Get("Location"))
	require.Equal(t, gateway+"/hooks/"+made.ID, *made.WebhookURL)
	require.Equal(t, w.server.derivation.Secret(uuid.MustParse(made.ID), 1), *made.Secret)
	require.Equal(t, w.environmentID("production"), *made.EnvironmentID)
	require.Equal(t, []string{"hello"}, made.Agents)
	require.Equal(t, map[string]any{"require_authentication": true, "files_required": false, "timeout_seconds": 30.0}, made.Config)

	got := w.send(t, key, http.MethodGet, r.Header().Get("Location"), "")
	require.Equal(t, made, decode[Connector](t, got.Body.Bytes()))
	status, body := w.call(t, key, http.MethodGet, "/connectors?environment_id="+w.environmentID("production"), "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, []Connector{made}, decode[[]Connector](t, body))

	links := "/connectors/" + made.ID + "/links"
	status, body = w.call(t, key, http.MethodPost, links, `{"agent_name":"other","files_required":true}`)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	link := decode[Link](t, body)
	require.True(t, *link.FilesRequired)
	status, _ = w.call(t, key, http.MethodPost, links, `{"agent_name":"other"}`)
	require.Equal(t, http.StatusConflict, status)
	status, body = w.call(t, key, http.MethodGet, links, "")
	require.Equal(t, http.StatusOK, status)
	require.Len(t, decode[[]Link](t, body), 2)
}

func TestHeadersOfAnOutboundConnectorAreSealedAndMasked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, emptyStore{})
	status, body := w.call(t, w.key(t, nil), http.MethodPost, "/connectors?environment_id="+w.environmentID("production"),
		`{"name":"CRM","type":"webhook","mode":"outbound","config":{"url":"https://crm.example.com","headers":{"X-Token":"CANARY"}}}`)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	require.NotContains(t, string(body), "CANARY")
	made := decode[Connector](t, body)
	require.Equal(t, map[string]any{"X-Token": masked}, made.Config["headers"])
	require.NotNil(t, made.SigningSecret)
	require.Nil(t, made.Secret)
	require.Nil(t, made.WebhookURL)

	var secrets corev1.SecretList
	require.NoError(t, w.client.List(t.Context(), &secrets, client.InNamespace(w.namespace), client.MatchingLabels{LabelSealed: "true"}))
	require.Len(t, secrets.Items, 1)
	require.Equal(t, "Connector", secrets.Items[0].OwnerReferences[0].Kind)
	opened, err := w.sealer.Open(HeaderField(w.projectID, uuid.MustParse(made.ID), "X-Token"), secrets.Items[0].Data["X-Token"])
	require.NoError(t, err)
	require.Equal(t, "CANARY", string(opened))
}

func TestConnectorsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, emptyStore{})
	key := w.key(t, nil)
	for name, body := range map[string]string{
		"body":                            `{"name":`,
		"body.type":                       `{"name":"a","type":"CANARY"}`,
		"body.config.secret":              `{"name":"a","type":"webhook","config":{"secret":"CANARY"}}`,
		"body.config.url":                 `{"name":"a","type":"webhook","mode":"outbound","config":{}}`,
		"body.config.timeout_seconds":     `{"name":"a","type":"webhook","mode":"sync","config":{"timeout_seconds":901}}`,
		"body.config.headers.X-Service-A": `{"name":"a","type":"webhook","mode":"outbound","config":{"url":"https://a","headers":{"X-Service-A":"CANARY"}}}`,
		"body.config.schedule":            `{"name":"a","type":"cron","config":{}}`,
	} {
		status, answer := w.call(t, key, http.MethodPost, "/connectors?environment_id="+w.environmentID("production"), body)
		if name == "body" {
			require.Contains(t, []int{400, 422}, status)
			continue
		}
		require.Equal(t, http.StatusUnprocessableEntity, status, "%s: %s", name, answer)
		require.NotContains(t, string(answer), "CANARY")
		require.Equal(t, name, decode[Problem](t, answer).Errors[0].Location)
	}
	status, answer := w.call(t, key, http.MethodPost, "/connectors?environment_id="+w.environmentID("production"),
		`{"name":"a","type":"cron","mode":"sync","config":{"schedule":"@hourly"}}`)
	require.Equal(t, http.StatusUnprocessableEntity, status, "the object's own rules hold: %s", answer)
	require.Contains(t, decode[Problem](t, answer).Detail, "a cron must have mode inbound")
}

func TestAFailedCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, emptyStore{})
	status, answer := w.call(t, w.key(t, nil), http.MethodPost,
		"/connectors?agent_name=NOT%20AN%20AGENT&environment_id="+w.environmentID("production"),
		`{"name":"CRM","type":"webhook","mode":"outbound","config":{"url":"https://crm.example.com","headers":{"X-Token":"CANARY"}}}`)
	require.Equal(t, http.StatusUnprocessableEntity, status, "%s", answer)
	var connectors v1alpha1.ConnectorList
	require.NoError(t, w.client.List(t.Context(), &connectors, client.InNamespace(w.namespace)))
	require.Empty(t, connectors.Items)
	var secrets corev1.SecretList
	require.NoError(t, w.client.List(t.Context(), &secrets, client.InNamespace(w.namespace)))
	require.Empty(t, secrets.Items)
}

func TestCodeDefinedConnectors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, emptyStore{})
	conn := &v1alpha1.Connector{ObjectMeta: w.meta("production.tickets"), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", DisplayName: "Tickets", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
	conn.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true"}
	w.create(t, conn)
	key := w.key(t, nil)
	status, _ := w.call(t, key, http.MethodPost, "/connectors?environment_id="+w.environmentID("production"), `{"name":"Tickets","type":"webhook"}`)
	require.Equal(t, http.StatusConflict, status)
	status, _ = w.call(t, key, http.MethodPost, "/connectors/"+conn.Status.ID+"/links", `{"agent_name":"hello"}`)
	require.Equal(t, http.StatusConflict, status)
}
