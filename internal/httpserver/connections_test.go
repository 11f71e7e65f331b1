// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// from is a connection from an address.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr { return f }
func (from) Network() string        { return "tcp" }
func (f from) String() string       { return f.address }

// Active requests are never closed. Of the others, the longest waiting connections of the address
// with most connections are closed first.
func TestConnections_ClosesIdleOnesFirst(t *testing.T) {
	t.Parallel()
	proxies, err := ParseProxies("10.0.0.0/8")
	require.NoError(t, err)
	now := time.Unix(1000, 0)
	c := newConnections(proxies, func() time.Time { return now })
	var all []*boundedConn
	for _, address := range []string{
		"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:4", // a proxy
		"192.0.2.1:1",
		"[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1", // one network
	} {
		now = now.Add(time.Second)
		conn := &boundedConn{Conn: from{address: address}}
		all = append(all, conn)
		c.addConn(conn)
	}
	now = now.Add(time.Second)
	for _, conn := range []*boundedConn{all[0], all[6]} {
		require.False(t, c.recordWaiting(conn, false))
	}
	require.False(t, c.recordWaiting(all[5], false))
	require.False(t, c.recordWaiting(all[5], true), "kept alive, for there is room")
	var order []*boundedConn
	for {
		victims := c.idleConns()
		if len(victims) == 0 {
			break
		}
		require.Len(t, victims, 1, "of so few one at a time")
		order = append(order, victims...)
		c.removeConn(victims[0])
	}
	require.Equal(t, []*boundedConn{all[7], all[5], all[4], all[1], all[2], all[3]}, order)
	require.True(t, c.recordWaiting(all[6], true), "none is kept alive while others wait")
	require.False(t, c.recordWaiting(all[0], false))
	c.endShedding()
	require.False(t, c.recordWaiting(all[0], true))
	for _, conn := range all {
		c.removeConn(conn)
	}
	require.Empty(t, c.open)
	require.Empty(t, c.from)
}

// Several connections are closed at once, so that they are searched rarely.
func TestConnections_ClosesSeveralAtOnce(t *testing.T) {
	t.Parallel()
	c := newConnections(nil, time.Now)
	for i := range 3 * shedPart {
		c.addConn(&boundedConn{Conn: from{address: fmt.Sprintf("192.0.2.%d:1", i%250)}})
	}
	require.Len(t, c.idleConns(), 3)
}

// crowded is a server with two connections. It responds to / immediately and to other requests when
// they are released.
func crowded(t *testing.T) (server *Server, entered chan struct{}, leave chan struct{}) {
	t.Helper()
	entered, leave = make(chan struct{}), make(chan struct{})
	server, err := New(Options{
		Name: "test", Addr: host + ":0", MaxConnections: 2, Logger: slog.New(slog.DiscardHandler),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/" {
				entered <- struct{}{}
				<-leave
			}
			w.WriteHeader(http.StatusNoContent)
		}),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- server.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-stopped) })
	return server, entered, leave
}

// ask sends a request. answer reads its response.
func ask(t *testing.T, conn net.Conn, path string) {
	t.Helper()
	_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
	require.NoError(t, err)
}

func answer(t *testing.T, conn net.Conn) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
}

// Idle connections and incomplete headers do not block new connections. Active requests are not
// closed.
func TestConnections_FullServerResponds(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]func(conn net.Conn){
		"kept alive": func(conn net.Conn) {
			ask(t, conn, "/")
			answer(t, conn)
		},
		"nothing":       func(net.Conn) {},
		"half a header": func(conn net.Conn) { _, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHos") },
		"half a second header": func(conn net.Conn) {
			ask(t, conn, "/")
			answer(t, conn)
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHos")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, entered, leave := crowded(t)
			busy := opened(t, server, nil, "")
			ask(t, busy, "/busy")
			<-entered
			for range 5 {
				conn := opened(t, server, nil, "")
				begins(conn)
				next := opened(t, server, nil, "")
				ask(t, next, "/")
				answer(t, next)
			}
			close(leave)
			answer(t, busy)
		})
	}
}

// If all connections have active requests, the next one waits for the first response, and that
// connection is then closed.
func TestConnections_ResponseFreesSlot(t *testing.T) {
	t.Parallel()
	server, entered, leave := crowded(t)
	for range 2 {
		ask(t, opened(t, server, nil, ""), "/busy")
		<-entered
	}
	next := opened(t, server, nil, "")
	ask(t, next, "/")
	leave <- struct{}{}
	answer(t, next)
	close(leave)
}

// Each connection can hold this many bytes.
func TestServer_LimitsHeaders(t *testing.T) {
	t.Parallel()
	server, _, _ := crowded(t)
	for size, status := range map[int]int{maxHeaderBytes / 2: http.StatusNoContent, 2 * maxHeaderBytes: http.StatusRequestHeaderFieldsTooLarge} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			conn := opened(t, server, nil, "")
			_, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: h\r\nA: %s\r\n\r\n", strings.Repeat("a", size))
			require.NoError(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, status, resp.StatusCode)
		})
	}
	require.LessOrEqual(t, DefaultConnections*maxHeaderBytes, 128<<20)
}
