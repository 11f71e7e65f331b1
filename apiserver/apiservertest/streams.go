// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver"
)

// Follower reads a stream of events over a connection.
type Follower struct {
	*http.Response
	lines *bufio.Scanner
	// Leave closes the connection.
	Leave context.CancelFunc
}

// Follow opens a stream of events at a facade, below the path of the project. It resumes after an event unless after is 0.
func (p *Project) Follow(t testing.TB, server *apiserver.Server, key, path string, after int) *Follower {
	t.Helper()
	listener := httptest.NewServer(server.Handler())
	t.Cleanup(listener.Close)
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, listener.URL+"/v1/projects/"+p.ProjectID.String()+path, nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+key)
	if after > 0 {
		request.Header.Set("Last-Event-ID", strconv.Itoa(after))
	}
	answer, err := listener.Client().Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return &Follower{Response: answer, lines: lines, Leave: leave}
}

// Next returns the lines of the next event, joined by spaces; "" at the end of the stream.
func (f *Follower) Next() string {
	var event []string
	for f.lines.Scan() {
		switch line := f.lines.Text(); {
		case line == "" && len(event) > 0:
			return strings.Join(event, " ")
		case line != "" && line != ":":
			event = append(event, line)
		}
	}
	return ""
}
