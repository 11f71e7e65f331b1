// SPDX-License-Identifier: Apache-2.0

package mcp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request is a message that the fake server received.
type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// fake is an MCP server of protocol 2025-06-18 with sessions. Its ledger counts what it executed.
type fake struct {
	*httptest.Server
	// answer replaces the answer of a call, after the ledger has counted it.
	answer func(w http.ResponseWriter, r *http.Request, call request)
	// before handles a request before the server does, and reports whether it has.
	before func(w http.ResponseWriter, r *http.Request, call request) bool
	tools  string

	mu       sync.Mutex
	executed int
	seen     []string
	sessions map[string]bool
	opened   int
}

const getTool = `{"name":"get","description":"Gets","inputSchema":{"type":"object","maximum":12345678901234567890}}`

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{tools: "[" + getTool + "]", sessions: map[string]bool{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // The request was cut: nothing is executed.
	}
	var call request
	_ = json.Unmarshal(body, &call)
	session := r.Header.Get("Mcp-Session-Id")
	f.mu.Lock()
	f.seen = append(f.seen, r.Method+" "+call.Method)
	known := f.sessions[session]
	f.mu.Unlock()
	switch {
	case f.before != nil && f.before(w, r, call):
	case r.Method == http.MethodDelete:
		f.forget(session)
	case call.Method == "server/discover":
		http.Error(w, "initialize first", http.StatusBadRequest)
	case call.Method == "initialize":
		f.mu.Lock()
		f.opened++
		id := fmt.Sprintf("session-%d", f.opened)
		f.sessions[id] = true
		f.mu.Unlock()
		w.Header().Set("Mcp-Session-Id", id)
		reply(w, call, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`)
	case !known:
		f.reject(w)
	case len(call.ID) == 0:
		w.WriteHeader(http.StatusAccepted)
	case call.Method == "tools/list":
		reply(w, call, `{"tools":`+f.tools+`}`)
	case call.Method == "tools/call":
		f.mu.Lock()
		f.executed++
		f.mu.Unlock()
		if f.answer != nil {
			f.answer(w, r, call)
			return
		}
		reply(w, call, textResult("done"))
	default:
		reply(w, call, `{}`)
	}
}

// reject answers a request of an unknown session as the SDK for TypeScript does.
func (f *fake) reject(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`)
}

// forget forgets sessions; "" means all.
func (f *fake) forget(session string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if session == "" {
		clear(f.sessions)
	}
	delete(f.sessions, session)
}

// ledger returns the number of executed calls.
func (f *fake) ledger() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.executed
}

// requests returns the number of requests of a kind, such as "POST tools/call".
func (f *fake) requests(kind string) (count int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, seen := range f.seen {
		if seen == kind {
			count++
		}
	}
	return count
}

func reply(w http.ResponseWriter, call request, result string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, result)
}

func textResult(text string) string {
	data, _ := json.Marshal(text)
	return `{"content":[{"type":"text","text":` + string(data) + `}]}`
}

// testAuthorities has the certificate of all servers of httptest.
var testAuthorities = sync.OnceValue(func() *x509.CertPool {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return pool
})

// guarded returns an HTTP client that may connect to this machine.
func guarded() *http.Client {
	rules := egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.MCP: {netip.MustParsePrefix("127.0.0.0/8")}}}
	return egress.New(rules).Client(egress.MCP, egress.ClientOptions{
		MaxResponse: mcp.MaxAnswer, TLS: &tls.Config{RootCAs: testAuthorities(), MinVersion: tls.VersionTLS12},
	})
}

// newClient returns a client with a clock, which waits for nothing between repetitions.
func newClient(t *testing.T, change ...func(*mcp.Config)) (*mcp.Client, *clocktesting.FakeClock) {
	t.Helper()
	now := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC))
	cfg := mcp.Config{HTTP: guarded(), Now: now.Now, Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
	for _, c := range change {
		c(&cfg)
	}
	client := mcp.New(cfg)
	t.Cleanup(func() {
		client.Close()
		cfg.HTTP.CloseIdleConnections()
	})
	return client, now
}

// resolve returns a server of an agent.
func resolve(t *testing.T, spec bundle.MCPServer, variables ...runnerconfig.Variable) mcp.Server {
	t.Helper()
	if spec.Name == "" {
		spec.Name = "crm"
	}
	server, err := mcp.Resolve(&spec, runnerconfig.Sorted(variables), map[string]any{"tenant": "acme"})
	require.NoError(t, err)
	return server
}

func (f *fake) server(t *testing.T) mcp.Server {
	t.Helper()
	return resolve(t, bundle.MCPServer{URL: f.URL + "/mcp"})
}
