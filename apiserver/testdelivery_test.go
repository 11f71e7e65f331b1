// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// receiver is an outbound connector in Kubernetes and in the store, to which no agent is linked.
func (p *past) receiver(t testing.TB, name string) store.Connector {
	t.Helper()
	conn := p.connectorNamed(t, name, func(c *v1alpha1.Connector) {
		c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://a.example"
	})
	c := store.Connector{
		Ref: p.refOf(t, store.KindConnector, name), ID: uuid.MustParse(conn.Status.ID), ProjectID: p.projectID,
		EnvironmentID: p.id(t, "environment"), Name: name, Type: "webhook", Mode: "outbound", Enabled: true, Config: []byte("{}"),
	}
	require.NoError(t, p.db.PutConnector(t.Context(), c))
	return c
}

// TestAConnectorIsTested: the answer is a delivery of an example, which the destination can tell
// from others, and under its Idempotency-Key it is one.
func TestAConnectorIsTested(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, connector := w.key(t, nil), w.receiver(t, "results")
	path := "/connectors/" + connector.ID.String()
	made := w.ask(t, key, http.MethodPost, path+"/test", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, made.Code, "%s", made.Body)
	run := decode[ConnectorRun](t, made.Body.Bytes())
	require.Equal(t, ConnectorRunStatus("pending"), run.Status)
	require.Equal(t, TriggerType("outbound"), run.TriggerType)
	require.Equal(t, DeliveryKind("test"), *run.Kind.Value)
	require.NotNil(t, run.NextAttemptAt)
	require.Nil(t, run.RunID)
	require.Empty(t, run.RunIDs)
	require.Zero(t, run.DispatchedTo)
	require.True(t, strings.HasSuffix(made.Header().Get("Location"), path+"/runs/"+run.ID))
	require.Equal(t, store.AuditObject{Kind: "connector_run", ID: run.ID}, w.newest(t).Outcome.Object)

	status, body := w.call(t, key, http.MethodGet, path+"/runs/"+run.ID, "")
	require.Equal(t, http.StatusOK, status, string(body))
	payload := decode[ConnectorRun](t, body).Payload.(map[string]any)
	require.Equal(t, "test", payload["type"])
	require.Equal(t, uuid.Nil.String(), payload["run_id"])
	for _, field := range []string{"agent_name", "status", "output", "error", "started_at", "ended_at", "token_usage"} {
		require.Contains(t, payload, field, "it is as the envelope of a result")
	}
	again := w.ask(t, key, http.MethodPost, path+"/test", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, again.Code, "%s", again.Body)
	require.Equal(t, run.ID, decode[ConnectorRun](t, again.Body.Bytes()).ID)
	reused := w.ask(t, key, http.MethodPost, "/connectors/"+w.receiver(t, "others").ID.String()+"/test", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, reused.Code, "%s", reused.Body) // a key is remembered of each connector
	_, list := w.call(t, key, http.MethodGet, path+"/runs", "")
	require.EqualValues(t, 1, decode[ConnectorRunList](t, list).Total)
	hurried := w.ask(t, key, http.MethodPost, path+"/runs/"+run.ID+"/replay", "")
	require.Equal(t, http.StatusOK, hurried.Code, "%s", hurried.Body)
	_, body = w.call(t, key, http.MethodGet, path+"/runs/"+run.ID, "")
	require.JSONEq(t, string(body), hurried.Body.String())
}

// TestAConnectorThatSendsNothingIsNotTested: the answer says why.
func TestAConnectorThatSendsNothingIsNotTested(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, connector := w.key(t, nil), w.receiver(t, "results")
	test := func(id string, status int, code httpserver.Code) {
		t.Helper()
		requireRefused(t, w.ask(t, key, http.MethodPost, "/connectors/"+id+"/test", ""), status, code)
	}
	test(w.ids["connector"], http.StatusConflict, httpserver.CodeNotOutbound)
	test(uuid.NewString(), http.StatusNotFound, httpserver.CodeNotFound)
	elsewhere := w.connectorNamed(t, "elsewhere", nil)
	test(elsewhere.Status.ID, http.StatusConflict, httpserver.CodeConflict)
	w.exec(t, `INSERT INTO destinations (project_id, connector_id, failures, paused_generation, paused_reason) VALUES (?, ?, 0, ?, '410 Gone')`,
		w.projectID.String(), connector.ID.String(), connector.Ref.Generation)
	test(connector.ID.String(), http.StatusConflict, httpserver.CodeConnectorPaused)
	connector.Enabled = false
	require.NoError(t, w.db.PutConnector(t.Context(), connector))
	test(connector.ID.String(), http.StatusConflict, httpserver.CodeConnectorDisabled)
	_, list := w.call(t, key, http.MethodGet, "/connectors/"+connector.ID.String()+"/runs", "")
	require.Zero(t, decode[ConnectorRunList](t, list).Total)
}
