// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// delivery gives a past an outbound connector in the store and in Kubernetes, with a
// delivery of its completed run that waits.
func (p *past) delivery(t *testing.T) (connector store.Connector, id uuid.UUID) {
	t.Helper()
	conn := p.outbound(t, p.key(t, nil), "Results", `{"url":"https://a.example"}`)
	connector = store.Connector{
		Ref: p.refOf(t, store.KindConnector, p.object(t, conn.ID).Name), ID: uuid.MustParse(conn.ID), ProjectID: p.projectID,
		EnvironmentID: p.id(t, "environment"), Name: "Results", Type: "webhook", Mode: "outbound", Enabled: true, Config: []byte("{}"),
	}
	connector.Ref.Generation++
	require.NoError(t, p.db.PutConnector(t.Context(), connector))
	id, err := uuid.NewV7()
	require.NoError(t, err)
	p.exec(t, `INSERT INTO deliveries (project_id, id, environment_id, connector_id, link_id, run_id, attempt, due_at, started_at) VALUES (?, ?, ?, ?, ?, ?, 2, ?, ?)`,
		p.projectID.String(), id.String(), p.ids["environment"], conn.ID, uuid.NewString(), p.completed.String(), time.Now().UnixMicro(), time.Now().UnixMicro())
	return connector, id
}

// TestAnEventIsReplayed: it is a connector run of its own, which is read where the answer
// says; under its Idempotency-Key it is one, whatever becomes of the connector.
func TestAnEventIsReplayed(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, runs := w.key(t, nil), "/connectors/"+w.ids["connector"]+"/runs/"
	_, before := w.call(t, key, http.MethodGet, runs+w.ids["event"], "")
	answer := w.ask(t, key, http.MethodPost, runs+w.ids["event"]+"/replay", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, answer.Code, "%s", answer.Body)
	again := decode[ConnectorRun](t, answer.Body.Bytes())
	require.Equal(t, w.ids["event"], *again.ReplayOf)
	require.Equal(t, ConnectorRunStatus("running"), again.Status)
	require.Equal(t, TriggerType("webhook"), again.TriggerType)
	require.Len(t, again.RunIDs, 1)
	require.True(t, strings.HasSuffix(answer.Header().Get("Location"), runs+again.ID))
	_, shown := w.call(t, key, http.MethodGet, runs+again.ID, "")
	require.JSONEq(t, answer.Body.String(), string(shown))
	status, run := w.call(t, key, http.MethodGet, "/runs/"+again.RunIDs[0], "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, map[string]any{"name": "Ada"}, decode[Run](t, run).Input)
	_, after := w.call(t, key, http.MethodGet, runs+w.ids["event"], "")
	require.JSONEq(t, string(before), string(after), "the original does not change")
	require.Contains(t, string(after), `"replay_of":null`)
	require.Contains(t, string(after), `"hops":null`)
	entry := w.newest(t)
	require.Equal(t, store.AuditObject{Kind: "connector_run", ID: again.ID}, entry.Outcome.Object)
	require.Contains(t, string(entry.Outcome.After), w.ids["event"])

	_, other := w.event(t, "hello")
	reused := w.ask(t, key, http.MethodPost, runs+other+"/replay", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusUnprocessableEntity, reused.Code, "%s", reused.Body)
	require.NoError(t, w.db.Remove(t.Context(), w.projectID, w.refOf(t, store.KindConnectorLink, "tickets-hello")))
	repeated := w.ask(t, key, http.MethodPost, runs+w.ids["event"]+"/replay", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, repeated.Code, "%s", repeated.Body)
	require.Equal(t, again.ID, decode[ConnectorRun](t, repeated.Body.Bytes()).ID)
	requireRefused(t, w.ask(t, w.key(t, nil), http.MethodPost, runs+w.ids["event"]+"/replay", "", "Idempotency-Key", "one"),
		http.StatusConflict, httpserver.CodeNoAgent) // the key is another caller's
}

// requireRefused says that an answer is a problem with a code.
func requireRefused(t *testing.T, answer *httptest.ResponseRecorder, status int, code httpserver.Code) {
	t.Helper()
	require.Equal(t, status, answer.Code, "%s", answer.Body)
	require.Equal(t, code, decode[Problem](t, answer.Body.Bytes()).Code)
	if status == http.StatusTooManyRequests {
		require.Equal(t, "10", answer.Header().Get("Retry-After"))
	}
}

// TestWhatCannotBeReplayedIsRefused: with the reason, and nothing comes of it.
func TestWhatCannotBeReplayedIsRefused(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	path := "/connectors/" + w.ids["connector"] + "/runs/" + w.ids["event"] + "/replay"
	limited := store.Project{Ref: w.refOf(t, store.KindProject, "project"), ID: w.projectID}
	limited.Limits = store.ProjectLimits{BacklogRuns: 1}
	require.NoError(t, w.db.PutProject(t.Context(), limited))
	requireRefused(t, w.ask(t, key, http.MethodPost, path, ""), http.StatusTooManyRequests, httpserver.CodeBacklogFull)
	limited.Limits = store.ProjectLimits{}
	require.NoError(t, w.db.PutProject(t.Context(), limited))
	for _, missing := range []string{
		strings.Replace(path, w.ids["event"], uuid.NewString(), 1), strings.Replace(path, w.ids["connector"], uuid.NewString(), 1),
	} {
		requireRefused(t, w.ask(t, key, http.MethodPost, missing, ""), http.StatusNotFound, httpserver.CodeNotFound)
	}
	w.exec(t, `DELETE FROM inputs WHERE id = ?`, w.ids["event"])
	requireRefused(t, w.ask(t, key, http.MethodPost, path, ""), http.StatusConflict, httpserver.CodeGone)
}

// TestADeliveryIsReplayed: unless its connector is paused, of which the answer says how to
// end it.
func TestADeliveryIsReplayed(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	connector, original := w.delivery(t)
	path := "/connectors/" + connector.ID.String() + "/runs/" + original.String() + "/replay"
	w.exec(t, `UPDATE deliveries SET lease_until = ?`, time.Now().Add(time.Hour).UnixMicro())
	requireRefused(t, w.ask(t, key, http.MethodPost, path, ""), http.StatusConflict, httpserver.CodeInProgress)
	w.exec(t, `INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type, run_ids, kind, error, started_at, ended_at)
		SELECT project_id, id, environment_id, connector_id, 'completed', 'outbound', 'application/json', '["' || run_id || '"]', kind, '', started_at, started_at FROM deliveries`)
	w.exec(t, `DELETE FROM deliveries`)
	status, body := w.call(t, key, http.MethodPost, path, "")
	require.Equal(t, http.StatusCreated, status, string(body))
	again := decode[ConnectorRun](t, body)
	require.Equal(t, original.String(), *again.ReplayOf)
	require.Equal(t, w.completed.String(), *again.RunID)
	require.Equal(t, ConnectorRunStatus("pending"), again.Status)
	require.NotNil(t, again.NextAttemptAt)
	require.Empty(t, again.RunIDs)
	w.exec(t, `UPDATE destinations SET paused_generation = ?, paused_reason = '410 Gone' WHERE connector_id = ?`,
		connector.Ref.Generation, connector.ID.String())
	paused := w.ask(t, key, http.MethodPost, path, "")
	require.Contains(t, paused.Body.String(), "410 Gone")
	require.Contains(t, paused.Body.String(), "PATCH")
	requireRefused(t, paused, http.StatusConflict, httpserver.CodeConnectorPaused)
}

// TestADeliveryThatWaitsIsHurried: it stays the same one, and is due now; under its
// Idempotency-Key that is done once.
func TestADeliveryThatWaitsIsHurried(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	connector, original := w.delivery(t)
	run := "/connectors/" + connector.ID.String() + "/runs/" + original.String()
	later := time.Now().Add(20 * time.Hour)
	wait := func() { w.exec(t, `UPDATE deliveries SET due_at = ?`, later.UnixMicro()) }
	due := func() time.Time {
		status, body := w.call(t, key, http.MethodGet, run, "")
		require.Equal(t, http.StatusOK, status, string(body))
		return *decode[ConnectorRun](t, body).NextAttemptAt
	}
	wait()
	before := due()
	hurried := w.ask(t, key, http.MethodPost, run+"/replay", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusOK, hurried.Code, "%s", hurried.Body)
	require.Empty(t, hurried.Header().Get("Location"))
	shown := decode[ConnectorRun](t, hurried.Body.Bytes())
	require.Equal(t, original.String(), shown.ID)
	require.Nil(t, shown.ReplayOf)
	require.Equal(t, 1, *shown.Hops)
	require.True(t, shown.NextAttemptAt.Before(before))
	require.Equal(t, *shown.NextAttemptAt, due())
	outcome := w.newest(t).Outcome
	require.Equal(t, original.String(), outcome.Object.ID)
	require.True(t, decode[ConnectorRun](t, outcome.Before).NextAttemptAt.Equal(before))
	require.True(t, decode[ConnectorRun](t, outcome.After).NextAttemptAt.Equal(*shown.NextAttemptAt))

	wait()
	repeated := w.ask(t, key, http.MethodPost, run+"/replay", "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusOK, repeated.Code, "%s", repeated.Body)
	require.Equal(t, original.String(), decode[ConnectorRun](t, repeated.Body.Bytes()).ID)
	require.Equal(t, before, due(), "it has waited again since, and is not hurried twice")
	w.exec(t, `INSERT INTO destinations (project_id, connector_id, failures, paused_generation, paused_reason) VALUES (?, ?, 0, ?, '410 Gone')`,
		w.projectID.String(), connector.ID.String(), connector.Ref.Generation)
	requireRefused(t, w.ask(t, key, http.MethodPost, run+"/replay", ""), http.StatusConflict, httpserver.CodeConnectorPaused)
	require.Equal(t, before, due())
}
