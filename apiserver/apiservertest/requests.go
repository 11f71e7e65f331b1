// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// Call sends a request to a path below the project. It returns the status and the body.
func (p *Project) Call(t testing.TB, key, method, path, body string) (int, []byte) {
	t.Helper()
	r := p.Send(t, key, method, "/v1/projects/"+p.ProjectID.String()+path, body)
	return r.Code, r.Body.Bytes()
}

// Request sends a request with headers to a path below the project. headers alternates names and values.
func (p *Project) Request(t testing.TB, key, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	return p.Send(t, key, method, "/v1/projects/"+p.ProjectID.String()+path, body, headers...)
}

// Send sends a request to a path.
func (p *Project) Send(t testing.TB, key, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	return p.SendTo(t, p.Server, key, method, path, body, headers...)
}

// SendTo sends a request to a replica.
func (p *Project) SendTo(t testing.TB, to *apiserver.Server, key, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewBufferString(body))
	SetHeaders(request, key, body, headers)
	recorder := httptest.NewRecorder()
	to.Handler().ServeHTTP(recorder, request)
	p.RequireDescribed(t, request, recorder)
	return recorder
}

// SetHeaders sets the key and the media type of a request. headers alternates names and values, which replace these.
func SetHeaders(request *http.Request, key, body string, headers []string) {
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if strings.HasPrefix(body, Upload[:2]) {
		request.Header.Set("Content-Type", "application/gzip")
	}
	for i := 0; i < len(headers); i += 2 {
		if !slices.Contains(headers[:i], headers[i]) {
			request.Header.Del(headers[i]) // a default from above
		}
		request.Header.Add(headers[i], headers[i+1])
	}
}

// RequireDescribed validates a response against the OpenAPI document.
func (p *Project) RequireDescribed(t testing.TB, request *http.Request, answer *httptest.ResponseRecorder) {
	t.Helper()
	if answer.Code >= http.StatusBadRequest {
		requireProblem(t, answer)
	}
	p.contract.requireDescribed(t, request, answer)
}

// requireProblem checks the shape of an error.
func requireProblem(t testing.TB, r *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, "application/problem+json", r.Header().Get("Content-Type"))
	var fields map[string]any
	require.NoError(t, json.Unmarshal(r.Body.Bytes(), &fields))
	require.Len(t, fields, 5, "%s", r.Body)
	require.NotEmpty(t, fields["title"])
	require.NotEmpty(t, fields["detail"])
	require.NotEmpty(t, fields["code"])
	require.EqualValues(t, r.Code, fields["status"])
	require.NotNil(t, fields["errors"])
	require.Equal(t, r.Code == http.StatusServiceUnavailable || r.Code == http.StatusTooManyRequests, r.Header().Get("Retry-After") != "")
}

// Decode decodes a body.
func Decode[T any](t testing.TB, body []byte) T {
	t.Helper()
	var out T
	require.NoError(t, json.Unmarshal(body, &out), "%s", body)
	return out
}

// RequireCode sends a request that must fail with a status and a code.
func RequireCode(t testing.TB, status int, code httpserver.Code, p *Project, key, method, path, body string, headers ...string) rest.Problem {
	t.Helper()
	got := p.Request(t, key, method, path, body, headers...)
	require.Equal(t, status, got.Code, got.Body)
	problem := Decode[rest.Problem](t, got.Body.Bytes())
	require.Equal(t, code, problem.Code, got.Body)
	return problem
}

// RunIDs returns the IDs of the runs on a page, in their order.
func RunIDs(t testing.TB, body []byte) (ids []string) {
	t.Helper()
	for _, r := range Decode[runs.RunList](t, body).Items {
		require.Nil(t, r.Output, "lists omit outputs")
		require.Nil(t, r.Input)
		ids = append(ids, r.ID)
	}
	return ids
}

// RequireField checks that a response rejects one field.
func RequireField(t testing.TB, status int, answer []byte, location string) rest.FieldError {
	t.Helper()
	require.Equal(t, http.StatusUnprocessableEntity, status, "%s", answer)
	problem := Decode[rest.Problem](t, answer)
	require.Equal(t, httpserver.CodeInvalid, problem.Code)
	require.Len(t, problem.Errors, 1, "%s", answer)
	require.Equal(t, location, problem.Errors[0].Location, "%s", answer)
	return problem.Errors[0]
}

// RequireProblem checks that a response is a problem with a code.
func RequireProblem(t *testing.T, answer *httptest.ResponseRecorder, status int, code httpserver.Code) {
	t.Helper()
	require.Equal(t, status, answer.Code, "%s", answer.Body)
	require.Equal(t, code, Decode[rest.Problem](t, answer.Body.Bytes()).Code)
	if status == http.StatusTooManyRequests {
		require.Equal(t, "10", answer.Header().Get("Retry-After"))
	}
}

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
