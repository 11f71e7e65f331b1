// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// backlog is a listener with clients that are always waiting.
type backlog struct{ net.Listener }

func (*backlog) Accept() (net.Conn, error) {
	client, _ := net.Pipe()
	return client, nil
}

func (*backlog) Close() error { return nil }

// If all connections are active, a further one waits until one of them or the listener is closed.
func TestListener_ConnectionsBeyondLimitWait(t *testing.T) {
	t.Parallel()
	inner, open := &backlog{}, newConnections(nil, time.Now)
	listener := newBoundedListener(inner, writeTimeout, 2, open)
	accept := func() (net.Conn, error) {
		conn, err := listener.Accept()
		if err == nil {
			open.recordState(conn, http.StateActive)
		}
		return conn, err
	}
	first, err := accept()
	require.NoError(t, err)
	_, err = accept()
	require.NoError(t, err)
	third, ended := make(chan error), make(chan error)
	go func() {
		_, err := accept()
		third <- err
		_, err = accept()
		ended <- err
	}()
	select {
	case err := <-third:
		t.Fatal("a third connection was accepted", err)
	default:
	}
	require.Len(t, listener.slots, 2)
	require.NoError(t, first.Close())
	require.NoError(t, first.Close(), "which gives back its place once")
	require.NoError(t, <-third)
	require.NoError(t, listener.Close())
	require.NoError(t, listener.Close())
	require.ErrorIs(t, <-ended, net.ErrClosed)
	require.Len(t, listener.slots, 2)
	require.Len(t, open.open, 2)
}

func TestListener_ValidatesLimit(t *testing.T) {
	t.Parallel()
	_, err := New(Options{Name: "test", Addr: "127.0.0.1:0", MaxConnections: -1})
	require.ErrorContains(t, err, "at least 1")
}

// A 503 closes its connection. On HTTP/2 other requests on the connection continue.
func TestWriteProblem_ClosesConnectionOfSickReplica(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			close(entered)
			<-leave
		case "/away":
			WriteProblem(w, NewProblem(http.StatusServiceUnavailable, CodeStoreUnavailable, "away"))
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	reused := false
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
	get := func(path string, trace *httptrace.ClientTrace) int {
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		resp, err := server.Client().Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 2, resp.ProtoMajor)
		return resp.StatusCode
	}
	slow := make(chan int, 1)
	go func() { slow <- get("/slow", &httptrace.ClientTrace{}) }()
	<-entered
	require.Equal(t, http.StatusOK, get("/", trace))
	require.True(t, reused)
	require.Equal(t, http.StatusServiceUnavailable, get("/away", trace))
	require.Eventually(t, func() bool { return get("/", trace) == http.StatusOK && !reused }, time.Minute, time.Millisecond)
	close(leave)
	require.Equal(t, http.StatusOK, <-slow)
}
