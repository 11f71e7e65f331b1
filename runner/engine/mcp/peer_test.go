// SPDX-License-Identifier: Apache-2.0

package mcp_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
)

// tenantServer returns a server whose state is not shared with other tenants.
func tenantServer(t *testing.T, f *fake, tenant string) mcp.Server {
	t.Helper()
	spec := bundle.MCPServer{
		Name: "crm", URL: f.URL + "/mcp", Headers: map[string]string{"X-Tenant": tenant},
		OAuth: &bundle.MCPOAuth{ClientID: "a", ClientSecret: "b", TokenURL: "https://login.example/token"},
	}
	server, err := mcp.Resolve(&spec, runnerconfig.Sorted(nil), map[string]any{})
	require.NoError(t, err)
	return server
}

// A client keeps the state of a limited number of servers. It forgets the least recently used one, and never one that a
// call uses.
func TestPeers_AreLimited(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	started, finish := make(chan struct{}), make(chan struct{})
	f.answer = func(w http.ResponseWriter, _ *http.Request, call request) {
		close(started)
		<-finish
		reply(w, call, textResult("done"))
	}
	c, now := newClient(t)
	used := f.server(t)
	result := make(chan error, 1)
	go func() {
		_, err := c.Call(context.WithoutCancel(t.Context()), used, "get", nil, false)
		result <- err
	}()
	<-started
	now.Step(time.Second)
	for i := range mcp.MaxPeers + 10 {
		c.TokensOf(tenantServer(t, f, fmt.Sprint(i)))
	}
	require.Equal(t, mcp.MaxPeers, c.Peers())
	close(finish)
	require.NoError(t, <-result)
	_, err := c.List(t.Context(), used)
	require.NoError(t, err)
	require.Equal(t, 1, f.opened, "the session of the call is not evicted")
	require.Equal(t, mcp.MaxPeers, c.Peers())
}

// An evicted server loses its session too.
func TestPeers_EvictionClosesSession(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c, now := newClient(t)
	_, err := c.List(t.Context(), f.server(t))
	require.NoError(t, err)
	now.Step(time.Second)
	for i := range mcp.MaxPeers {
		c.TokensOf(tenantServer(t, f, fmt.Sprint(i)))
	}
	c.Wait()
	require.Equal(t, 1, f.requests("DELETE "))
}

// Tokens and lists are forgotten an hour after the last use of their server, also without a list or a session.
func TestPeers_AreForgottenWhenIdle(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c, now := newClient(t)
	c.TokensOf(tenantServer(t, f, "a"))
	_, err := c.List(t.Context(), f.server(t))
	require.NoError(t, err)
	now.Step(time.Hour - time.Second)
	c.CloseIdle()
	require.Equal(t, 2, c.Peers())
	now.Step(time.Second)
	c.CloseIdle()
	require.Zero(t, c.Peers())
}

// writeHTTP2 writes an answer on a stream.
func writeHTTP2(framer *http2.Framer, id uint32, body string, header http.Header) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	_ = encoder.WriteField(hpack.HeaderField{Name: ":status", Value: header[":status"][0]})
	for name, values := range header {
		if name != ":status" {
			_ = encoder.WriteField(hpack.HeaderField{Name: name, Value: values[0]})
		}
	}
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
	_ = framer.WriteData(id, true, []byte(body))
}
