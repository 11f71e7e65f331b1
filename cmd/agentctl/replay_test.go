// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	"github.com/agentplatform/agentplatform/internal/restclient"
)

// facade is the part of a REST API that is about replays. Requests are sequential.
type facade struct {
	*httptest.Server
	key, project, connector string
	// refuse responds instead of a replay, once per element.
	refuse []func(http.ResponseWriter)
	// replays are the paths and the idempotency keys of the requested replays.
	replays []string
	waited  []time.Duration
	// asked are the calls about replays of selected runs. progress are their responses.
	asked    []string
	progress []string
}

var replayNow = time.Date(2026, 7, 2, 12, 0, 0, 0, time.UTC)

func newFacade(t *testing.T) *facade {
	t.Helper()
	f := &facade{key: keys.Generate().String(), project: uuid.NewString(), connector: uuid.NewString()}
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
	path, ours := strings.CutPrefix(r.URL.Path, "/v1/projects/"+f.project+"/connectors/"+f.connector)
	if !ours || r.Header.Get("Authorization") != "Bearer "+f.key {
		problemAnswer(http.StatusForbidden, "forbidden")(w)
		return
	}
	if of, many := strings.CutPrefix(path, "/replays"); many {
		body, _ := io.ReadAll(r.Body)
		f.asked = append(f.asked, strings.TrimSpace(r.Method+" "+of+" "+string(body)))
		_, _ = io.WriteString(w, f.progress[0])
		f.progress = f.progress[1:]
		return
	}
	path = strings.TrimPrefix(path, "/runs")
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

// runReplay runs the command with a fixed clock.
func (f *facade) runReplay(t *testing.T, change func(*replayOptions), args ...string) (out, messages string, err error) {
	t.Helper()
	o := &replayOptions{
		restOptions: restOptions{server: f.URL, project: f.project, key: f.key}, connector: f.connector, rate: 60, now: func() time.Time { return replayNow },
	}
	change(o)
	o.api, err = o.newClient()
	require.NoError(t, err)
	o.api.Wait = func(_ context.Context, d time.Duration) error {
		f.waited = append(f.waited, d)
		return nil
	}
	var stdout, stderr bytes.Buffer
	err = o.replayRuns(t.Context(), args, &stdout, &stderr)
	return stdout.String(), stderr.String(), err
}

// Named runs are replayed at the rate, each under an idempotency key of its own.
func TestReplay_ReplaysNamedRuns(t *testing.T) {
	t.Parallel()
	f := newFacade(t)
	first, second := uuid.NewString(), strings.ToUpper(uuid.NewString())
	out, messages, err := f.runReplay(t, func(o *replayOptions) { o.rate, o.resume = 30, "mine" }, first, second)
	require.NoError(t, err)
	require.Equal(t, first+" again-1\n"+second+" again-2\n", out)
	require.Contains(t, messages, "2 replayed")
	require.Equal(t, []string{first + " agentctl-mine-" + first, second + " agentctl-mine-" + strings.ToLower(second)}, f.replays)
	require.Equal(t, []time.Duration{2 * time.Second}, f.waited, "at the rate")
}

// A delivery that waits for its next attempt is not replayed: its next attempt is due.
func TestReplay_ReportsDueDeliveries(t *testing.T) {
	t.Parallel()
	f, id := newFacade(t), uuid.NewString()
	f.refuse = []func(http.ResponseWriter){func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"id":"`+id+`"}`) }}
	out, messages, err := f.runReplay(t, func(*replayOptions) {}, strings.ToUpper(id))
	require.NoError(t, err)
	require.Equal(t, strings.ToUpper(id)+" "+id+"\n", out)
	require.Contains(t, messages, "its next attempt is due now")
	f.refuse = nil
	_, messages, err = f.runReplay(t, func(*replayOptions) {}, id)
	require.NoError(t, err)
	require.NotContains(t, messages, "due now")
}

// The platform replays selected runs, and the command shows the progress.
func TestReplay_FollowsSelectedRuns(t *testing.T) {
	t.Parallel()
	f := newFacade(t)
	id := uuid.NewString()
	f.progress = []string{
		`{"id":"` + id + `","status":"running","matched":3}`, `{"status":"running","matched":3,"replayed":1,"reason":null}`,
		`{"status":"running","matched":3,"replayed":1,"reason":"backlog_full","detail":"Later."}`,
		`{"status":"running","matched":3,"replayed":1,"reason":"backlog_full","detail":"Later."}`,
		`{"status":"completed","matched":3,"replayed":3}`,
	}
	choose := func(o *replayOptions) {
		o.status, o.since, o.until, o.trigger = []string{"failed", "skipped"}, "2h", "2026-07-02T11:59:00Z", "webhook"
	}
	out, messages, err := f.runReplay(t, choose)
	require.NoError(t, err)
	require.Equal(t, id+"\n", out)
	require.Equal(t, "1 of 3 replayed\n1 of 3 replayed, waiting: Later.\n3 of 3 replayed, completed\n", messages)
	require.Equal(t, []time.Duration{replayPoll, replayPoll, replayPoll}, f.waited)
	require.Equal(t, []string{
		`POST  {"dry_run":false,"rate_per_minute":60,"since":"2026-07-02T10:00:00Z","status":["failed","skipped"],"trigger_type":"webhook","until":"2026-07-02T11:59:00Z"}`,
		"GET /" + id, "GET /" + id, "GET /" + id, "GET /" + id,
	}, f.asked)

	f.progress = []string{`{"status":"completed","matched":3,"at_least":true,"replayed":1,"refused":2,"refusals":{"not_storable":1,"gone":1}}`}
	_, _, err = f.runReplay(t, func(o *replayOptions) { o.show, o.rate = id, 600 })
	require.ErrorContains(t, err, "1 of at least 3 replayed, 2 not (gone 1, not_storable 1), completed")

	f.asked, f.progress = nil, []string{`{"status":"dry_run","matched":3}`}
	out, messages, err = f.runReplay(t, func(o *replayOptions) { choose(o); o.dryRun = true })
	require.NoError(t, err)
	require.Empty(t, out)
	require.Equal(t, "3 would be replayed\n", messages)
	require.Contains(t, f.asked[0], `"dry_run":true`)
}

// An interrupted command tells how to follow and cancel the replay.
func TestReplay_ContinuesWhenInterrupted(t *testing.T) {
	t.Parallel()
	f := newFacade(t)
	id := uuid.NewString()
	f.progress = []string{`{"id":"` + id + `","status":"running","matched":3}`, `{"status":"running","matched":3}`}
	o := &replayOptions{
		restOptions: restOptions{server: f.URL, project: f.project, key: f.key}, connector: f.connector, rate: 60,
		status: []string{"failed"}, since: "1h", now: func() time.Time { return replayNow },
	}
	var err error
	o.api, err = o.newClient()
	require.NoError(t, err)
	o.api.Wait = func(context.Context, time.Duration) error { return context.Canceled }
	var stdout, stderr bytes.Buffer
	err = o.replayRuns(t.Context(), nil, &stdout, &stderr)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "--show "+id)
	require.ErrorContains(t, err, "--cancel "+id)

	f.asked, f.progress = nil, []string{`{"status":"cancelled","matched":3,"replayed":1}`}
	_, messages, err := f.runReplay(t, func(o *replayOptions) { o.cancel = id })
	require.NoError(t, err)
	require.Equal(t, "1 of 3 replayed, cancelled\n", messages)
	require.Equal(t, []string{"POST /" + id + "/cancel"}, f.asked)
}

// Named replays wait while the platform is busy, and tell how to resume after other errors.
func TestReplay_WaitsAndResumes(t *testing.T) {
	t.Parallel()
	f := newFacade(t)
	ids := []string{uuid.NewString(), uuid.NewString(), uuid.NewString()}
	f.refuse = []func(http.ResponseWriter){
		problemAnswer(429, "backlog_full"), problemAnswer(503, "store_unavailable"), problemAnswer(409, "gone"),
	}
	out, messages, err := f.runReplay(t, func(*replayOptions) {}, ids...)
	require.ErrorContains(t, err, "1 of 3 could not be replayed")
	require.Contains(t, messages, ids[0]+": not now")
	require.Len(t, strings.Split(strings.TrimSpace(out), "\n"), 2)
	require.Equal(t, []time.Duration{7 * time.Second, 7 * time.Second, time.Second, time.Second}, f.waited)
	require.Equal(t, f.replays[0], f.replays[2], "under the same key")

	for status, code := range map[int]string{409: "connector_paused", 403: "forbidden", 429: "project_storage_full"} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			f.refuse = []func(http.ResponseWriter){problemAnswer(status, code)}
			_, _, err := f.runReplay(t, func(o *replayOptions) { o.resume = "mine" }, ids...)
			require.ErrorContains(t, err, "0 of 3 replayed, continue with --resume mine")
			require.ErrorContains(t, err, code)
		})
	}
	f.refuse = nil
	for range restclient.MaxAttempts {
		f.refuse = append(f.refuse, problemAnswer(503, "store_unavailable"))
	}
	_, _, err = f.runReplay(t, func(*replayOptions) {}, ids[0])
	require.ErrorContains(t, err, "store_unavailable")
}

// Flags that have no effect together are rejected.
func TestReplay_RejectsConflictingFlags(t *testing.T) {
	t.Parallel()
	f := newFacade(t)
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte(f.key+"\n"), 0o600))
	reach := []string{"replay", "--server", f.URL, "--project", f.project, "--api-key-file", file, "--connector", f.connector}
	id := uuid.NewString()
	out, _, err := run(t, append(reach, id)...)
	require.NoError(t, err)
	require.Equal(t, id+" again-1\n", out)
	for what, args := range map[string][]string{
		"not both":                          {id, "--status", "failed"},
		"name connector":                    {},
		"--status":                          {"--status", "failed,running", "--since", "1h"},
		"--resume: needs connector run IDs": {"--status", "failed", "--since", "1h", "--resume", "x"},
		"one of the two":                    {"--show", id, "--cancel", id},
		"need an existing replay":           {id, "--show", id},
		"--status: needs --since":           {"--status", "failed"},
		"--since: must":                     {"--status", "failed", "--since", "yesterday"},
		"--until: must":                     {"--status", "failed", "--since", "1h", "--until", "-1h"},
		"--rate":                            {id, "--rate", "6001"},
		"--resume":                          {id, "--resume", "a b"},
		"connector run":                     {"one"},
		"--connector":                       {id, "--connector", "one"},
		"jsonpath={.status.id}":             {id, "--project", "one"},
		"use https":                         {id, "--server", "http://agents.example"},
		"--server, or AGENTPLATFORM_SERVER: must": {id, "--server", "agents.example"},
		"--api-key": {id, "--api-key-file", "/dev/null"},
	} {
		t.Run(what, func(t *testing.T) {
			_, _, err := run(t, append(reach, args...)...)
			require.ErrorContains(t, err, what, args)
		})
	}
	require.Len(t, f.replays, 1)
	_, _, err = run(t, append(reach, id, "--project", uuid.NewString())...)
	require.ErrorContains(t, err, "403 forbidden")
}
