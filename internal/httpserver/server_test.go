// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestServerLetsOpenRequestsEnd(t *testing.T) {
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

func TestServerCutsOffWhatOutlastsTheGrace(t *testing.T) {
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
	require.Error(t, <-answered, "what was not answered must not look like an empty success")
}

func TestAddressInUse(t *testing.T) {
	t.Parallel()
	first, err := New(Options{Name: "first", Addr: "127.0.0.1:0"})
	require.NoError(t, err)
	defer first.listener.Close()
	_, err = New(Options{Name: "second", Addr: first.Addr()})
	require.ErrorContains(t, err, "second")
}

func TestWriteProblem(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	p := NewProblem(http.StatusServiceUnavailable, "store_unavailable", "The store does not answer; try again.")
	p.RetryAfter = 1500 * time.Millisecond
	WriteProblem(w, p)
	require.Equal(t, "2", w.Header().Get("Retry-After"))
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.JSONEq(t, `{"title":"Service Unavailable","status":503,"code":"store_unavailable",
		"detail":"The store does not answer; try again."}`, w.Body.String())
}
