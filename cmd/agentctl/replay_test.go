// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/keys"
)

// facade answers lists and replays of connector runs, oldest last. Requests come one after
// the other.
type facade struct {
	*httptest.Server
	key, project, connector string
	runs                    []map[string]any
	// refuse answers in place of a replay, as often as it is there.
	refuse []func(http.ResponseWriter)
	// replays are the paths and keys of those that were asked for, lists the queries.
	replays, lists []string
	waited         []time.Duration
}

var replayNow = time.Date(2026, 7, 2, 12, 0, 0, 0, time.UTC)

func newFacade(t *testing.T, runs int) *facade {
	t.Helper()
	f := &facade{key: keys.Generate().String(), project: uuid.NewString(), connector: uuid.NewString()}
	for i := range runs {
		f.runs = append(f.runs, map[string]any{
			"id": fmt.Sprintf("00000000-0000-7000-8000-%012d", i), "status": "failed", "replay_of": nil,
			"started_at": replayNow.Add(-time.Duration(i) * time.Minute).Format(time.RFC3339),
		})
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func problemAnswer(status int, code string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"status":%d,"code":%q,"detail":"not now"}`, status, code)
	}
}

func (f *facade) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ours := strings.CutPrefix(r.URL.Path, "/v1/projects/"+f.project+"/connectors/"+f.connector+"/runs")
	if !ours || r.Header.Get("Authorization") != "Bearer "+f.key {
		problemAnswer(http.StatusForbidden, "forbidden")(w)
		return
	}
	if r.Method == http.MethodGet {
		f.lists = append(f.lists, r.URL.RawQuery)
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		from := max(min(offset, len(f.runs))-1, 0) // an event has come in since the page before
		page := f.runs[from:min(from+100, len(f.runs))]
		_ = json.NewEncoder(w).Encode(map[string]any{"items": page})
		return
	}
	f.replays = append(f.replays, strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/replay")+" "+r.Header.Get("Idempotency-Key"))
	if len(f.refuse) > 0 {
		answer := f.refuse[0]
		f.refuse = f.refuse[1:]
		answer(w)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"id": "again-" + strconv.Itoa(len(f.replays))})
}

// replay runs the command with a clock of its own.
func (f *facade) replay(t *testing.T, change func(*replayOptions), args ...string) (out, messages string, err error) {
	t.Helper()
	o := &replayOptions{
		restOptions: restOptions{server: f.URL, project: f.project, key: f.key}, connector: f.connector, rate: 60, now: func() time.Time { return replayNow },
	}
	change(o)
	o.api, err = o.client()
	require.NoError(t, err)
	o.api.wait = func(_ context.Context, d time.Duration) error {
		f.waited = append(f.waited, d)
		return nil
	}
	var stdout, stderr bytes.Buffer
	err = o.run(t.Context(), args, &stdout, &stderr)
	return stdout.String(), stderr.String(), err
}

func TestReplayOfNamedConnectorRuns(t *testing.T) {
	t.Parallel()
	f := newFacade(t, 0)
	first, second := uuid.NewString(), strings.ToUpper(uuid.NewString())
	out, messages, err := f.replay(t, func(o *replayOptions) { o.rate, o.resume = 30, "mine" }, first, second)
	require.NoError(t, err)
	require.Equal(t, first+" again-1\n"+second+" again-2\n", out)
	require.Contains(t, messages, "2 replayed")
	require.Equal(t, []string{first + " agentctl-mine-" + first, second + " agentctl-mine-" + strings.ToLower(second)}, f.replays)
	require.Equal(t, []time.Duration{2 * time.Second}, f.waited, "at the rate")
}

func TestReplayOfThoseThatAFilterFinds(t *testing.T) {
	t.Parallel()
	f := newFacade(t, 250)
	f.runs[3]["replay_of"] = uuid.NewString()
	choose := func(o *replayOptions) {
		o.status, o.since, o.until, o.dryRun = "failed", "2h", "2026-07-02T11:59:00Z", true
	}
	out, messages, err := f.replay(t, choose)
	require.NoError(t, err)
	ids := strings.Fields(out)
	require.Len(t, ids, 118, "without the newest, which is too new, the replay and those that are too old")
	require.Equal(t, f.runs[120]["id"], ids[0], "oldest first")
	require.Equal(t, f.runs[2]["id"], ids[117])
	require.Contains(t, messages, "118 would be replayed")
	require.Empty(t, f.replays)
	require.Len(t, f.lists, 2)
	require.Contains(t, f.lists[0], "status_filter=failed")
	require.Contains(t, f.lists[0], "time_range=6h")

	out, messages, err = f.replay(t, func(o *replayOptions) { choose(o); o.dryRun = false })
	require.NoError(t, err)
	require.Len(t, strings.Split(strings.TrimSpace(out), "\n"), 118)
	require.Len(t, f.replays, 118)
	require.Contains(t, messages, "100 of 118")
}

// TestReplayGoesOn: where there is no room for a while, and past what is gone; with each
// other answer it ends, and says how to go on.
func TestReplayGoesOn(t *testing.T) {
	t.Parallel()
	f := newFacade(t, 0)
	ids := []string{uuid.NewString(), uuid.NewString(), uuid.NewString()}
	f.refuse = []func(http.ResponseWriter){
		problemAnswer(429, "backlog_full"), problemAnswer(503, "store_unavailable"), problemAnswer(409, "gone"),
	}
	out, messages, err := f.replay(t, func(*replayOptions) {}, ids...)
	require.ErrorContains(t, err, "1 of 3 could not be replayed")
	require.Contains(t, messages, ids[0]+": not now")
	require.Len(t, strings.Split(strings.TrimSpace(out), "\n"), 2)
	require.Equal(t, []time.Duration{7 * time.Second, 7 * time.Second, time.Second, time.Second}, f.waited)
	require.Equal(t, f.replays[0], f.replays[2], "under the same key")

	for status, code := range map[int]string{409: "connector_paused", 403: "forbidden", 429: "project_storage_full"} {
		f.refuse = []func(http.ResponseWriter){problemAnswer(status, code)}
		_, _, err = f.replay(t, func(o *replayOptions) { o.resume = "mine" }, ids...)
		require.ErrorContains(t, err, "0 of 3 replayed, go on with --resume mine")
		require.ErrorContains(t, err, code)
	}
	f.refuse = nil
	for range restTries {
		f.refuse = append(f.refuse, problemAnswer(503, "store_unavailable"))
	}
	_, _, err = f.replay(t, func(*replayOptions) {}, ids[0])
	require.ErrorContains(t, err, "store_unavailable")
}

func TestReplayRefusesWhatHasNoEffect(t *testing.T) {
	t.Parallel()
	f := newFacade(t, 0)
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte(f.key+"\n"), 0o600))
	reach := []string{"replay", "--server", f.URL, "--project", f.project, "--api-key-file", file, "--connector", f.connector}
	id := uuid.NewString()
	out, _, err := run(t, append(reach, id)...)
	require.NoError(t, err)
	require.Equal(t, id+" again-1\n", out)
	for what, args := range map[string][]string{
		"not both":         {id, "--status", "failed"},
		"name connector":   {},
		"--status":         {"--status", "running", "--since", "1h"},
		"--since: is need": {"--status", "failed"},
		"30 days":          {"--status", "failed", "--since", "721h"},
		"--since: must":    {"--status", "failed", "--since", "yesterday"},
		"--until: must":    {"--status", "failed", "--since", "1h", "--until", "-1h"},
		"--rate":           {id, "--rate", "101"},
		"--resume":         {id, "--resume", "a b"},
		"connector run":    {"one"},
		"--connector":      {id, "--connector", "one"},
		"--project":        {id, "--project", "one"},
		"use https":        {id, "--server", "http://agents.example"},
		"--server: must":   {id, "--server", "agents.example"},
		"--api-key":        {id, "--api-key-file", "/dev/null"},
	} {
		_, _, err := run(t, append(reach, args...)...)
		require.ErrorContains(t, err, what, args)
	}
	require.Len(t, f.replays, 1)
	_, _, err = run(t, append(reach, id, "--project", uuid.NewString())...)
	require.ErrorContains(t, err, "403 forbidden")
}
