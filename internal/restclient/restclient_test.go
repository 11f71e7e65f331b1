// SPDX-License-Identifier: Apache-2.0

package restclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/restclient"
)

// server responds to requests with one handler after the other, and repeats the last one.
type server struct {
	*restclient.API

	requests []*http.Request
	bodies   []string
	pauses   []time.Duration
}

func newServer(t *testing.T, handlers ...http.HandlerFunc) *server {
	t.Helper()
	s := &server{}
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("reading a request: %v", err)
		}
		s.requests, s.bodies = append(s.requests, r), append(s.bodies, string(body))
		handlers[min(len(s.requests), len(handlers))-1](w, r)
	}))
	t.Cleanup(listener.Close)
	s.API = restclient.New(restclient.Options{Server: listener.URL, Project: "shop", Key: "secret"})
	s.HTTP.Transport = &http.Transport{DisableKeepAlives: true} // net/http repeats requests on reused connections itself.
	s.Wait = func(_ context.Context, d time.Duration) error {
		s.pauses = append(s.pauses, d)
		return nil
	}
	return s
}

func respond(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func problem(status int, code, detail string, header ...string) http.HandlerFunc {
	return respond(status, fmt.Sprintf(`{"status":%d,"code":%q,"detail":%q}`, status, code, detail), header...)
}

// breakOff ends the connection without a response.
func breakOff(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// A request is repeated while the server is unavailable: after the pause that the server asks for, with the same body and the
// same idempotency key.
func TestAPI_RepeatsRequests(t *testing.T) {
	t.Parallel()
	s := newServer(t,
		problem(http.StatusServiceUnavailable, "busy", "later", "Retry-After", "7"), problem(http.StatusTooManyRequests, "rate_limited", "later", "Retry-After", "3600"),
		problem(http.StatusTooManyRequests, "rate_limited", "later"), breakOff, respond(http.StatusCreated, `{"id":"e1","name":"QA"}`))
	created, err := s.CreateEnvironment(t.Context(), nil, restclient.EnvironmentCreate{Name: "QA"})
	require.NoError(t, err)
	require.Equal(t, "e1", created.Value.ID)
	require.Equal(t, []time.Duration{7 * time.Second, restclient.MaxPause, restclient.MinPause, restclient.MinPause}, s.pauses)
	require.Len(t, s.requests, 5)
	key := s.requests[0].Header.Get("Idempotency-Key")
	require.NotEmpty(t, key)
	for i, r := range s.requests {
		require.Equal(t, http.MethodPost+" /v1/projects/shop/environments", r.Method+" "+r.URL.Path)
		require.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		require.Equal(t, key, r.Header.Get("Idempotency-Key"))
		require.Equal(t, `{"name":"QA"}`, s.bodies[i])
	}
}

// The last error is returned after MaxAttempts, or when the context ends.
func TestAPI_GivesUp(t *testing.T) {
	t.Parallel()
	s := newServer(t, problem(http.StatusServiceUnavailable, "busy", "later"))
	_, err := s.ListEnvironments(t.Context())
	require.EqualError(t, err, "503 busy: later")
	require.Len(t, s.requests, restclient.MaxAttempts)
	require.Empty(t, s.requests[0].Header.Get("Idempotency-Key"), "a GET changes nothing")

	ctx, cancel := context.WithCancel(t.Context())
	s = newServer(t, func(http.ResponseWriter, *http.Request) { cancel(); panic(http.ErrAbortHandler) })
	_, err = s.ListEnvironments(ctx)
	require.Error(t, err)
	require.Len(t, s.requests, 1)
}

// A response that is no success is an error, and is final unless the server is unavailable.
func TestAPI_ReturnsProblems(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		response http.HandlerFunc
		want     string
	}{
		"conflict":       {problem(http.StatusConflict, "conflict", "it has changed"), "409 conflict: it has changed"},
		"storage full":   {problem(http.StatusTooManyRequests, string(httpserver.CodeStorageFull), "no space"), "429 project_storage_full: no space"},
		"permission":     {problem(http.StatusForbidden, "forbidden", "the key lacks the permission runs.view"), "403 forbidden: the key lacks the permission runs.view (a new role binding takes effect within half a minute; try again then)"},
		"other project":  {problem(http.StatusForbidden, "forbidden", "the key belongs to another project"), "403 forbidden: the key belongs to another project"},
		"proxy error":    {respond(http.StatusBadGateway, "<html>"), "502: not a response of the REST API; check the URL of the server"},
		"other service":  {respond(http.StatusOK, "<html>"), "200: not a response of the REST API; check the URL of the server"},
		"other document": {respond(http.StatusOK, `{"items":[]}`), "200: not a response of the REST API; check the URL of the server"},
		"redirect":       {respond(http.StatusFound, "", "Location", "/elsewhere"), "302: not a response of the REST API; check the URL of the server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, row.response)
			_, err := s.ListEnvironments(t.Context())
			require.EqualError(t, err, row.want)
			require.Len(t, s.requests, 1)
		})
	}
}

// Parameters override the generated idempotency key, and carry the ETag of a response back.
func TestAPI_SendsGivenHeaders(t *testing.T) {
	t.Parallel()
	s := newServer(t, respond(http.StatusOK, `[{"name":"A","value":"1","sensitive":false,"secret_ref":null}]`, "ETag", `"x.1"`))
	known, err := s.GetVariables(t.Context(), "e/1")
	require.NoError(t, err)
	require.Equal(t, `"x.1"`, known.ETag)
	key := "mine"
	_, err = s.ReplaceVariables(t.Context(), "e/1", &restclient.ReplaceVariablesParams{IfMatch: &known.ETag, IdempotencyKey: &key}, nil)
	require.NoError(t, err)
	require.Equal(t, "/v1/projects/shop/environments/e%2F1/variables", s.requests[1].URL.EscapedPath(), "an ID is one segment of the path")
	require.Equal(t, `"x.1"`, s.requests[1].Header.Get("If-Match"))
	require.Equal(t, "mine", s.requests[1].Header.Get("Idempotency-Key"))
}

// A document keeps fields that the client does not know, and all digits of numbers.
func TestDocument_KeepsTheText(t *testing.T) {
	t.Parallel()
	const one, two = `{"id":"e1","later":1}`, `{"id":"e2","payload":{"n":12345678901234567890}}`
	s := newServer(t, respond(http.StatusOK, "["+one+","+two+"]"))
	list, err := s.ListEnvironments(t.Context())
	require.NoError(t, err)
	elements, err := restclient.Elements[restclient.Environment](list)
	require.NoError(t, err)
	require.Equal(t, "e1", elements[0].Value.ID)
	text, err := json.Marshal(elements)
	require.NoError(t, err)
	require.Equal(t, "["+one+","+two+"]", string(text))
	payload, err := elements[1].Field("payload")
	require.NoError(t, err)
	require.Equal(t, `{"n":12345678901234567890}`, string(payload))
	missing, err := elements[0].Field("payload")
	require.NoError(t, err)
	require.Nil(t, missing)
}

// Runs reads as many pages as the limit needs.
func TestRuns_ReadsPages(t *testing.T) {
	t.Parallel()
	page := func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		n, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		var items []string
		for i := from; i < min(from+n, 230); i++ {
			items = append(items, fmt.Sprintf(`{"id":"%d"}`, i))
		}
		next := "null"
		if from+n < 230 {
			next = strconv.Quote(strconv.Itoa(from + n))
		}
		fmt.Fprintf(w, `{"items":[%s],"next_cursor":%s}`, strings.Join(items, ","), next)
	}
	for _, row := range []struct {
		name               string
		limit, found, last int
		limits             []string
	}{
		{"one page", 25, 25, 24, []string{"25"}},
		{"two pages", 150, 150, 149, []string{"100", "50"}},
		{"all", 1000, 230, 229, []string{"100", "100", "100"}},
		{"none", 0, 0, 0, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, page)
			var ids, limits []string
			for run, err := range s.Runs(t.Context(), restclient.ListRunsParams{}, row.limit) {
				require.NoError(t, err)
				ids = append(ids, run.Value.ID)
			}
			require.Len(t, ids, row.found)
			if row.found > 0 {
				require.Equal(t, strconv.Itoa(row.last), ids[len(ids)-1])
			}
			for _, r := range s.requests {
				limits = append(limits, r.URL.Query().Get("limit"))
			}
			require.Equal(t, row.limits, limits)
		})
	}
}

// Errors without a response and errors of the server are transient; rejected requests are not.
func TestIsTransient_DependsOnTheStatus(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, code string
		status     int64
		want       bool
	}{
		{"bad gateway", "", http.StatusBadGateway, true}, {"unavailable", "busy", http.StatusServiceUnavailable, true},
		{"rate limit", "rate_limited", http.StatusTooManyRequests, true}, {"storage full", string(httpserver.CodeStorageFull), http.StatusTooManyRequests, false},
		{"unsupported", "not_implemented", http.StatusNotImplemented, false}, {"invalid", "invalid_request", http.StatusUnprocessableEntity, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			err := &restclient.ProblemError{Problem: restclient.Problem{Status: row.status, Code: row.code}}
			require.Equal(t, row.want, restclient.IsTransient(fmt.Errorf("uploading: %w", err)))
		})
	}
	require.True(t, restclient.IsTransient(errors.New("the cable is out")))
}
