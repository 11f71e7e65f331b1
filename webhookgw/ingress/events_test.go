// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

func TestWantsEvents_AcceptHeader(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "application/json": false, "text/event-stream": true, "Text/Event-Stream;charset=utf-8": true,
		"application/json, text/event-stream": false, "text/event-stream, application/json;q=0.9": true,
		"text/event-stream;q=0": false, "text/event-stream;q=0.1, */*": true, "text/event-stream;q=2": false, "text/event-stream;q=x": false,
		"text/event-stream;q=NaN": false, ";;;, text/event-stream": true, "text/*": false,
	} {
		t.Run(accept, func(t *testing.T) {
			require.Equal(t, want, wantsEvents(&http.Request{Header: http.Header{"Accept": {accept}}}))
		})
	}
	require.True(t, wantsEvents(&http.Request{Header: http.Header{"Accept": {"text/html", "text/event-stream"}}}))
}

func FuzzAccept(f *testing.F) {
	f.Add("text/event-stream;q=0.5, application/json")
	f.Fuzz(func(t *testing.T, accept string) {
		wants := wantsEvents(&http.Request{Header: http.Header{"Accept": {accept}}})
		require.False(t, wants && !strings.Contains(strings.ToLower(accept), typeEvents))
	})
}

// sent returns the names and data of a stream's events.
func sent(t *testing.T, stream string) (names []string, data []string) {
	t.Helper()
	require.True(t, strings.HasSuffix(stream, "\n\n"), stream)
	for block := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		name, text, ok := strings.Cut(block, "\ndata: ")
		require.True(t, ok, block)
		require.NotContains(t, text, "\n")
		names, data = append(names, strings.TrimPrefix(name, "event: ")), append(data, text)
	}
	return names, data
}

// TestEvents_EndWithResult: with the JSON of a normal response.
func TestEvents_EndWithResult(t *testing.T) {
	t.Parallel()
	p := &past{keeper: keeper{mode: "sync"}, runs: someRuns(3)}
	h := servingStore(t, p)
	plain, streamed := httptest.NewRecorder(), httptest.NewRecorder()
	h.ServeHTTP(plain, calls(t))
	r := calls(t)
	r.Header.Set("Accept", typeEvents)
	h.ServeHTTP(streamed, r)
	require.Equal(t, http.StatusOK, streamed.Code)
	require.Equal(t, typeEvents, streamed.Header().Get("Content-Type"))
	require.Equal(t, "no-store", streamed.Header().Get("Cache-Control"))
	require.True(t, streamed.Flushed)
	names, data := sent(t, streamed.Body.String())
	require.Equal(t, []string{"accepted", "result"}, names, "the status of other gateways' runs is unknown")
	require.Equal(t, strings.TrimSuffix(plain.Body.String(), "\n"), data[1])
	var accepted webhookapi.Accepted
	require.NoError(t, json.Unmarshal([]byte(data[0]), &accepted))
	require.Equal(t, webhookapi.Accepted{Status: "ok", DispatchedTo: 3, RunIDs: p.runs}, accepted)
	require.Empty(t, h.outputs.byRun)
	require.Zero(t, h.callers.Taken())
}

// TestEvents_IncompleteIsBrokenOff: its last event does not look complete.
func TestEvents_IncompleteIsBrokenOff(t *testing.T) {
	t.Parallel()
	p := &past{keeper: keeper{mode: "sync"}, runs: someRuns(3)}
	p.fails = p.runs[2]
	h, w, r := servingStore(t, p), httptest.NewRecorder(), calls(t)
	r.Header.Set("Accept", typeEvents)
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { h.ServeHTTP(w, r) })
	require.False(t, strings.HasSuffix(w.Body.String(), "\n"))
}

// TestEvents_RejectionIsNoStream: an error is a normal response.
func TestEvents_RejectionIsNoStream(t *testing.T) {
	t.Parallel()
	h := serving(t, &keeper{mode: "sync"})
	w, problem := post(t, h, strings.NewReader(`[]`), "Accept", typeEvents)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.EqualValues(t, "invalid_json", problem.Code)
}

// TestAdmission_KnownStatus: only for runs whose status follows from the commit.
func TestAdmission_KnownStatus(t *testing.T) {
	t.Parallel()
	ids := someRuns(2)
	a := admission{
		Admission: store.Admission{Verdict: store.Accepted, RunIDs: ids},
		runs:      []store.EventRun{{}, {ErrorCode: runerror.FilesRequired}},
	}
	require.Equal(t, store.RunQueued, a.knownStatus(0))
	require.Empty(t, a.knownStatus(1), "the run has failed")
	a.runs[1] = store.EventRun{Concurrency: store.ConcurrencyKey{Text: "k"}}
	require.Empty(t, a.knownStatus(1), "the run may be cancelled")
	a.Begun = &store.Claimed{Run: store.Run{ID: ids[0]}}
	require.Equal(t, store.RunRunning, a.knownStatus(0))
	a.Verdict = store.Repeated
	require.Empty(t, a.knownStatus(0))
}

// streaming returns a stream of a request with one run, on a recorder.
func streaming(w http.ResponseWriter, run uuid.UUID) *eventStream {
	return beginEvents(w, admission{
		Admission: store.Admission{Verdict: store.Accepted, RunIDs: []uuid.UUID{run}}, runs: []store.EventRun{{}},
	})
}

// TestEvents_KeepAlive: comments are sent while nothing happens, and each status is sent once.
func TestEvents_KeepAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, st, hints := waitsIn(t)
		made, kept := stamped()
		w := httptest.NewRecorder()
		at := recordedEvent{run: kept, runs: []uuid.UUID{kept.ID}, events: streaming(w, kept.ID)}
		defer at.events.close()
		end, answered := h.waiters.watchRun(made), make(chan error, 1)
		defer h.waiters.stopWatch(end)
		go func() {
			first, err := h.awaitFirst(t.Context(), at, end)
			if err == nil {
				h.outputs.releaseOutput(first)
			}
			answered <- err
		}()
		time.Sleep(2*keepAlive + time.Second)
		synctest.Wait()
		for range 2 { // a false hint about the end, and the run continues
			hints <- store.Hint{Topic: store.TopicDone, Key: kept}
			synctest.Wait()
		}
		st.end(kept, nil)
		require.NoError(t, soon(t, answered))
		names, data := w.Body.String(), `"status":"queued"}`+"\n\n"
		before, after, found := strings.Cut(names, data)
		require.True(t, found, names)
		require.True(t, strings.HasPrefix(before, "event: accepted\n"))
		require.True(t, strings.HasPrefix(after, ":\n\n:\n\nevent: progress\n"), after)
		require.Equal(t, 1, strings.Count(after, `"status":"running"}`))
	})
}

// gone is a client with a broken connection.
type gone struct{ *httptest.ResponseRecorder }

func (gone) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// TestEvents_ClosesUnreadStream: a client that does not read is disconnected.
func TestEvents_ClosesUnreadStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _, _ := waitsIn(t)
		made, kept := stamped()
		at := recordedEvent{run: kept, runs: []uuid.UUID{kept.ID}, events: streaming(gone{httptest.NewRecorder()}, kept.ID)}
		defer at.events.close()
		end := h.waiters.watchRun(made)
		defer h.waiters.stopWatch(end)
		ctx, cancel := context.WithTimeout(t.Context(), 2*keepAlive)
		defer cancel()
		_, err := h.awaitFirst(ctx, at, end)
		require.ErrorIs(t, err, errNotRead)
	})
}
