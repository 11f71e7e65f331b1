// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"fmt"
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

// cancelReplay cancels the replay that a past begins with, and returns where its connector's are.
func cancelReplay(t *testing.T, p *apiservertest.ProjectWithHistory, key string) string {
	t.Helper()
	path := "/connectors/" + p.IDs["connector"] + "/replays"
	status, body := p.Call(t, key, http.MethodPost, path+"/"+p.IDs["replay"]+"/cancel", "")
	require.Equal(t, http.StatusOK, status, string(body))
	return path
}

// The response has the location of the progress. An Idempotency-Key starts one replay.
func TestCreateReplay_ReplaysMatches(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	path := cancelReplay(t, w, key)
	body := `{"status":["failed","completed"],"trigger_type":"webhook","since":"2026-01-01T00:00:00.5Z","rate_per_minute":6000}`
	made := w.Request(t, key, http.MethodPost, path, body, "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, made.Code, "%s", made.Body)
	r := apiservertest.Decode[runs.Replay](t, made.Body.Bytes())
	require.Equal(t, runs.ReplayStatus("running"), r.Status)
	require.Equal(t, w.IDs["connector"], r.ConnectorID)
	require.Equal(t, []runs.EndedStatus{"failed", "completed"}, r.StatusFilter)
	require.Equal(t, "webhook", *r.TriggerType)
	require.Equal(t, time.Date(2026, 1, 1, 0, 0, 0, 5e8, time.UTC), r.Since)
	require.WithinDuration(t, time.Now(), r.Until, time.Hour)
	require.EqualValues(t, 6000, r.RatePerMinute)
	require.EqualValues(t, 2, r.Matched)
	require.False(t, r.AtLeast)
	require.Zero(t, r.Replayed+r.Refused)
	require.True(t, strings.HasSuffix(made.Header().Get("Location"), path+"/"+*r.ID))
	entry := w.NewestAuditEntry(t)
	require.Equal(t, store.AuditObject{Kind: "replay", ID: *r.ID}, entry.Outcome.Object)

	_, shown := w.Call(t, key, http.MethodGet, path+"/"+*r.ID, "")
	require.JSONEq(t, made.Body.String(), string(shown))
	again := w.Request(t, key, http.MethodPost, path, body, "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, again.Code)
	require.JSONEq(t, made.Body.String(), again.Body.String())
	reused := w.Request(t, key, http.MethodPost, path, `{"status":["failed"],"since":"2026-01-01T00:00:00Z"}`, "Idempotency-Key", "one")
	require.Equal(t, http.StatusUnprocessableEntity, reused.Code, "%s", reused.Body)
	apiservertest.RequireProblem(t, w.Request(t, key, http.MethodPost, path, body), http.StatusConflict, httpserver.CodeAlreadyExists)

	_, list := w.Call(t, key, http.MethodGet, path, "")
	require.Len(t, apiservertest.Decode[[]runs.Replay](t, list), 2)
	require.Equal(t, *r.ID, *apiservertest.Decode[[]runs.Replay](t, list)[0].ID, "newest first")
	for range 2 { // a repetition under the same key
		cancelled := w.Request(t, key, http.MethodPost, path+"/"+*r.ID+"/cancel", "", "Idempotency-Key", "two")
		require.Equal(t, http.StatusOK, cancelled.Code, "%s", cancelled.Body)
		require.Equal(t, runs.ReplayStatus("cancelled"), apiservertest.Decode[runs.Replay](t, cancelled.Body.Bytes()).Status)
		require.NotNil(t, apiservertest.Decode[runs.Replay](t, cancelled.Body.Bytes()).EndedAt)
	}
	apiservertest.RequireProblem(t, w.Request(t, key, http.MethodPost, path+"/"+*r.ID+"/cancel", ""), http.StatusConflict, httpserver.CodeConflict)
}

// A dry run returns the number of matches, also while a replay runs.
func TestCreateReplay_DryRunStoresNothing(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/connectors/"+w.IDs["connector"]+"/replays"
	status, body := w.Call(t, key, http.MethodPost, path, `{"status":["failed"],"since":"2026-01-01T00:00:00Z","dry_run":true}`)
	require.Equal(t, http.StatusOK, status, string(body))
	r := apiservertest.Decode[runs.Replay](t, body)
	require.Equal(t, runs.ReplayStatus("dry_run"), r.Status)
	require.EqualValues(t, 1, r.Matched)
	require.EqualValues(t, 600, r.RatePerMinute)
	require.Nil(t, r.ID)
	require.Nil(t, r.CreatedAt)
	_, list := w.Call(t, key, http.MethodGet, path, "")
	require.Len(t, apiservertest.Decode[[]runs.Replay](t, list), 1, "the one of before")
}

// The error names the field, and nothing is stored.
func TestCreateReplay_RejectsInvalidInput(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	path := cancelReplay(t, w, key)
	const since = `"since":"2026-01-01T00:00:00Z"`
	for body, place := range map[string]string{
		`{` + since + `}`: "status", `{"status":[],` + since + `}`: "body.status", `{"status":["running"],` + since + `}`: "body.status[0]",
		`{"status":["failed"]}`: "since", `{"status":["failed"],"since":"yesterday"}`: "body.since",
		`{"status":["failed"],"since":"2999-01-01T00:00:00Z"}`:                                 "body.since",
		`{"status":["failed"],"since":"1960-01-01T00:00:00Z"}`:                                 "body.since",
		`{"status":["failed"],` + since + `,"until":"2025-01-01T00:00:00Z"}`:                   "body.since",
		`{"status":["failed"],` + since + `,"rate_per_minute":6001}`:                           "body.rate_per_minute",
		`{"status":["failed"],` + since + `,"rate_per_minute":0}`:                              "body.rate_per_minute",
		`{"status":["failed"],` + since + `,"trigger_type":"moon"}`:                            "body.trigger_type",
		`{"status":["failed","failed","failed","failed","failed"],` + since + `}`:              "body.status",
		fmt.Sprintf(`{"status":["failed"],%s,"connector_id":"%s"}`, since, w.IDs["connector"]): "body.connector_id",
	} {
		t.Run(body, func(t *testing.T) {
			answer := w.Request(t, key, http.MethodPost, path, body)
			require.Equal(t, http.StatusUnprocessableEntity, answer.Code, "%s", answer.Body)
			require.Contains(t, answer.Body.String(), place)
		})
	}
	_, list := w.Call(t, key, http.MethodGet, path, "")
	require.Len(t, apiservertest.Decode[[]runs.Replay](t, list), 1)
	for n := range store.MaxRunningReplays {
		other := store.Connector{
			Ref: w.StoredRef(t, store.KindConnector, fmt.Sprint("other-", n)), ID: uuid.New(), ProjectID: w.ProjectID, EnvironmentID: w.ObjectID(t, "environment"),
			Name: fmt.Sprint("other ", n), Type: "webhook", Mode: "inbound", Enabled: true, Config: []byte("{}"),
		}
		require.NoError(t, w.Store.PutConnector(t.Context(), other))
		_, _, err := w.Store.StartReplay(t.Context(), store.NewReplay{
			Connector: other.Key(), ID: uuid.New(), Fingerprint: []byte("f"), PerMinute: 60,
			Filter: store.ReplayFilter{Statuses: []store.ConnectorRunStatus{store.ConnectorRunFailed}, Since: time.Now().Add(-time.Hour), Until: time.Now()},
		})
		require.NoError(t, err)
	}
	apiservertest.RequireProblem(t, w.Request(t, key, http.MethodPost, path, `{"status":["failed"],`+since+`}`), http.StatusConflict, httpserver.CodeLimitReached)
	outbound, _ := createDelivery(t, w)
	for _, missing := range []string{path + "/" + uuid.NewString(), "/connectors/" + uuid.NewString() + "/replays/" + w.IDs["replay"]} {
		apiservertest.RequireProblem(t, w.Request(t, key, http.MethodGet, missing, ""), http.StatusNotFound, httpserver.CodeNotFound)
		apiservertest.RequireProblem(t, w.Request(t, key, http.MethodPost, missing+"/cancel", ""), http.StatusNotFound, httpserver.CodeNotFound)
	}
	apiservertest.RequireProblem(t, w.Request(t, key, http.MethodGet, "/connectors/"+outbound.ID.String()+"/replays/"+w.IDs["replay"], ""), http.StatusNotFound, httpserver.CodeNotFound)
}
