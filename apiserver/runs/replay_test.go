// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// createDelivery gives a past an outbound connector in the store and in Kubernetes, with a
// delivery of its completed run that waits.
func createDelivery(t *testing.T, p *apiservertest.ProjectWithHistory) (connector store.Connector, id uuid.UUID) {
	t.Helper()
	conn := p.CreateOutboundConnector(t, p.CreateKey(t, nil), "Results", `{"url":"https://a.example"}`)
	connector = store.Connector{
		Ref: p.StoredRef(t, store.KindConnector, p.ConnectorObject(t, conn.ID).Name), ID: uuid.MustParse(conn.ID), ProjectID: p.ProjectID,
		EnvironmentID: p.ObjectID(t, "environment"), Name: "Results", Type: "webhook", Mode: "outbound", Enabled: true, Config: []byte("{}"),
	}
	connector.Ref.Generation++
	require.NoError(t, p.Store.PutConnector(t.Context(), connector))
	id, err := uuid.NewV7()
	require.NoError(t, err)
	p.ExecuteSQL(t, `INSERT INTO deliveries (project_id, id, environment_id, connector_id, link_id, run_id, attempt, due_at, started_at) VALUES (?, ?, ?, ?, ?, ?, 2, ?, ?)`,
		p.ProjectID.String(), id.String(), p.IDs["environment"], conn.ID, uuid.NewString(), p.CompletedRun.String(), time.Now().UnixMicro(), time.Now().UnixMicro())
	return connector, id
}

// A replay is a connector run of its own. An Idempotency-Key starts it once, whatever happens to the connector.
func TestReplayConnectorRun_ReplaysEvent(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, connectorRuns := w.CreateKey(t, nil), "/connectors/"+w.IDs["connector"]+"/runs/"
	_, before := w.Call(t, key, http.MethodGet, connectorRuns+w.IDs["event"], "")
	answer := w.Request(t, key, http.MethodPost, connectorRuns+w.IDs["event"]+"/replay", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, answer.Code, "%s", answer.Body)
	again := apiservertest.Decode[runs.ConnectorRun](t, answer.Body.Bytes())
	require.Equal(t, w.IDs["event"], *again.ReplayOf)
	require.Equal(t, runs.ConnectorRunStatus("running"), again.Status)
	require.Equal(t, runs.TriggerType("webhook"), again.TriggerType)
	require.Len(t, again.RunIDs, 1)
	require.True(t, strings.HasSuffix(answer.Header().Get("Location"), connectorRuns+again.ID))
	_, shown := w.Call(t, key, http.MethodGet, connectorRuns+again.ID, "")
	require.JSONEq(t, answer.Body.String(), string(shown))
	status, run := w.Call(t, key, http.MethodGet, "/runs/"+again.RunIDs[0], "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, map[string]any{"name": "Ada"}, apiservertest.Decode[runs.Run](t, run).Input)
	_, after := w.Call(t, key, http.MethodGet, connectorRuns+w.IDs["event"], "")
	require.JSONEq(t, string(before), string(after), "the original does not change")
	require.Contains(t, string(after), `"replay_of":null`)
	require.Contains(t, string(after), `"hops":null`)
	entry := w.NewestAuditEntry(t)
	require.Equal(t, store.AuditObject{Kind: "connector_run", ID: again.ID}, entry.Outcome.Object)
	require.Contains(t, string(entry.Outcome.After), w.IDs["event"])

	_, other := w.AcceptEvent(t, "hello")
	reused := w.Request(t, key, http.MethodPost, connectorRuns+other+"/replay", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusUnprocessableEntity, reused.Code, "%s", reused.Body)
	require.NoError(t, w.Store.Remove(t.Context(), w.ProjectID, w.StoredRef(t, store.KindConnectorLink, "tickets-hello")))
	repeated := w.Request(t, key, http.MethodPost, connectorRuns+w.IDs["event"]+"/replay", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, repeated.Code, "%s", repeated.Body)
	require.Equal(t, again.ID, apiservertest.Decode[runs.ConnectorRun](t, repeated.Body.Bytes()).ID)
	apiservertest.RequireProblem(t, w.Request(t, w.CreateKey(t, nil), http.MethodPost, connectorRuns+w.IDs["event"]+"/replay", "", "Idempotency-Key", "one"),
		http.StatusConflict, httpserver.CodeNoAgent) // the key is another caller's
}

// The call changes nothing then.
func TestReplayConnectorRun_ReturnsReason(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	path := "/connectors/" + w.IDs["connector"] + "/runs/" + w.IDs["event"] + "/replay"
	limited := store.Project{Ref: w.StoredRef(t, store.KindProject, "project"), ID: w.ProjectID}
	limited.Limits = store.ProjectLimits{BacklogRuns: 1}
	require.NoError(t, w.Store.PutProject(t.Context(), limited))
	apiservertest.RequireProblem(t, w.Request(t, key, http.MethodPost, path, ""), http.StatusTooManyRequests, httpserver.CodeBacklogFull)
	limited.Limits = store.ProjectLimits{}
	require.NoError(t, w.Store.PutProject(t.Context(), limited))
	for _, missing := range []string{
		strings.Replace(path, w.IDs["event"], uuid.NewString(), 1), strings.Replace(path, w.IDs["connector"], uuid.NewString(), 1),
	} {
		apiservertest.RequireProblem(t, w.Request(t, key, http.MethodPost, missing, ""), http.StatusNotFound, httpserver.CodeNotFound)
	}
	w.ExecuteSQL(t, `DELETE FROM inputs WHERE id = ?`, w.IDs["event"])
	apiservertest.RequireProblem(t, w.Request(t, key, http.MethodPost, path, ""), http.StatusConflict, httpserver.CodeGone)
}

// A paused connector rejects the replay, and the detail names the remedy.
func TestReplayConnectorRun_ReplaysDelivery(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	connector, original := createDelivery(t, w)
	path := "/connectors/" + connector.ID.String() + "/runs/" + original.String() + "/replay"
	w.ExecuteSQL(t, `UPDATE deliveries SET lease_until = ?`, time.Now().Add(time.Hour).UnixMicro())
	apiservertest.RequireProblem(t, w.Request(t, key, http.MethodPost, path, ""), http.StatusConflict, httpserver.CodeInProgress)
	w.ExecuteSQL(t, `INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type, run_ids, kind, error, started_at, ended_at)
		SELECT project_id, id, environment_id, connector_id, 'completed', 'outbound', 'application/json', '["' || run_id || '"]', kind, '', started_at, started_at FROM deliveries`)
	w.ExecuteSQL(t, `DELETE FROM deliveries`)
	status, body := w.Call(t, key, http.MethodPost, path, "")
	require.Equal(t, http.StatusCreated, status, string(body))
	again := apiservertest.Decode[runs.ConnectorRun](t, body)
	require.Equal(t, original.String(), *again.ReplayOf)
	require.Equal(t, w.CompletedRun.String(), *again.RunID)
	require.Equal(t, runs.ConnectorRunStatus("pending"), again.Status)
	require.NotNil(t, again.NextAttemptAt)
	require.Empty(t, again.RunIDs)
	w.ExecuteSQL(t, `UPDATE destinations SET paused_generation = ?, paused_reason = '410 Gone' WHERE connector_id = ?`,
		connector.Ref.Generation, connector.ID.String())
	paused := w.Request(t, key, http.MethodPost, path, "")
	require.Contains(t, paused.Body.String(), "410 Gone")
	require.Contains(t, paused.Body.String(), "PATCH")
	apiservertest.RequireProblem(t, paused, http.StatusConflict, httpserver.CodeConnectorPaused)
}

// The delivery keeps its ID and is due now. An Idempotency-Key does it once.
func TestReplayConnectorRun_RetriesPendingDeliveryNow(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	connector, original := createDelivery(t, w)
	run := "/connectors/" + connector.ID.String() + "/runs/" + original.String()
	later := time.Now().Add(20 * time.Hour)
	wait := func() { w.ExecuteSQL(t, `UPDATE deliveries SET due_at = ?`, later.UnixMicro()) }
	due := func() time.Time {
		status, body := w.Call(t, key, http.MethodGet, run, "")
		require.Equal(t, http.StatusOK, status, string(body))
		return *apiservertest.Decode[runs.ConnectorRun](t, body).NextAttemptAt
	}
	wait()
	before := due()
	hurried := w.Request(t, key, http.MethodPost, run+"/replay", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusOK, hurried.Code, "%s", hurried.Body)
	require.Empty(t, hurried.Header().Get("Location"))
	shown := apiservertest.Decode[runs.ConnectorRun](t, hurried.Body.Bytes())
	require.Equal(t, original.String(), shown.ID)
	require.Nil(t, shown.ReplayOf)
	require.Equal(t, 1, *shown.Hops)
	require.True(t, shown.NextAttemptAt.Before(before))
	require.Equal(t, *shown.NextAttemptAt, due())
	outcome := w.NewestAuditEntry(t).Outcome
	require.Equal(t, original.String(), outcome.Object.ID)
	require.True(t, apiservertest.Decode[runs.ConnectorRun](t, outcome.Before).NextAttemptAt.Equal(before))
	require.True(t, apiservertest.Decode[runs.ConnectorRun](t, outcome.After).NextAttemptAt.Equal(*shown.NextAttemptAt))

	wait()
	repeated := w.Request(t, key, http.MethodPost, run+"/replay", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusOK, repeated.Code, "%s", repeated.Body)
	require.Equal(t, original.String(), apiservertest.Decode[runs.ConnectorRun](t, repeated.Body.Bytes()).ID)
	require.Equal(t, before, due(), "it has waited again since, and is not hurried twice")
	w.ExecuteSQL(t, `INSERT INTO destinations (project_id, connector_id, failures, paused_generation, paused_reason) VALUES (?, ?, 0, ?, '410 Gone')`,
		w.ProjectID.String(), connector.ID.String(), connector.Ref.Generation)
	apiservertest.RequireProblem(t, w.Request(t, key, http.MethodPost, run+"/replay", ""), http.StatusConflict, httpserver.CodeConnectorPaused)
	require.Equal(t, before, due())
}
