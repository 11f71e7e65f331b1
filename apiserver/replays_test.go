// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// replay begins a replay of what has failed of the past's connector, in place of the one
// before.
func (p *past) replay(t testing.TB) string {
	t.Helper()
	connector := store.Key{ProjectID: p.projectID, ID: p.id(t, "connector")}
	before, err := p.db.ListReplays(t.Context(), connector)
	require.NoError(t, err)
	for _, r := range before {
		if r.Status == store.ReplayRunning {
			require.NoError(t, p.db.CancelReplay(t.Context(), r.Key()))
		}
	}
	r, _, err := p.db.StartReplay(t.Context(), store.NewReplay{
		Connector: connector, ID: uuid.New(), Fingerprint: []byte("f"), PerMinute: 60,
		Filter: store.ReplayFilter{Statuses: []store.ConnectorRunStatus{store.ConnectorRunFailed}, Since: time.Now().Add(-time.Hour), Until: time.Now()},
	})
	require.NoError(t, err)
	p.ids["replay"] = r.ID.String()
	return p.ids["replay"]
}

// replaysOf cancels the replay that a past begins with, and returns where its connector's are.
func (p *past) replaysOf(t *testing.T, key string) string {
	t.Helper()
	path := "/connectors/" + p.ids["connector"] + "/replays"
	status, body := p.call(t, key, http.MethodPost, path+"/"+p.ids["replay"]+"/cancel", "")
	require.Equal(t, http.StatusOK, status, string(body))
	return path
}

// TestManyAreReplayed: the answer is where to look how far it has come, and under its
// Idempotency-Key it is one replay.
func TestManyAreReplayed(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	path := w.replaysOf(t, key)
	body := `{"status":["failed","completed"],"trigger_type":"webhook","since":"2026-01-01T00:00:00.5Z","rate_per_minute":6000}`
	made := w.ask(t, key, http.MethodPost, path, body, "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, made.Code, "%s", made.Body)
	r := decode[Replay](t, made.Body.Bytes())
	require.Equal(t, ReplayStatus("running"), r.Status)
	require.Equal(t, w.ids["connector"], r.ConnectorID)
	require.Equal(t, []EndedStatus{"failed", "completed"}, r.StatusFilter)
	require.Equal(t, "webhook", *r.TriggerType)
	require.Equal(t, time.Date(2026, 1, 1, 0, 0, 0, 5e8, time.UTC), r.Since)
	require.WithinDuration(t, time.Now(), r.Until, time.Hour)
	require.EqualValues(t, 6000, r.RatePerMinute)
	require.EqualValues(t, 2, r.Matched)
	require.False(t, r.AtLeast)
	require.Zero(t, r.Replayed+r.Refused)
	require.True(t, strings.HasSuffix(made.Header().Get("Location"), path+"/"+*r.ID))
	entry := w.newest(t)
	require.Equal(t, store.AuditObject{Kind: "replay", ID: *r.ID}, entry.Outcome.Object)

	_, shown := w.call(t, key, http.MethodGet, path+"/"+*r.ID, "")
	require.JSONEq(t, made.Body.String(), string(shown))
	again := w.ask(t, key, http.MethodPost, path, body, "Idempotency-Key", "one")
	require.Equal(t, http.StatusCreated, again.Code)
	require.JSONEq(t, made.Body.String(), again.Body.String())
	reused := w.ask(t, key, http.MethodPost, path, `{"status":["failed"],"since":"2026-01-01T00:00:00Z"}`, "Idempotency-Key", "one")
	require.Equal(t, http.StatusUnprocessableEntity, reused.Code, "%s", reused.Body)
	requireRefused(t, w.ask(t, key, http.MethodPost, path, body), http.StatusConflict, httpserver.CodeAlreadyExists)

	_, list := w.call(t, key, http.MethodGet, path, "")
	require.Len(t, decode[[]Replay](t, list), 2)
	require.Equal(t, *r.ID, *decode[[]Replay](t, list)[0].ID, "newest first")
	for range 2 { // a repetition under the same key
		cancelled := w.ask(t, key, http.MethodPost, path+"/"+*r.ID+"/cancel", "", "Idempotency-Key", "two")
		require.Equal(t, http.StatusOK, cancelled.Code, "%s", cancelled.Body)
		require.Equal(t, ReplayStatus("cancelled"), decode[Replay](t, cancelled.Body.Bytes()).Status)
		require.NotNil(t, decode[Replay](t, cancelled.Body.Bytes()).EndedAt)
	}
	requireRefused(t, w.ask(t, key, http.MethodPost, path+"/"+*r.ID+"/cancel", ""), http.StatusConflict, httpserver.CodeConflict)
}

// TestADryRunStoresNothing: it only says how many match, also while a replay runs.
func TestADryRunStoresNothing(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, path := w.key(t, nil), "/connectors/"+w.ids["connector"]+"/replays"
	status, body := w.call(t, key, http.MethodPost, path, `{"status":["failed"],"since":"2026-01-01T00:00:00Z","dry_run":true}`)
	require.Equal(t, http.StatusOK, status, string(body))
	r := decode[Replay](t, body)
	require.Equal(t, ReplayStatus("dry_run"), r.Status)
	require.EqualValues(t, 1, r.Matched)
	require.EqualValues(t, 600, r.RatePerMinute)
	require.Nil(t, r.ID)
	require.Nil(t, r.CreatedAt)
	_, list := w.call(t, key, http.MethodGet, path, "")
	require.Len(t, decode[[]Replay](t, list), 1, "the one of before")
}

// TestReplaysThatMakeNoSenseAreRefused: with the place, and nothing comes of them.
func TestReplaysThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	path := w.replaysOf(t, key)
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
		fmt.Sprintf(`{"status":["failed"],%s,"connector_id":"%s"}`, since, w.ids["connector"]): "body.connector_id",
	} {
		t.Run(body, func(t *testing.T) {
			answer := w.ask(t, key, http.MethodPost, path, body)
			require.Equal(t, http.StatusUnprocessableEntity, answer.Code, "%s", answer.Body)
			require.Contains(t, answer.Body.String(), place)
		})
	}
	_, list := w.call(t, key, http.MethodGet, path, "")
	require.Len(t, decode[[]Replay](t, list), 1)
	for n := range store.MaxRunningReplays {
		other := store.Connector{
			Ref: w.refOf(t, store.KindConnector, fmt.Sprint("other-", n)), ID: uuid.New(), ProjectID: w.projectID, EnvironmentID: w.id(t, "environment"),
			Name: fmt.Sprint("other ", n), Type: "webhook", Mode: "inbound", Enabled: true, Config: []byte("{}"),
		}
		require.NoError(t, w.db.PutConnector(t.Context(), other))
		_, _, err := w.db.StartReplay(t.Context(), store.NewReplay{
			Connector: other.Key(), ID: uuid.New(), Fingerprint: []byte("f"), PerMinute: 60,
			Filter: store.ReplayFilter{Statuses: []store.ConnectorRunStatus{store.ConnectorRunFailed}, Since: time.Now().Add(-time.Hour), Until: time.Now()},
		})
		require.NoError(t, err)
	}
	requireRefused(t, w.ask(t, key, http.MethodPost, path, `{"status":["failed"],`+since+`}`), http.StatusConflict, httpserver.CodeLimitReached)
	outbound, _ := w.delivery(t)
	for _, missing := range []string{path + "/" + uuid.NewString(), "/connectors/" + uuid.NewString() + "/replays/" + w.ids["replay"]} {
		requireRefused(t, w.ask(t, key, http.MethodGet, missing, ""), http.StatusNotFound, httpserver.CodeNotFound)
		requireRefused(t, w.ask(t, key, http.MethodPost, missing+"/cancel", ""), http.StatusNotFound, httpserver.CodeNotFound)
	}
	requireRefused(t, w.ask(t, key, http.MethodGet, "/connectors/"+outbound.ID.String()+"/replays/"+w.ids["replay"], ""), http.StatusNotFound, httpserver.CodeNotFound)
}
