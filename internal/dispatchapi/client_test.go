// SPDX-License-Identifier: Apache-2.0

package dispatchapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// gateway is a dispatch port that can misbehave. It responds to a claim when a second one has
// arrived, so that each has its own connection.
type gateway struct {
	pair sync.WaitGroup
	// sick replaces the response to heartbeats, if set.
	sick http.HandlerFunc

	mu    sync.Mutex
	peers map[string]bool // connections of claims
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // a server does not detect a disconnected client before
	if r.URL.Path == "/v1/heartbeat" {
		g.sick(w, r)
		return
	}
	g.mu.Lock()
	g.peers[r.RemoteAddr] = true
	g.mu.Unlock()
	g.pair.Done()
	g.pair.Wait()
	_, _ = io.WriteString(w, "{}")
}

// connections returns the connections of two concurrent claims.
func (g *gateway) connections(t *testing.T, client *dispatchapi.Client) map[string]bool {
	t.Helper()
	g.peers = map[string]bool{}
	g.pair.Add(2)
	var both sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		both.Go(func() { _, errs[i] = client.Claim(t.Context(), dispatchapi.ClaimRequest{}) })
	}
	both.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	require.Len(t, g.peers, 2)
	return g.peers
}

// expiring is a context with a manual deadline.
type expiring struct {
	context.Context //nolint:containedctx // it is one
	over            chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.over }

func (e expiring) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// The client closes all connections to it, so that the next ones may reach another gateway.
func TestClient_LeavesSickGateway(t *testing.T) {
	t.Parallel()
	status := func(code int) func(*gateway, context.Context) context.Context {
		return func(g *gateway, ctx context.Context) context.Context {
			g.sick = func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(code)
				_, _ = io.WriteString(w, `{"detail":"no"}`)
			}
			return ctx
		}
	}
	for name, tt := range map[string]struct {
		fall func(*gateway, context.Context) context.Context
		left bool
	}{
		"unavailable":        {status(http.StatusServiceUnavailable), true},
		"its proxy is alone": {status(http.StatusBadGateway), true},
		"cut off": {func(g *gateway, ctx context.Context) context.Context {
			g.sick = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
			return ctx
		}, true},
		"silent": {func(g *gateway, ctx context.Context) context.Context {
			late := expiring{ctx, make(chan struct{})}
			g.sick = func(_ http.ResponseWriter, r *http.Request) { close(late.over); <-r.Context().Done() }
			return late
		}, true},
		"the caller gave up": {func(g *gateway, ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			g.sick = func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }
			return ctx
		}, false},
		"fenced":   {status(http.StatusConflict), false},
		"refused":  {status(http.StatusUnprocessableEntity), false},
		"too many": {status(http.StatusTooManyRequests), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gateway{}
			server := httptest.NewServer(g)
			t.Cleanup(server.Close)
			client, err := dispatchapi.NewClient(dispatchapi.Options{URL: server.URL, Token: "secret"})
			require.NoError(t, err)
			before := g.connections(t, client)
			_, err = client.Heartbeat(tt.fall(g, t.Context()), dispatchapi.HeartbeatRequest{})
			require.Error(t, err)
			kept := 0
			for peer := range g.connections(t, client) {
				if before[peer] {
					kept++
				}
			}
			require.Equal(t, tt.left, kept == 0, "%d of 2 connections were kept", kept)
		})
	}
}

// A journal is read line by line, and from the beginning again after an interruption.
func TestReadJournal_ReadsAllEntries(t *testing.T) {
	t.Parallel()
	run, tries := uuid.New(), 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/runs/"+run.String()+"/journal" || r.Method != http.MethodGet {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if r.URL.RawQuery != "token=7" {
			w.WriteHeader(http.StatusConflict)
			return
		}
		tries++
		for i := range 3 {
			_, _ = fmt.Fprintf(w, `{"sequence":%d,"kind":"model_answer","data":{"x":"%s"},"usage":{"model":"a/b","input_tokens":4}}`+"\n", i+1, strings.Repeat("y", 1<<16))
			if i == 1 && tries == 1 {
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		}
	}))
	t.Cleanup(server.Close)
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: server.URL, Token: "secret"})
	require.NoError(t, err)
	entries, err := client.ReadJournal(t.Context(), run, 7)
	require.NoError(t, err)
	require.Len(t, entries, 3)
	require.Equal(t, 2, tries)
	require.EqualValues(t, 3, entries[2].Sequence)
	require.Equal(t, &dispatchapi.ModelUsage{Model: "a/b", TokenUsage: dispatchapi.TokenUsage{InputTokens: 4}}, entries[2].Usage)

	_, err = client.ReadJournal(t.Context(), run, 8)
	require.ErrorIs(t, err, dispatchapi.ErrFenced)
	_, err = client.ReadJournal(t.Context(), uuid.New(), 7)
	require.ErrorIs(t, err, dispatchapi.ErrRejected)
}

// Large requests wait for each other, because each needs memory several times. Short ones do not.
func TestClient_LimitsLargeRequests(t *testing.T) {
	t.Parallel()
	const size, atOnce, requests = 4 << 20, dispatchapi.MaxRequest / (4 << 20), 12
	var mu sync.Mutex
	inFlight, most := 0, 0
	full, proceed := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/complete") {
			mu.Lock()
			inFlight++
			if most = max(most, inFlight); inFlight == atOnce {
				select {
				case <-full:
				default:
					close(full)
				}
			}
			mu.Unlock()
			<-proceed
			_, _ = io.Copy(io.Discard, r.Body)
			mu.Lock()
			inFlight--
			mu.Unlock()
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(server.Close)
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: server.URL, Token: "t"})
	require.NoError(t, err)
	var group sync.WaitGroup
	errs := make([]error, requests)
	for i := range errs {
		group.Go(func() {
			errs[i] = client.Complete(t.Context(), uuid.New(), dispatchapi.CompleteRequest{Output: strings.Repeat("x", size)})
		})
	}
	<-full
	for range 50 {
		require.NoError(t, client.Release(t.Context(), uuid.New(), dispatchapi.ReleaseRequest{}))
	}
	close(proceed)
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, atOnce, most)
}

// A request has JSON values as they are. Escapes would make a context larger than its limit, which counts it without them.
func TestClient_KeepsSizeOfValues(t *testing.T) {
	t.Parallel()
	var got dispatchapi.CompleteRequest
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&got)
	}))
	t.Cleanup(server.Close)
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: server.URL, Token: "secret"})
	require.NoError(t, err)
	want := `{"a":"` + strings.Repeat("<&>", 1000) + `"}`
	require.NoError(t, client.Complete(t.Context(), uuid.New(), dispatchapi.CompleteRequest{Context: json.RawMessage(want)}))
	require.Equal(t, want, string(got.Context))
}

// A file is sent after its entries, whose size the query has. A failed request is sent again as a whole, and a part of a file is read
// under the claim.
func TestClient_SavesFile(t *testing.T) {
	t.Parallel()
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		if len(requests) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "0123")
	}))
	t.Cleanup(server.Close)
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: server.URL, Token: "secret"})
	require.NoError(t, err)
	run := uuid.New()
	entries := dispatchapi.Entries{{Sequence: 3, Kind: dispatchapi.JournalFile, Data: json.RawMessage(`{}`)}}
	require.NoError(t, client.Save(t.Context(), run, dispatchapi.SaveRequest{Token: 7, Entries: entries}, []byte("bytes")))
	part, err := client.SavedPart(t.Context(), run, 7, "s1", 5, 3)
	require.NoError(t, err)
	require.Equal(t, "012", string(part), "no more than it asked for")
	journal := `{"token":7,"entries":[{"sequence":3,"kind":"file","data":{}}]}`
	save := fmt.Sprintf("PUT /v1/runs/%s/saved?journal=%d %sbytes", run, len(journal), journal)
	require.Equal(t, []string{save, save, fmt.Sprintf("GET /v1/runs/%s/saved/s1?length=3&offset=5&token=7 ", run)}, requests)
}

// A save is rejected with the code of the problem. A rejection is no decision after a request that may have saved the file.
func TestClient_RejectsSave(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		first      int // status of the first response, 0 for a connection that is closed
		isRejected bool
	}{
		"at once":             {http.StatusUnprocessableEntity, true},
		"after a busy answer": {http.StatusTooManyRequests, true},
		"after an error":      {http.StatusServiceUnavailable, false},
		"after no answer":     {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				requests++
				switch {
				case requests > 1 || row.first == http.StatusUnprocessableEntity:
					httpserver.WriteProblem(w, httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeStorageFull, "full"))
				case row.first == 0:
					panic(http.ErrAbortHandler)
				default:
					w.WriteHeader(row.first)
				}
			}))
			t.Cleanup(server.Close)
			client, err := dispatchapi.NewClient(dispatchapi.Options{URL: server.URL, Token: "secret"})
			require.NoError(t, err)
			err = client.Save(t.Context(), uuid.New(), dispatchapi.SaveRequest{}, []byte("bytes"))
			require.ErrorContains(t, err, "full")
			require.Equal(t, row.isRejected, errors.Is(err, dispatchapi.ErrRejected))
			if rejected := (*dispatchapi.RejectedError)(nil); row.isRejected {
				require.ErrorAs(t, err, &rejected)
				require.Equal(t, httpserver.CodeStorageFull, rejected.Code)
			}
		})
	}
}
