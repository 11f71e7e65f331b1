// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestServer_FinishesOpenRequests(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	server, err := New(Options{Name: "test", Addr: "127.0.0.1:0", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		WriteJSON(w, http.StatusOK, "done")
	})})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()

	answered := make(chan string, 1)
	go func() {
		resp, err := (&http.Client{}).Get("http://" + server.Addr())
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answered <- string(body)
	}()
	<-entered
	stop()
	close(leave)
	require.Equal(t, "\"done\"\n", <-answered)
	require.NoError(t, <-ended)
}

func TestServer_CancelsRequestsAfterGrace(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	server, err := New(Options{Name: "test", Addr: "127.0.0.1:0", Grace: time.Nanosecond,
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done()
		})})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	answered := make(chan error, 1)
	go func() {
		resp, err := (&http.Client{}).Get("http://" + server.Addr())
		if err == nil {
			err = resp.Body.Close()
		}
		answered <- err
	}()
	<-entered
	stop()
	require.ErrorIs(t, <-ended, context.DeadlineExceeded)
	require.Error(t, <-answered, "an unanswered request must not look like an empty success")
}

// A client that announces a body and does not send it gets a response of any length.
func TestServer_RespondsWithoutReadingBody(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"nothing": 0, "short": 100, "longer than what net/http keeps back": 5000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(answered(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if size > 0 {
					_, _ = w.Write(make([]byte, size)) // the reader below would see its error
				}
			}), writeTimeout))
			defer server.Close()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, conn.Close()) })
			require.NoError(t, conn.SetDeadline(time.Now().Add(bodyTimeout/2)))
			_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 20\r\n\r\nab")
			require.NoError(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			defer resp.Body.Close()
			read, err := io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			require.EqualValues(t, size, read)
		})
	}
}

// deadlines records the read deadlines of a connection.
type deadlines struct {
	*httptest.ResponseRecorder
	set []string
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	switch {
	case at.IsZero():
		d.set = append(d.set, "none")
	case time.Until(at) > unreadBody:
		d.set = append(d.set, "body")
	default:
		d.set = append(d.set, "unread")
	}
	return nil
}

// A complete body leaves no deadline, because it would end later requests on the connection.
func TestServer_RemovesDeadlineOfReadBody(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body   string
		handle http.HandlerFunc
		want   []string
	}{
		"none":   {"", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }, nil},
		"unread": {"body", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }, []string{"body", "unread"}},
		"silent": {"body", func(http.ResponseWriter, *http.Request) {}, []string{"body", "unread"}},
		"read": {"body", func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			BodyRead(w)
			w.WriteHeader(http.StatusOK)
		}, []string{"body", "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			answered(c.handle, writeTimeout).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body)))
			require.Equal(t, c.want, w.set)
		})
	}
}

func TestServer_ReportsUsedAddress(t *testing.T) {
	t.Parallel()
	first, err := New(Options{Name: "first", Addr: "127.0.0.1:0"})
	require.NoError(t, err)
	defer first.listener.Close()
	_, err = New(Options{Name: "second", Addr: first.Addr()})
	require.ErrorContains(t, err, "second")
}

// A response during the farewell closes the connection, so that no later request is lost in a
// closing connection.
func TestServer_ClosesConnectionsDuringFarewell(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	server, err := New(Options{Name: "test", Addr: "127.0.0.1:0", Farewell: time.Hour, Grace: time.Hour, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) },
	)})
	require.NoError(t, err)
	go func() { _ = server.Run(ctx) }()
	closes := func() bool {
		resp, err := http.Get("http://" + server.Addr())
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.Close
	}
	require.False(t, closes())
	stop()
	require.Eventually(t, closes, 10*time.Second, time.Millisecond)
}
