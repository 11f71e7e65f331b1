// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
)

// followRun opens the stream of a run at a facade.
func followRun(t *testing.T, w *apiservertest.ProjectWithHistory, s *apiserver.Server, key string, run uuid.UUID, after int) *apiservertest.Follower {
	t.Helper()
	return w.Follow(t, s, key, "/runs/"+run.String()+"/events", after)
}

// nextEvent returns an event in one line: its ID, its name, and what its data says.
func nextEvent(t *testing.T, f *apiservertest.Follower) string {
	t.Helper()
	text := f.Next()
	if text == "" {
		return ""
	}
	head, data, ok := strings.Cut(text, " data: ")
	require.True(t, ok, text)
	head = strings.ReplaceAll(strings.ReplaceAll(head, "id: ", ""), "event: ", "")
	switch {
	case strings.HasSuffix(head, "step"):
		s := apiservertest.Decode[runs.Span](t, []byte(data))
		state := "open"
		if s.EndedAt != nil {
			state = "ended"
		}
		if s.ErrorType != nil {
			state += " " + *s.ErrorType
		}
		return head + " " + s.Name + " " + state
	case strings.HasSuffix(head, "log"):
		return head + " " + apiservertest.Decode[runs.LogLine](t, []byte(data)).Message
	}
	return head + " " + data
}

func requireEvents(t *testing.T, f *apiservertest.Follower, want ...string) {
	t.Helper()
	for _, event := range want {
		require.Equal(t, event, nextEvent(t, f))
	}
}

// entryOf returns an entry of tracedEntries at a place in a journal.
func entryOf(sequence int64, entry int) store.JournalEntry {
	e := tracedEntries[entry]
	e.Sequence = sequence
	return e
}

// projectsOnStores returns a project on each kind of store.
func projectsOnStores(t *testing.T, test func(t *testing.T, w *apiservertest.ProjectWithHistory)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, apiservertest.NewProjectWithHistory(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db, err := postgres.Open(t.Context(), postgres.Options{DSN: testenv.Postgres(t), Logger: apiservertest.DiscardLogger()})
		require.NoError(t, err)
		test(t, apiservertest.NewHistory(t, apiservertest.NewProjectOn(t, db)))
	})
}

const ended = `{"status":"completed","error_code":null,"more_traces":0,"more_logs":2}`

// A stream shows each step when it begins and when it ends, on each replica, and ends with the run. A reader that comes again
// gets only what it lacks.
func TestRunEvents_FollowRun(t *testing.T) {
	t.Parallel()
	projectsOnStores(t, func(t *testing.T, w *apiservertest.ProjectWithHistory) {
		key := w.CreateKey(t, nil)
		queued := followRun(t, w, w.NewReplica(t, nil), key, w.QueuedRun, 0)
		requireEvents(t, queued, "step run hello open")
		lease := w.ClaimRun(t)
		require.Equal(t, w.QueuedRun, lease.Run.ID)
		requireEvents(t, queued, "step run hello open")
		require.NoError(t, w.Store.AppendJournal(t.Context(), lease, tracedEntries[:1]))
		requireEvents(t, queued, "step invoke_agent hello open", "1 step chat gpt-5 ended")
		require.NoError(t, w.Store.AppendJournal(t.Context(), lease, tracedEntries[1:2]))
		requireEvents(t, queued, "2 step execute_tool lookup open")
		resumed := followRun(t, w, w.Server, key, w.QueuedRun, 1)
		requireEvents(t, resumed, "step run hello open", "2 step execute_tool lookup open")
		ends, err := w.Store.Complete(t.Context(), []store.Completion{{Lease: lease, Status: store.RunCompleted, Output: "Sorry", Journal: tracedEntries[2:]}})
		require.NoError(t, err)
		require.Equal(t, []error{nil}, ends)
		for _, f := range []*apiservertest.Follower{queued, resumed} {
			requireEvents(t, f, "step execute_tool lookup ended script_error", "3 log slow", "step run hello ended", "step invoke_agent hello ended",
				"3 end "+ended, "")
		}
		requireEvents(t, followRun(t, w, w.Server, key, w.QueuedRun, 2), "step execute_tool lookup ended script_error", "3 log slow",
			"step run hello ended", "step invoke_agent hello ended", "3 end "+ended, "")
		require.Eventually(t, func() bool { return w.Server.Service.Streams.Taken() == 0 }, time.Minute, time.Millisecond)
	})
}

// A step that was in progress when the run ended is shown again, as interrupted.
func TestRunEvents_ShowInterruptedSteps(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, lease := w.CreateKey(t, nil), w.ClaimRun(t)
	require.NoError(t, w.Store.AppendJournal(t.Context(), lease, []store.JournalEntry{entryOf(1, 1)}))
	f := followRun(t, w, w.Server, key, lease.Run.ID, 0)
	requireEvents(t, f, "step run hello open", "step invoke_agent hello open", "1 step execute_tool lookup open")
	require.NoError(t, w.Store.Cancel(t.Context(), lease.Run, runerror.Cancelled, "no"))
	requireEvents(t, f, "step run hello ended cancelled", "step invoke_agent hello ended", "step execute_tool lookup ended interrupted",
		`1 end {"status":"cancelled","error_code":"cancelled","more_traces":0,"more_logs":0}`, "")
}

// A reader that reads nothing holds up neither the readings of its project nor other readers. It gets all events in the end.
func TestRunEvents_SlowReader(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, lease := w.CreateKey(t, nil), w.ClaimRun(t)
	const calls = 300
	slow := followRun(t, w, w.Server, key, lease.Run.ID, 0)
	var entries []store.JournalEntry
	for i := range calls {
		entries = append(entries, store.JournalEntry{Sequence: int64(i + 1), Kind: store.JournalToolResult, Data: json.RawMessage(fmt.Sprintf(
			`{"agent":"hello","call_id":"c%d","tool":"t","result":%q,"log":[{"text":%q}]}`, i, strings.Repeat("r", 8<<10), strings.Repeat("l", 3<<10)))})
	}
	require.NoError(t, w.Store.AppendJournal(t.Context(), lease, entries))
	ends, err := w.Store.Complete(t.Context(), []store.Completion{{Lease: lease, Status: store.RunCompleted}})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, ends)
	for _, f := range []*apiservertest.Follower{followRun(t, w, w.Server, key, lease.Run.ID, calls), slow} {
		lines := 0
		last := ""
		for event := nextEvent(t, f); event != ""; event = nextEvent(t, f) {
			if strings.Contains(event, " log ") {
				lines++
			}
			last = event
		}
		require.Equal(t, fmt.Sprintf(`%d end {"status":"completed","error_code":null,"more_traces":0,"more_logs":0}`, calls), last)
		if f == slow {
			require.Equal(t, calls, lines)
		}
		require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodGet, "/runs", "").Code)
	}
}

// erasingStore is a store in which all runs are erased from some time on.
type erasingStore struct {
	store.Store
	erased atomic.Bool
}

func (s *erasingStore) Run(ctx context.Context, key store.Key) (store.Run, error) {
	if s.erased.Load() {
		return store.Run{}, store.ErrNotFound
	}
	return s.Store.Run(ctx, key)
}

// The stream of a run that is erased meanwhile ends, and then there is no such run.
func TestRunEvents_EndsWithErasedRun(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, lease := w.CreateKey(t, nil), w.ClaimRun(t)
	db := &erasingStore{Store: w.Store}
	w.Server = w.NewReplica(t, func(o *apiserver.Options) { o.Store = db })
	f := followRun(t, w, w.Server, key, lease.Run.ID, 0)
	requireEvents(t, f, "step run hello open")
	db.erased.Store(true)
	require.NoError(t, w.Store.AppendJournal(t.Context(), lease, tracedEntries[:1]))
	for event := f.Next(); event != ""; event = f.Next() { // The stream may have read the run before it was erased.
		require.NotContains(t, event, "event: end")
	}
	apiservertest.RequireCode(t, http.StatusNotFound, httpserver.CodeNotFound, w.Project, key, http.MethodGet, "/runs/"+lease.Run.ID.String()+"/events", "")
}

// hangingStore is a store in which reading a journal lasts until its context ends.
type hangingStore struct {
	store.Store
	reading chan struct{}
}

func (s *hangingStore) JournalAfter(ctx context.Context, _ store.Key, _ int64, _ int) ([]store.JournalEntry, error) {
	s.reading <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// The stream ends when the reader disconnects or loses its permission, and when the facade stops, also while it reads and sends.
func TestRunEvents_EndStream(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *apiservertest.ProjectWithHistory, f *apiservertest.Follower, stop chan struct{}){
		"reader":   func(_ *apiservertest.ProjectWithHistory, f *apiservertest.Follower, _ chan struct{}) { f.Leave() },
		"stopping": func(_ *apiservertest.ProjectWithHistory, _ *apiservertest.Follower, stop chan struct{}) { close(stop) },
		"revoked": func(w *apiservertest.ProjectWithHistory, _ *apiservertest.Follower, _ chan struct{}) {
			var list v1alpha1.APIKeyList
			require.NoError(t, w.Client.List(t.Context(), &list))
			for i := range list.Items {
				if list.Items[i].Namespace == w.Namespace {
					list.Items[i].Spec.Revoked = true
					require.NoError(t, w.Client.Update(t.Context(), &list.Items[i]))
				}
			}
		},
	} {
		for state, isReading := range map[string]bool{"waiting": false, "reading": true} {
			t.Run(name+" while "+state, func(t *testing.T) {
				t.Parallel()
				w, stop := apiservertest.NewProjectWithHistory(t), make(chan struct{})
				db := &hangingStore{Store: w.Store, reading: make(chan struct{}, 1)}
				w.Server = w.NewReplica(t, func(o *apiserver.Options) {
					o.Stopping = stop
					if isReading {
						o.Store = db
					}
				})
				f := followRun(t, w, w.Server, w.CreateKey(t, nil), w.QueuedRun, 0)
				requireEvents(t, f, "step run hello open")
				if isReading {
					<-db.reading
				}
				end(w, f, stop)
				require.Empty(t, f.Next())
				require.Eventually(t, func() bool { return w.Server.Service.Streams.Taken() == 0 }, time.Minute, time.Millisecond)
			})
		}
	}
}

// A run of another project, or of an environment that the key does not reach, has no stream. Neither has a project at its limit.
func TestRunEvents_Refused(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/runs/"+w.QueuedRun.String()+"/events"
	other := apiservertest.NewProjectWithHistory(t)
	apiservertest.RequireCode(t, http.StatusNotFound, httpserver.CodeNotFound, other.Project, other.CreateKey(t, nil), http.MethodGet, path, "")
	apiservertest.RequireCode(t, http.StatusForbidden, httpserver.CodeForbidden, w.Project,
		w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
			k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
		}), http.MethodGet, path, "")
	apiservertest.RequireCode(t, http.StatusForbidden, httpserver.CodeForbidden, w.Project,
		w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
			k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"agents.view"}
		}), http.MethodGet, path, "")
	require.NoError(t, w.Server.Service.Streams.Take(w.ProjectID, rest.MaxStreams/rest.StreamShare))
	apiservertest.RequireCode(t, http.StatusTooManyRequests, httpserver.CodeRateLimited, w.Project, key, http.MethodGet, path, "")
	got := w.Request(t, key, http.MethodGet, path, "", "Last-Event-ID", "-1")
	apiservertest.RequireField(t, got.Code, got.Body.Bytes(), "header.Last-Event-ID")
}
