// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// Receivers can tell the example from other deliveries. An Idempotency-Key sends it once.
func TestTestConnector_SendsExample(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, connector := w.CreateKey(t, nil), w.CreateReceiver(t, "results")
	path := "/connectors/" + connector.ID.String()
	made := w.Request(t, key, http.MethodPost, path+"/test", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, made.Code, "%s", made.Body)
	run := apiservertest.Decode[runs.ConnectorRun](t, made.Body.Bytes())
	require.Equal(t, runs.ConnectorRunStatus("pending"), run.Status)
	require.Equal(t, runs.TriggerType("outbound"), run.TriggerType)
	require.Equal(t, runs.DeliveryKind("test"), *run.Kind.Value)
	require.NotNil(t, run.NextAttemptAt)
	require.Nil(t, run.RunID)
	require.Empty(t, run.RunIDs)
	require.Zero(t, run.DispatchedTo)
	require.True(t, strings.HasSuffix(made.Header().Get("Location"), path+"/runs/"+run.ID))
	require.Equal(t, store.AuditObject{Kind: "connector_run", ID: run.ID}, w.NewestAuditEntry(t).Outcome.Object)

	status, body := w.Call(t, key, http.MethodGet, path+"/runs/"+run.ID, "")
	require.Equal(t, http.StatusOK, status, string(body))
	payload := apiservertest.Decode[runs.ConnectorRun](t, body).Payload.(map[string]any)
	require.Equal(t, "test", payload["type"])
	require.Equal(t, uuid.Nil.String(), payload["run_id"])
	for _, field := range []string{"agent_name", "status", "output", "error", "started_at", "ended_at", "token_usage"} {
		require.Contains(t, payload, field, "it is as the envelope of a result")
	}
	again := w.Request(t, key, http.MethodPost, path+"/test", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, again.Code, "%s", again.Body)
	require.Equal(t, run.ID, apiservertest.Decode[runs.ConnectorRun](t, again.Body.Bytes()).ID)
	reused := w.Request(t, key, http.MethodPost, "/connectors/"+w.CreateReceiver(t, "others").ID.String()+"/test", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, reused.Code, "%s", reused.Body) // a key is remembered of each connector
	_, list := w.Call(t, key, http.MethodGet, path+"/runs", "")
	require.EqualValues(t, 1, apiservertest.Decode[runs.ConnectorRunList](t, list).Total)
	hurried := w.Request(t, key, http.MethodPost, path+"/runs/"+run.ID+"/replay", "")
	require.Equal(t, http.StatusOK, hurried.Code, "%s", hurried.Body)
	_, body = w.Call(t, key, http.MethodGet, path+"/runs/"+run.ID, "")
	require.JSONEq(t, string(body), hurried.Body.String())
}

func TestTestConnector_ReturnsReason(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, connector := w.CreateKey(t, nil), w.CreateReceiver(t, "results")
	test := func(id string, status int, code httpserver.Code) {
		t.Helper()
		apiservertest.RequireProblem(t, w.Request(t, key, http.MethodPost, "/connectors/"+id+"/test", ""), status, code)
	}
	test(w.IDs["connector"], http.StatusConflict, httpserver.CodeNotOutbound)
	test(uuid.NewString(), http.StatusNotFound, httpserver.CodeNotFound)
	elsewhere := w.CreateConnector(t, "elsewhere", nil)
	test(elsewhere.Status.ID, http.StatusConflict, httpserver.CodeConflict)
	w.ExecuteSQL(t, `INSERT INTO destinations (project_id, connector_id, failures, paused_generation, paused_reason) VALUES (?, ?, 0, ?, '410 Gone')`,
		w.ProjectID.String(), connector.ID.String(), connector.Ref.Generation)
	test(connector.ID.String(), http.StatusConflict, httpserver.CodeConnectorPaused)
	connector.Enabled = false
	require.NoError(t, w.Store.PutConnector(t.Context(), connector))
	test(connector.ID.String(), http.StatusConflict, httpserver.CodeConnectorDisabled)
	_, list := w.Call(t, key, http.MethodGet, "/connectors/"+connector.ID.String()+"/runs", "")
	require.Zero(t, apiservertest.Decode[runs.ConnectorRunList](t, list).Total)
}
