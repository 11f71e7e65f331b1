// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// tap is a proxy between one runner and a gateway's internal port. It records the runner's claim requests and the reported
// losses, and drops every heartbeat after the first.
type tap struct {
	server *httptest.Server
	rest   http.Handler
	over   chan struct{} // closed at the end of the test

	mu     sync.Mutex
	begun  int                              // requests for runs
	open   map[int]dispatchapi.ClaimRequest // the claim requests without a response, by number
	beats  int                              // heartbeats with a response
	losses []loss
}

// loss is a claim that the gateway reported to the runner as lost.
type loss struct {
	run uuid.UUID
	// request is the number of the claim request whose response reported the loss.
	request int
}

func newTap(t *testing.T, to string) *tap {
	t.Helper()
	target, err := url.Parse("http://" + to)
	require.NoError(t, err)
	rest := httputil.NewSingleHostReverseProxy(target)
	rest.ErrorLog = log.New(io.Discard, "", 0) // of requests that the runner broke off
	tp := &tap{rest: rest, over: make(chan struct{}), open: map[int]dispatchapi.ClaimRequest{}}
	tp.server = httptest.NewServer(tp)
	t.Cleanup(func() {
		close(tp.over)
		tp.server.Close()
	})
	return tp
}

func (tp *tap) addr() string { return tp.server.Listener.Addr().String() }

// ServeHTTP passes a request on.
func (tp *tap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/claim":
		tp.claim(w, r)
	case "/v1/heartbeat":
		tp.heartbeat(w, r)
	default:
		tp.rest.ServeHTTP(w, r)
	}
}

// heartbeat forwards the first heartbeat, which confirms the runner's claims. It holds all later heartbeats until the runner
// gives up.
func (tp *tap) heartbeat(w http.ResponseWriter, r *http.Request) {
	tp.mu.Lock()
	first := tp.beats == 0
	tp.mu.Unlock()
	if first {
		tp.rest.ServeHTTP(w, r)
		tp.note(func() { tp.beats++ })
		return
	}
	_, _ = io.Copy(io.Discard, r.Body) // or its end would not be noticed
	select {
	case <-r.Context().Done():
	case <-tp.over:
	}
}

// claim forwards a claim request and records the request and its response.
func (tp *tap) claim(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var req dispatchapi.ClaimRequest
	if err != nil || json.Unmarshal(body, &req) != nil {
		panic(http.ErrAbortHandler)
	}
	var number int
	tp.note(func() {
		tp.begun++
		number = tp.begun
		tp.open[number] = req
	})
	defer tp.note(func() { delete(tp.open, number) })
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	tp.rest.ServeHTTP(answer, r)
	var resp dispatchapi.ClaimResponse
	if json.Unmarshal(answer.Body.Bytes(), &resp) == nil { // other bodies report no loss
		for _, l := range resp.Lost {
			tp.note(func() { tp.losses = append(tp.losses, loss{l.RunID, number}) })
		}
	}
	w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the runner may have disconnected
}

func (tp *tap) note(change func()) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	change()
}

// waitsWith returns the number of a waiting claim request that names a claim on the run, from a runner that has confirmed its
// claims.
func (tp *tap) waitsWith(run uuid.UUID) (number int, waits bool) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	for number, req := range tp.open {
		names := slices.ContainsFunc(req.Holding, func(l dispatchapi.Lease) bool { return l.RunID == run })
		if names && req.WaitSeconds > 0 && tp.beats > 0 {
			return number, true
		}
	}
	return 0, false
}

// lost returns the loss of the claim on a run, if the gateway has reported it to the runner.
func (tp *tap) lost(run uuid.UUID) (loss, bool) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	i := slices.IndexFunc(tp.losses, func(l loss) bool { return l.run == run })
	if i < 0 {
		return loss{}, false
	}
	return tp.losses[i], true
}
