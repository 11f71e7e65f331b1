// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/store"
)

// tracedEntries are the journal of a run that calls a tool.
var tracedEntries = []store.JournalEntry{
	{Sequence: 1, Kind: store.JournalModelAnswer, Data: json.RawMessage(`{"agent":"hello","turn":1,"model":"openai/gpt-5","at":"2026-03-02T10:00:00Z","ms":250,
		"content":{"parts":[{"functionCall":{"id":"c1","name":"lookup","args":{"order":"4711"}}}]},"usage":{"input_tokens":100,"output_tokens":20,"total_tokens":120},
		"cost":{"currency":"EUR","nanos":1500000000},"server":{"address":"api.example","port":443},
		"attempts":[{"at":"2026-03-02T10:00:00.1Z","model":"openai/gpt-5","error":"model_rate_limited"}]}`)},
	{Sequence: 2, Kind: store.JournalToolStarted, Data: json.RawMessage(`{"agent":"hello","call_id":"c1","tool":"lookup","arguments":{"order":"4711"},"at":"2026-03-02T10:00:01Z"}`)},
	{Sequence: 3, Kind: store.JournalToolResult, Data: json.RawMessage(`{"call_id":"c1","tool":"lookup","ms":40,"error":"no such order","code":"script_error","more_log":2,
		"log":[{"level":"warn","text":"slow","fields":{"ms":40},"position":"tools/a.star:3:2"}]}`)},
}

func getRun(t *testing.T, w *apiservertest.ProjectWithHistory, key, id string) runs.Run {
	t.Helper()
	status, answer := w.Call(t, key, http.MethodGet, "/runs/"+id, "")
	require.Equal(t, http.StatusOK, status, "%s", answer)
	return apiservertest.Decode[runs.Run](t, answer)
}

// A run shows the steps and log lines of its journal while it is open and after its end. Lists show none.
func TestGetRun_ShowsTrace(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, lease := w.CreateKey(t, nil), w.ClaimRun(t)
	id := lease.Run.ID.String()
	require.NoError(t, w.Store.AppendJournal(t.Context(), lease, tracedEntries[:2]))

	open := getRun(t, w, key, id)
	require.Len(t, open.Traces, 4)
	require.Equal(t, runs.SpanKind("tool"), open.Traces[3].Kind)
	require.Nil(t, open.Traces[3].EndedAt)
	require.JSONEq(t, `{"order":"4711"}`, encode(t, open.Traces[3].Input))
	require.Empty(t, open.Logs)

	ends, err := w.Store.Complete(t.Context(), []store.Completion{{
		Lease: lease, Status: store.RunCompleted, Output: "Sorry", Journal: tracedEntries[2:],
	}})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, ends)
	ended := getRun(t, w, key, id)
	require.Len(t, ended.Traces, 4)
	for i, name := range []string{"run hello", "invoke_agent hello", "chat gpt-5", "execute_tool lookup"} {
		require.Equal(t, name, ended.Traces[i].Name)
		require.NotNil(t, ended.Traces[i].EndedAt, name)
	}
	request, call := ended.Traces[2], ended.Traces[3]
	deployment, err := w.Store.Deployment(t.Context(), store.Key{ProjectID: lease.Run.ProjectID, ID: uuid.MustParse(*ended.DeploymentID)})
	require.NoError(t, err)
	for _, s := range ended.Traces[:2] {
		require.Contains(t, string(s.Attributes), `"gen_ai.agent.version":"`+deployment.BundleDigest+`"`)
	}
	require.Contains(t, string(request.Attributes), `"server.address":"api.example","server.port":443`)
	require.Equal(t, []runs.SpanEvent{{
		At: time.Date(2026, 3, 2, 10, 0, 0, 100_000_000, time.UTC), Name: "agentplatform.attempt",
		Attributes: rest.Object(`{"error.type":"model_rate_limited","gen_ai.request.model":"gpt-5"}`),
	}}, request.Events)
	require.Empty(t, call.Events)
	require.EqualValues(t, 250, *request.DurationMS)
	require.EqualValues(t, 120, request.TokenUsage.Value.TotalTokens)
	require.InDelta(t, 1.5, request.Cost.Value.Amount, 1e-9)
	require.JSONEq(t, `[{"role":"assistant","parts":[{"type":"tool_call","id":"c1","name":"lookup","arguments":{"order":"4711"}}]}]`, encode(t, request.Output))
	require.Equal(t, "script_error", *call.ErrorType)
	require.Equal(t, "no such order", *call.Error)
	require.Equal(t, runtrace.SpanID(id, "c1"), call.ID)
	require.Equal(t, ended.Traces[1].ID, *call.ParentID)
	require.Len(t, ended.Logs, 1)
	require.Equal(t, "tools/a.star:3:2", *ended.Logs[0].Position)
	require.Equal(t, runs.LogLevel("warning"), ended.Logs[0].Level)
	require.JSONEq(t, `{"ms":40}`, string(ended.Logs[0].Fields))
	require.Equal(t, call.ID, ended.Logs[0].SpanID)
	require.Equal(t, 2, ended.MoreLogs)

	_, listed := w.Call(t, key, http.MethodGet, "/runs", "")
	for _, run := range apiservertest.Decode[runs.RunList](t, listed).Items {
		require.Empty(t, run.Traces)
		require.Empty(t, run.Logs)
	}
}

// An entry that cannot be read hides only itself. A request logs such entries once, with their number.
func TestGetRun_SkipsUnreadableEntries(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, lease := w.CreateKey(t, nil), w.ClaimRun(t)
	var log bytes.Buffer
	w.Server = w.NewReplica(t, func(o *apiserver.Options) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	unreadable := func(sequence int64) store.JournalEntry {
		return store.JournalEntry{Sequence: sequence, Kind: store.JournalToolStarted, Data: json.RawMessage(`{"agent":7}`)}
	}
	last := tracedEntries[2]
	last.Sequence = 4
	require.NoError(t, w.Store.AppendJournal(t.Context(), lease, []store.JournalEntry{tracedEntries[0], unreadable(2), unreadable(3), last}))
	require.Len(t, getRun(t, w, key, lease.Run.ID.String()).Traces, 4)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), `"entries":2,"error":"reading journal entry 2`)
}

// endlessJournal is a store whose journals have no end. It counts the bytes of the entries that are read.
type endlessJournal struct {
	apiserver.Store
	read *int64
}

func (s endlessJournal) JournalAfter(_ context.Context, _ store.Key, after int64, limit int) (page []store.JournalEntry, _ error) {
	data := json.RawMessage(`{"agent":"hello","call_id":"c` + strconv.FormatInt(after, 10) + `","tool":"t","arguments":"` + strings.Repeat("x", 1<<20-100) + `"}`)
	for i := range int64(min(limit, store.MaxJournalPage/len(data))) {
		e := store.JournalEntry{Sequence: after + i + 1, Kind: store.JournalToolStarted, Data: data}
		*s.read += e.Size()
		page = append(page, e)
	}
	return page, nil
}

// A request reads a limited part of a journal, and the run says that the rest is missing.
func TestGetRun_LimitsJournal(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	require.False(t, getRun(t, w, key, w.IDs["run"]).TracesTruncated)
	var read int64
	w.Server = w.NewReplica(t, func(o *apiserver.Options) { o.Store = endlessJournal{w.Store, &read} })
	run := getRun(t, w, key, w.IDs["run"])
	require.True(t, run.TracesTruncated)
	require.NotEmpty(t, run.Traces)
	require.LessOrEqual(t, read, int64(8<<20+store.MaxJournalPage))
}

func encode(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	require.NoError(t, err)
	return string(data)
}
