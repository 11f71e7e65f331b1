// SPDX-License-Identifier: Apache-2.0

package mcp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
)

// cutListener closes a connection once it has read a number of bytes of a call.
type cutListener struct {
	net.Listener
	// left is the number of bytes that are read, -1 for all. begun counts the connections on which a byte of a call came.
	left, begun atomic.Int64
}

func (l *cutListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, of: l}, nil
}

type cutConn struct {
	net.Conn
	of      *cutListener
	counted bool
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	left := c.of.left.Load() // The server waits in Read before the call is sent.
	if left < 0 || n == 0 {
		return n, err
	}
	if !c.counted {
		c.counted = true
		c.of.begun.Add(1)
	}
	isCut := int64(n) > left
	if isCut {
		n, err = int(left), io.EOF
	}
	c.of.left.Add(-int64(n)) // Before the connection ends: the test then sets left for the next call.
	if isCut {
		_ = c.Conn.Close()
	}
	return n, err
}

// A request that is cut after any byte may have been executed, so it is not sent again.
func TestCall_RequestCutAtEachByte(t *testing.T) {
	t.Parallel()
	f := &fake{tools: "[]", sessions: map[string]bool{}}
	f.Server = httptest.NewUnstartedServer(f)
	cut := &cutListener{Listener: f.Listener}
	cut.left.Store(-1)
	f.Listener = cut
	f.Start()
	t.Cleanup(f.Close)
	c, _ := newClient(t)
	server := f.server(t)
	for after := int64(0); ; after++ {
		cut.left.Store(-1)
		_, err := c.Call(t.Context(), server, "get", nil, false) // checks the session
		require.NoError(t, err)
		cut.begun.Store(0)
		cut.left.Store(after)
		before := f.ledger()
		got, err := c.Call(t.Context(), server, "get", nil, false)
		if err == nil && got["result"] == "done" {
			require.Greater(t, after, int64(300), "all of the request was read")
			return
		}
		require.NoError(t, err, "after %d bytes", after)
		require.Equal(t, "outcome_unknown", got["error"], "after %d bytes", after)
		require.Equal(t, before, f.ledger())
		require.LessOrEqual(t, cut.begun.Load(), int64(1), "after %d bytes", after)
	}
}

// refusing is an HTTP/2 server that refuses each stream of a call, which lets clients send it again.
type refusing struct{ calls atomic.Int64 }

func (r *refusing) serve(conn net.Conn, answer func(body []byte) (string, http.Header)) {
	defer func() { _ = conn.Close() }()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	_ = framer.WriteSettings()
	bodies := map[uint32]*bytes.Buffer{}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		data, ok := frame.(*http2.DataFrame)
		if !ok {
			if settings, ok := frame.(*http2.SettingsFrame); ok && !settings.IsAck() {
				_ = framer.WriteSettingsAck()
			}
			continue
		}
		id := data.StreamID
		if bodies[id] == nil {
			bodies[id] = &bytes.Buffer{}
		}
		bodies[id].Write(data.Data())
		if !data.StreamEnded() {
			continue
		}
		if strings.Contains(bodies[id].String(), "tools/call") {
			r.calls.Add(1)
			_ = framer.WriteRSTStream(id, http2.ErrCodeRefusedStream)
			continue
		}
		text, header := answer(bodies[id].Bytes())
		writeHTTP2(framer, id, text, header)
	}
}

// The transport repeats a refused request by itself. A call that is not vouched for is not repeated by anybody.
func TestCall_HTTP2DoesNotRepeatRefusedCalls(t *testing.T) {
	t.Parallel()
	certificates := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(certificates.Close)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificates.TLS.Certificates, NextProtos: []string{"h2"}})
	require.NoError(t, err)
	server, f := &refusing{}, &fake{tools: "[]", sessions: map[string]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				server.serve(conn, func(body []byte) (string, http.Header) {
					w := httptest.NewRecorder()
					r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
					r.Header.Set("Mcp-Session-Id", "session-1")
					f.ServeHTTP(w, r)
					return w.Body.String(), http.Header{":status": {fmt.Sprint(w.Code)}, "content-type": {w.Header().Get("Content-Type")}}
				})
			})
		}
	})
	trusted := x509.NewCertPool()
	trusted.AddCert(certificates.Certificate())
	rules, err := egress.Flags{Allow: "mcp=127.0.0.0/8"}.Rules()
	require.NoError(t, err)
	client := egress.New(rules).Client(egress.MCP, egress.ClientOptions{MaxResponse: mcp.MaxAnswer, TLS: &tls.Config{RootCAs: trusted}})
	c, _ := newClient(t, func(cfg *mcp.Config) { cfg.HTTP = client })
	t.Cleanup(func() { _ = listener.Close(); client.CloseIdleConnections(); serving.Wait() })
	target := resolve(t, bundle.MCPServer{URL: "https://" + listener.Addr().String()})
	got, err := c.Call(t.Context(), target, "get", nil, false)
	require.NoError(t, err)
	require.Equal(t, "outcome_unknown", got["error"])
	require.EqualValues(t, 1, server.calls.Load())
}

// startSDK starts a server of the SDK with one protocol version, whose tool counts its calls.
func startSDK(t *testing.T, version string, opts *sdk.StreamableHTTPOptions, executed *atomic.Int64) mcp.Server {
	t.Helper()
	server := sdk.NewServer(&sdk.Implementation{Name: "sdk", Version: "1"}, &sdk.ServerOptions{SupportedProtocolVersions: []string{version}})
	type input struct {
		ID int64 `json:"id"`
	}
	sdk.AddTool(server, &sdk.Tool{Name: "get", Description: "Gets", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *sdk.CallToolRequest, in input) (*sdk.CallToolResult, map[string]any, error) {
			executed.Add(1)
			return nil, map[string]any{"id": in.ID}, nil
		})
	sdk.AddTool(server, &sdk.Tool{Name: "ask", Description: "Asks"},
		func(ctx context.Context, req *sdk.CallToolRequest, _ input) (*sdk.CallToolResult, any, error) {
			_, err := req.Session.Elicit(ctx, &sdk.ElicitParams{Message: "Really?", RequestedSchema: map[string]any{"type": "object"}})
			return nil, nil, err
		})
	handler := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, opts))
	t.Cleanup(handler.Close)
	return resolve(t, bundle.MCPServer{URL: handler.URL, Prefix: "crm_"})
}

// The client speaks all versions of the protocol with the SDK's own server.
func TestClient_SpeaksAllProtocols(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"} {
		for name, opts := range map[string]*sdk.StreamableHTTPOptions{
			"events": {}, "json": {JSONResponse: true}, "stateless": {Stateless: true}, "stateless json": {Stateless: true, JSONResponse: true}, "resumable": {EventStore: sdk.NewMemoryEventStore(nil)},
		} {
			if version == "2026-07-28" && !opts.Stateless {
				continue // It has no sessions.
			}
			t.Run(version+" "+name, func(t *testing.T) {
				t.Parallel()
				var executed atomic.Int64
				server := startSDK(t, version, opts, &executed)
				c, _ := newClient(t)
				listed, err := c.List(t.Context(), server)
				require.NoError(t, err)
				require.Equal(t, version, listed.Protocol)
				require.Equal(t, []string{"ask", "get"}, []string{listed.Tools[0].Name, listed.Tools[1].Name})
				require.True(t, listed.Tools[1].IsReadOnly())
				got, err := c.Call(t.Context(), server, "get", map[string]any{"id": 7}, false)
				require.NoError(t, err)
				require.Equal(t, "7", fmt.Sprint(got["id"]))
				require.EqualValues(t, 1, executed.Load())
				_, err = c.Call(t.Context(), server, "ask", map[string]any{"id": 1}, false)
				require.Error(t, err, "questions are refused and do not block the call")
				_, err = c.Call(t.Context(), server, "none", nil, false)
				require.ErrorContains(t, err, `the MCP server "crm" answered: `)
			})
		}
	}
}
