// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

// past is a keeper where all requests are duplicates of one whose runs have ended with large
// outputs.
type past struct {
	keeper
	runs  []uuid.UUID
	fails uuid.UUID // reading this run fails
	// erased has erased runs. accepts means that the request is no duplicate.
	erased  []uuid.UUID
	accepts bool

	reads sync.Map // of single runs, by ID
}

func (p *past) Accept(_ context.Context, events []store.Event) (out []store.Admission, err error) {
	verdict := store.Repeated
	if p.accepts {
		verdict = store.Accepted
	}
	for range events {
		out = append(out, store.Admission{Verdict: verdict, ConnectorRunID: uuid.Must(uuid.NewV7()), RunIDs: p.runs})
	}
	return out, nil
}

func (*past) Ended(_ context.Context, runs []store.Key) ([]store.Key, error) { return runs, nil }

func (p *past) Outcome(context.Context, store.Key) (store.Outcome, error) {
	return store.Outcome{Status: store.ConnectorRunFailed, Runs: []store.Run{p.run(p.runs[0])}}, nil
}

func (p *past) Run(_ context.Context, key store.Key) (store.Run, error) {
	switch {
	case key.ID == p.fails:
		return store.Run{}, errors.New("away")
	case slices.Contains(p.erased, key.ID):
		return store.Run{}, store.ErrNotFound
	}
	p.reads.Store(key.ID, true)
	return p.run(key.ID), nil
}

func (*past) run(id uuid.UUID) store.Run {
	return store.Run{ID: id, AgentName: "hello", Status: store.RunFailed, Output: strings.Repeat("x", store.MaxOutput), Error: "no"}
}

func (p *past) read(id uuid.UUID) bool {
	_, read := p.reads.Load(id)
	return read
}

func someRuns(n int) (runs []uuid.UUID) {
	for range n {
		runs = append(runs, uuid.Must(uuid.NewV7()))
	}
	return runs
}

// calls returns a request to a sync connector.
func calls(t *testing.T) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hooks/"+project.String()+"/"+uuid.NewString(), strings.NewReader(`{}`))
	r.Header.Set("Content-Type", "application/json")
	return r
}

// TestAnswer_HasAllResults: the result of the oldest link is there twice. A single run is read with
// its connector run.
func TestAnswer_HasAllResults(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		p := &past{keeper: keeper{mode: "sync"}, runs: someRuns(n)}
		h := servingStore(t, p)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, calls(t))
		require.Equal(t, http.StatusOK, w.Code)
		type result struct {
			RunID  uuid.UUID `json:"run_id"`
			Output string
		}
		var got struct {
			Status  string
			Result  result
			Results []result
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		require.Equal(t, "failed", got.Status)
		require.Equal(t, got.Results[0], got.Result)
		require.Len(t, got.Results, n)
		for i, run := range p.runs {
			require.Equal(t, run, got.Results[i].RunID)
			require.Len(t, got.Results[i].Output, store.MaxOutput)
			require.Equal(t, n > 1, p.read(run))
		}
		require.Empty(t, h.outputs.byRun)
		require.True(t, h.outputs.budget.Free())
		require.Zero(t, h.callers.Taken())
	}
}

// slow is a client that reads when allowed, and not after it has disconnected.
type slow struct {
	*httptest.ResponseRecorder
	reads   chan struct{}
	waiting chan struct{} // data is waiting to be read
	paced   bool
	free    bool
}

func (s *slow) SetWriteDeadline(at time.Time) error {
	s.paced = s.paced || !at.IsZero()
	s.free = at.IsZero()
	return nil
}

func (s *slow) Write(p []byte) (int, error) {
	s.waiting <- struct{}{}
	if _, reads := <-s.reads; !reads {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

// TestAnswer_SlowReaderHoldsOneOutput: the next output is read from the store after the previous
// one was sent. A client below the minimum pace is disconnected.
func TestAnswer_SlowReaderHoldsOneOutput(t *testing.T) {
	t.Parallel()
	p := &past{keeper: keeper{mode: "sync"}, runs: someRuns(3)}
	h := servingStore(t, p)
	w := &slow{ResponseRecorder: httptest.NewRecorder(), reads: make(chan struct{}), waiting: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.ServeHTTP(w, calls(t))
	}()
	<-w.waiting
	require.True(t, p.read(p.runs[0]))
	require.False(t, p.read(p.runs[1]))
	require.EqualValues(t, store.MaxOutput, h.outputs.byRun[store.Key{ProjectID: project, ID: p.runs[0]}].granted.Amount())
	for pieces := 0; !p.read(p.runs[1]); pieces++ {
		w.reads <- struct{}{}
		<-w.waiting
	}
	require.False(t, p.read(p.runs[2]))
	require.Len(t, h.outputs.byRun, 1, "the first is given back")
	close(w.reads) // it has disconnected
	go func() {
		for range w.waiting {
		}
	}()
	<-ended
	close(w.waiting)
	require.False(t, p.read(p.runs[2]))
	require.Empty(t, h.outputs.byRun)
	require.True(t, h.outputs.budget.Free())
	require.True(t, w.paced)
	require.True(t, w.free)
}

// TestAnswer_IncompleteIsBrokenOff: an incomplete response must not look complete.
func TestAnswer_IncompleteIsBrokenOff(t *testing.T) {
	t.Parallel()
	p := &past{keeper: keeper{mode: "sync"}, runs: someRuns(3)}
	p.fails = p.runs[2]
	h := servingStore(t, p)
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { h.ServeHTTP(httptest.NewRecorder(), calls(t)) })
	require.Empty(t, h.outputs.byRun)
	require.Zero(t, h.callers.Taken())
}

// TestAnswer_ErasedRunInResults: a run that is erased while other results are written has a result
// that says so, for a first request and a duplicate, as JSON and as a stream. The following results
// are complete.
func TestAnswer_ErasedRunInResults(t *testing.T) {
	t.Parallel()
	for _, accepts := range []bool{true, false} {
		p := &past{keeper: keeper{mode: "sync"}, runs: someRuns(3), accepts: accepts}
		p.erased = p.runs[1:2]
		h := servingStore(t, p)
		plain, streamed, r := httptest.NewRecorder(), httptest.NewRecorder(), calls(t)
		h.ServeHTTP(plain, calls(t))
		r.Header.Set("Accept", typeEvents)
		h.ServeHTTP(streamed, r)
		require.Equal(t, http.StatusOK, plain.Code)
		var got webhookapi.Results
		require.NoError(t, json.Unmarshal(plain.Body.Bytes(), &got))
		require.Len(t, got.Results, 3)
		why := "the run was erased or has expired"
		require.Equal(t, webhookapi.Result{RunID: p.runs[1], Status: webhookapi.ResultGone, Error: &why}, got.Results[1])
		require.Equal(t, p.runs[2], got.Results[2].RunID)
		names, data := sent(t, streamed.Body.String())
		require.Equal(t, "result", names[len(names)-1])
		require.Equal(t, strings.TrimSuffix(plain.Body.String(), "\n"), data[len(data)-1])
		require.Empty(t, h.outputs.byRun)
		require.True(t, h.outputs.budget.Free())
		require.Zero(t, h.callers.Taken())
	}
}

// TestAnswer_FirstRunErased: the caller gets an error, and no request to retry, which would start
// another run.
func TestAnswer_FirstRunErased(t *testing.T) {
	t.Parallel()
	for _, accepts := range []bool{true, false} {
		p := &past{keeper: keeper{mode: "sync"}, runs: someRuns(2), accepts: accepts}
		p.erased = p.runs[:1]
		w := httptest.NewRecorder()
		servingStore(t, p).ServeHTTP(w, calls(t))
		require.Equal(t, http.StatusConflict, w.Code)
		var problem httpserver.Problem
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem))
		require.Equal(t, httpserver.CodeGone, problem.Code)
		require.Empty(t, w.Header().Get("Retry-After"))
		require.NotEqual(t, accepts, strings.Contains(problem.Detail, "Nothing was started"), problem.Detail)
	}
}
