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

	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

func TestWhoWantsEvents(t *testing.T) {
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

// sent are the events of a stream by name and data.
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

// TestAStreamEndsWithTheAnswer: with the very JSON that others get.
func TestAStreamEndsWithTheAnswer(t *testing.T) {
	t.Parallel()
	p := &past{keeper: keeper{mode: modeSync}, runs: someRuns(3)}
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
	require.Equal(t, []string{"accepted", "result"}, names, "nothing is known of what others have begun")
	require.Equal(t, strings.TrimSuffix(plain.Body.String(), "\n"), data[1])
	var accepted webhookapi.Accepted
	require.NoError(t, json.Unmarshal([]byte(data[0]), &accepted))
	require.Equal(t, webhookapi.Accepted{Status: "ok", DispatchedTo: 3, RunIDs: p.runs}, accepted)
	require.Empty(t, h.outputs.byRun)
	require.Zero(t, h.callers.Taken())
}

// TestAStreamThatCannotEndIsBrokenOff: and its last event does not look whole.
func TestAStreamThatCannotEndIsBrokenOff(t *testing.T) {
	t.Parallel()
	p := &past{keeper: keeper{mode: modeSync}, runs: someRuns(3)}
	p.fails = p.runs[2]
	h, w, r := servingStore(t, p), httptest.NewRecorder(), calls(t)
	r.Header.Set("Accept", typeEvents)
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { h.ServeHTTP(w, r) })
	require.False(t, strings.HasSuffix(w.Body.String(), "\n"))
}

// TestWhatIsRefusedIsNoStream.
func TestWhatIsRefusedIsNoStream(t *testing.T) {
	t.Parallel()
	h := serving(t, &keeper{mode: modeSync})
	w, problem := post(t, h, strings.NewReader(`[]`), "Accept", typeEvents)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.EqualValues(t, "invalid_json", problem.Code)
}

// TestStatesThatFollowFromTheAcceptance: and none that do not.
func TestStatesThatFollowFromTheAcceptance(t *testing.T) {
	t.Parallel()
	ids := someRuns(2)
	a := admission{
		Admission: store.Admission{Verdict: store.Accepted, RunIDs: ids},
		runs:      []store.EventRun{{}, {ErrorCode: store.RunErrorFilesRequired}},
	}
	require.Equal(t, store.RunQueued, a.known(0))
	require.Empty(t, a.known(1), "it has failed")
	a.runs[1] = store.EventRun{Concurrency: store.ConcurrencyKey{Text: "k"}}
	require.Empty(t, a.known(1), "it may be cancelled")
	a.Begun = &store.Claimed{Run: store.Run{ID: ids[0]}}
	require.Equal(t, store.RunRunning, a.known(0))
	a.Verdict = store.Repeated
	require.Empty(t, a.known(0))
}

// streaming is a stream on a recorder, of a request with one run.
func streaming(w http.ResponseWriter, run uuid.UUID) *events {
	return beginEvents(w, admission{
		Admission: store.Admission{Verdict: store.Accepted, RunIDs: []uuid.UUID{run}}, runs: []store.EventRun{{}},
	})
}

// TestAStreamIsKeptAlive: while nothing happens, and tells a state that was read once.
func TestAStreamIsKeptAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, st, hints := waitsIn(t)
		made, kept := stamped()
		w := httptest.NewRecorder()
		at := recorded{run: kept, runs: []uuid.UUID{kept.ID}, events: streaming(w, kept.ID)}
		defer at.events.close()
		end, answered := h.waiters.watch(made), make(chan error, 1)
		defer h.waiters.stop(end)
		go func() {
			first, err := h.awaitFirst(t.Context(), at, end)
			if err == nil {
				h.outputs.give(first)
			}
			answered <- err
		}()
		time.Sleep(2*keepAlive + time.Second)
		synctest.Wait()
		for range 2 { // it was said to have ended, and goes on
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

// gone is a client whose connection fails.
type gone struct{ *httptest.ResponseRecorder }

func (gone) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// TestNobodyWaitsForAClientThatDoesNotRead.
func TestNobodyWaitsForAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _, _ := waitsIn(t)
		made, kept := stamped()
		at := recorded{run: kept, runs: []uuid.UUID{kept.ID}, events: streaming(gone{httptest.NewRecorder()}, kept.ID)}
		defer at.events.close()
		end := h.waiters.watch(made)
		defer h.waiters.stop(end)
		ctx, cancel := context.WithTimeout(t.Context(), 2*keepAlive)
		defer cancel()
		_, err := h.awaitFirst(ctx, at, end)
		require.ErrorIs(t, err, errNotRead)
	})
}
