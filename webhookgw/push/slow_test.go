// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// serveLoopback serves a handler on a loopback port until the test ends.
func serveLoopback(t *testing.T, h *Handler) (address string) {
	t.Helper()
	server, err := httpserver.New(httpserver.Options{Name: "push", Addr: "127.0.0.1:0", Handler: h, Grace: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{}, 2)
	go func() { _ = h.Run(ctx); ended <- struct{}{} }()
	go func() { _ = server.Run(ctx); ended <- struct{}{} }()
	t.Cleanup(func() {
		stop()
		<-ended
		<-ended
	})
	return server.Addr()
}

// TestPush_SlowBodies: connections that announce a body and send none do not block the project's
// pushes.
func TestPush_SlowBodies(t *testing.T) {
	t.Parallel()
	for _, event := range []string{"ping", "push"} {
		t.Run(event, func(t *testing.T) {
			t.Parallel()
			project := uuid.New()
			p := &projects{there: map[uuid.UUID]bool{project: false}}
			h := New(Options{Store: p, Logger: slog.New(slog.DiscardHandler)})
			address := serveLoopback(t, h)
			for range 2 * maxBodies / projectShare {
				conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
				require.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				_, err = fmt.Fprintf(conn, "POST /git/%s HTTP/1.1\r\nHost: gateway\r\nX-GitHub-Event: %s\r\nContent-Length: 1000000\r\n\r\n", project, event)
				require.NoError(t, err)
			}
			require.Eventually(t, func() bool { return h.bodies.Taken() == maxBodies/projectShare }, time.Minute, time.Millisecond)
			p.change(func() { p.there[project] = false }) // the manager has taken the request

			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/git/"+project.String(), strings.NewReader(`{"ref":"refs/heads/main"}`))
			require.NoError(t, err)
			r.Header.Set("X-GitHub-Event", "push")
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, http.StatusAccepted, answer.StatusCode, string(body))
			asked, _ := p.looks()
			require.Equal(t, []uuid.UUID{project}, asked[len(asked)-1])
		})
	}
}
