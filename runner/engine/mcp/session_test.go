// SPDX-License-Identifier: Apache-2.0

package mcp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
)

// The server itself says that it does not know the session, so the call was not executed and is sent in a new one.
func TestSession_RenewsForgottenSession(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c, _ := newClient(t)
	server := f.server(t)
	for range 2 {
		got, err := c.Call(t.Context(), server, "get", nil, false)
		require.NoError(t, err)
		require.Equal(t, "done", got["result"])
		f.forget("")
	}
	require.Equal(t, 2, f.ledger())
	require.Equal(t, 2, f.opened)
}

// plain404 answers requests of unknown sessions like a proxy.
func plain404(f *fake) {
	f.before = func(w http.ResponseWriter, r *http.Request, call request) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		unknown := !f.sessions[r.Header.Get("Mcp-Session-Id")] && call.Method != "initialize" && call.Method != "server/discover"
		if unknown {
			http.Error(w, "not found", http.StatusNotFound)
		}
		return unknown
	}
}

// A 404 without the server's own error may come from a proxy after the server has begun. A session that may be gone is
// checked before a call that cannot be repeated.
func TestSession_ChecksSessionBeforeCall(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name       string
		idle       time.Duration
		repeatable bool
		want       string
		executed   int
	}{
		{"just used", 0, false, "outcome_unknown", 1},
		{"just used, vouched for", 0, true, "done", 2},
		{"idle for a minute", time.Minute, false, "done", 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			plain404(f)
			c, now := newClient(t)
			server := f.server(t)
			_, err := c.Call(t.Context(), server, "get", nil, false)
			require.NoError(t, err)
			f.forget("") // the server restarts
			now.Step(row.idle)
			got, err := c.Call(t.Context(), server, "get", nil, row.repeatable)
			require.NoError(t, err)
			require.Contains(t, fmt.Sprint(got), row.want)
			require.Equal(t, row.executed, f.ledger())
			got, err = c.Call(t.Context(), server, "get", nil, false)
			require.NoError(t, err)
			require.Equal(t, "done", got["result"], "the next call uses a new session")
		})
	}
}

// After a lost answer the next call that cannot be repeated checks the session first.
func TestSession_ChecksSessionAfterLostAnswer(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	plain404(f)
	f.answer = func(w http.ResponseWriter, _ *http.Request, _ request) { hijack(w, "") }
	c, _ := newClient(t)
	server := f.server(t)
	_, err := c.Call(t.Context(), server, "get", nil, false)
	require.NoError(t, err)
	f.forget("")
	f.answer = nil
	got, err := c.Call(t.Context(), server, "get", nil, false)
	require.NoError(t, err)
	require.Equal(t, "done", got["result"])
	require.Equal(t, 1, f.requests("POST ping"))
}

// Runs share a session. The client closes it after 5 idle minutes and notifies the server.
func TestSession_IsSharedAndClosed(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c, now := newClient(t)
	server := f.server(t)
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			_, err := c.Call(t.Context(), server, "get", nil, false)
			require.NoError(t, err)
		})
	}
	calls.Wait()
	require.Equal(t, 1, f.opened)
	now.Step(5*time.Minute - time.Second)
	c.CloseIdle()
	c.Wait()
	require.Zero(t, f.requests("DELETE "))
	now.Step(time.Second)
	c.CloseIdle()
	c.Wait()
	require.Equal(t, 1, f.requests("DELETE "))
	other := resolve(t, bundle.MCPServer{URL: f.URL, Headers: map[string]string{"X-Tenant": "${context.tenant}"}})
	_, err := c.Call(t.Context(), other, "get", nil, false)
	require.NoError(t, err)
	_, err = c.Call(t.Context(), server, "get", nil, false)
	require.NoError(t, err)
	require.Equal(t, 3, f.opened, "other headers are another session")
}

// One answer that is too large does not end the other calls of the session, and is not requested again.
func TestSession_LargeAnswerFailsOnlyItsCall(t *testing.T) {
	t.Parallel()
	chunk := strings.Repeat("x", 64<<10)
	for _, row := range []struct {
		name string
		kind string
		part string
	}{
		{"json", "application/json", chunk},
		{"one event", "text/event-stream", chunk},
		{"comments", "text/event-stream", ": x\n"},
		{"events", "text/event-stream", "data: " + `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}` + "\n\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			waiting, large := make(chan struct{}), make(chan struct{})
			f.answer = func(w http.ResponseWriter, r *http.Request, call request) {
				if strings.Contains(string(call.Params), "slow") {
					close(waiting)
					<-large
					reply(w, call, textResult("slow"))
					return
				}
				<-waiting
				w.Header().Set("Content-Type", row.kind)
				if row.part == chunk {
					_, _ = fmt.Fprintf(w, `data: {"jsonrpc":"2.0","id":%s,"result":"`, call.ID)
				}
				for sent := 0; sent < 10<<20 && r.Context().Err() == nil; sent += len(row.part) {
					if _, err := io.WriteString(w, row.part); err != nil {
						return
					}
				}
			}
			c, _ := newClient(t)
			server := f.server(t)
			slow := make(chan map[string]any, 1)
			go func() {
				got, err := c.Call(context.WithoutCancel(t.Context()), server, "slow", nil, false)
				slow <- map[string]any{"got": got, "err": err}
			}()
			<-waiting
			got, err := c.Call(t.Context(), server, "get", nil, true)
			close(large)
			require.NoError(t, err)
			require.Contains(t, got["message"], "its answer is too large")
			require.Equal(t, map[string]any{"got": map[string]any{"result": "slow"}, "err": nil}, <-slow)
			require.Equal(t, 2, f.ledger())
			require.Equal(t, 1, f.opened)
		})
	}
}

// An endless answer ends with the time limit of the call.
func TestSession_TimeoutEndsCall(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer = func(w http.ResponseWriter, r *http.Request, _ request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	c, _ := newClient(t)
	_, err := c.List(t.Context(), resolve(t, bundle.MCPServer{URL: f.URL})) // connects
	require.NoError(t, err)
	server := resolve(t, bundle.MCPServer{URL: f.URL, Timeout: bundle.Duration(250 * time.Millisecond)})
	got, err := c.Call(t.Context(), server, "get", nil, true)
	require.NoError(t, err)
	require.Contains(t, got["message"], "it did not answer in time")
	require.Equal(t, 1, f.ledger())
}

// A server that accepts the connection and never answers holds a call for its connect_timeout only.
func TestSession_ConnectTimeout(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.before = func(_ http.ResponseWriter, r *http.Request, call request) bool {
		if call.Method == "server/discover" {
			<-r.Context().Done()
		}
		return false
	}
	c, _ := newClient(t)
	server := resolve(t, bundle.MCPServer{URL: f.URL, ConnectTimeout: bundle.Duration(30 * time.Millisecond)})
	_, err := c.Call(t.Context(), server, "get", nil, false)
	require.EqualError(t, err, `the MCP server "crm" cannot be used: it did not answer in time`)
	require.Zero(t, f.ledger())
}

// Run ends with its context and closes all sessions.
func TestClient_RunClosesSessions(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := mcp.New(mcp.Config{HTTP: guarded()})
	_, err := c.Call(t.Context(), f.server(t), "get", nil, false)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.Run(ctx)
	require.Equal(t, 1, f.requests("DELETE "))
}
