// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/keys"
)

// shop is a project's REST API as far as the variables of its environment go.
type shop struct {
	t            *testing.T
	url, key, id string
	production   string

	mu   sync.Mutex
	body string // of the variables
	etag int
	// between is done before the next change is taken, restless before each: what somebody
	// else does.
	between  func()
	restless bool
}

func newShop(t *testing.T, variables string) *shop {
	t.Helper()
	s := &shop{t: t, key: keys.Generate().String(), id: uuid.NewString(), production: uuid.NewString(), body: "[" + variables + "]", etag: 1}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, ours := strings.CutPrefix(r.URL.Path, "/v1/projects/"+s.id)
	switch {
	case !ours || r.Header.Get("Authorization") != "Bearer "+s.key:
		problemAnswer(http.StatusForbidden, "forbidden")(w)
	case path == "/environments":
		fmt.Fprintf(w, `[{"id":%q,"name":"Production","slug":"production","is_default":true}]`, s.production)
	case path == "/agents":
		_, _ = io.WriteString(w, `[{"name":"hello"},{"name":"welcome"}]`)
	case path == "/deployments":
		_, _ = io.WriteString(w, `[{"id":"5c1e09aa","status":"deployed","is_live":true}]`)
	case path == "/environments/"+s.production+"/variables":
		if r.Method == http.MethodPut {
			if s.between != nil {
				s.between()
				if !s.restless {
					s.between = nil
				}
			}
			if r.Header.Get("If-Match") != s.tag() {
				problemAnswer(http.StatusPreconditionFailed, "precondition_failed")(w)
				return
			}
			body, _ := io.ReadAll(r.Body)
			s.body, s.etag = string(body), s.etag+1
		}
		w.Header().Set("ETag", s.tag())
		_, _ = io.WriteString(w, s.body)
	default:
		problemAnswer(http.StatusNotFound, "not_found")(w)
	}
}

func (s *shop) tag() string { return fmt.Sprintf(`"x.%d"`, s.etag) }

func (s *shop) agentctl(args ...string) (out, messages string, err error) {
	s.t.Helper()
	return run(s.t, append(args, "--server", s.url, "--project", s.id, "--api-key", s.key)...)
}

// has says that the environment has these variables, as they were sent.
func (s *shop) has(want string) {
	s.t.Helper()
	require.JSONEq(s.t, "["+want+"]", s.body)
}

const stored = `{"name":"REGION","value":"eu","sensitive":false,"secret_ref":null},` +
	`{"name":"TOKEN","value":"********","sensitive":true,"secret_ref":{"name":"s","key":"k"}}`

func TestVariablesAreListedAndRead(t *testing.T) {
	t.Parallel()
	s := newShop(t, stored)
	out, _, err := s.agentctl("env", "list", "--environment", "production")
	require.NoError(t, err)
	require.Equal(t, "NAME    VALUE     SENSITIVE\nREGION  eu        no\nTOKEN   ********  yes\n", out)
	out, _, err = s.agentctl("env", "list", "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, "["+stored+"]", out)

	out, messages, err := s.agentctl("env", "get", "REGION")
	require.NoError(t, err)
	require.Equal(t, "eu\n", out)
	require.Empty(t, messages)
	out, messages, err = s.agentctl("env", "get", "TOKEN")
	require.NoError(t, err)
	require.Equal(t, "********\n", out)
	require.Contains(t, messages, "TOKEN is sensitive")
	_, _, err = s.agentctl("env", "get", "TOKE")
	require.EqualError(t, err, "environment production has no variable TOKE; there is REGION, TOKEN")
	require.Equal(t, exitFailed, exitCode(err))
	_, _, err = s.agentctl("env", "list", "--environment", "nothing")
	require.ErrorContains(t, err, "--environment")
}

// TestSetKeepsAllOthers: also what somebody else changed between the reading and the writing.
func TestSetKeepsAllOthers(t *testing.T) {
	t.Parallel()
	s := newShop(t, stored)
	s.between = func() {
		s.body, s.etag = `[{"name":"MINE","value":"1","sensitive":false},`+stored+`]`, s.etag+1
	}
	_, messages, err := s.agentctl("env", "set", "TONE=formal=very", "REGION=us")
	require.NoError(t, err)
	require.Equal(t, "2 variables set in production\n"+inEffect+"\n", messages)
	s.has(`{"name":"MINE","value":"1","sensitive":false},{"name":"REGION","value":"us","sensitive":false},` +
		`{"name":"TOKEN","value":"********","sensitive":true,"secret_ref":{"name":"s","key":"k"}},{"name":"TONE","value":"formal=very","sensitive":false}`)

	_, messages, err = s.agentctl("env", "unset", "TONE", "MINE")
	require.NoError(t, err)
	require.Equal(t, "2 variables removed from production\n"+inEffect+"\n", messages)
	s.has(strings.Replace(strings.Replace(stored, "eu", "us", 1), `,"secret_ref":null`, "", 1))
	_, _, err = s.agentctl("env", "unset", "TONE")
	require.ErrorContains(t, err, "has no variable TONE")
}

// TestSensitiveStaysSo: unless it is said, and its value may come from a file or standard input.
func TestSensitiveStaysSo(t *testing.T) {
	t.Parallel()
	s := newShop(t, stored)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("s3cret\n"), 0o600))
	_, _, err := s.agentctl("env", "set", "TOKEN", "--value-file", file)
	require.NoError(t, err)
	require.Contains(t, s.body, `{"name":"TOKEN","value":"s3cret","sensitive":true}`)
	_, _, err = s.agentctl("env", "set", "TOKEN=open", "--sensitive=false")
	require.NoError(t, err)
	require.Contains(t, s.body, `{"name":"TOKEN","value":"open","sensitive":false}`)

	root := newRootCommand("agentctl")
	root.SetArgs([]string{"env", "set", "OTHER", "--sensitive", "--server", s.url, "--project", s.id, "--api-key", s.key})
	root.SetIn(strings.NewReader("two\nlines\r\n"))
	root.SetErr(io.Discard)
	require.NoError(t, root.ExecuteContext(t.Context()))
	require.Contains(t, s.body, `{"name":"OTHER","value":"two\nlines","sensitive":true}`)
}

func TestWhatCannotBeSet(t *testing.T) {
	t.Parallel()
	s := newShop(t, stored)
	for want, args := range map[string][]string{
		"region: must be NAME=VALUE":          {"region=eu"},
		"REGION: must be NAME=VALUE":          {"A=b", "REGION"},
		"********":                            {"TOKEN=********"},
		"must not be empty":                   {"TOKEN="},
		"--value-file: is for one NAME":       {"A=b", "--value-file", "x"},
		"reading the value of A: open nowher": {"A", "--value-file", "nowhere"},
		"A has a value of more than":          {"A=" + strings.Repeat("x", 8193)},
	} {
		t.Run(want, func(t *testing.T) {
			_, _, err := s.agentctl(append([]string{"env", "set"}, args...)...)
			require.ErrorContains(t, err, want)
			require.Equal(t, exitFailed, exitCode(err))
		})
	}
	s.has(stored)

	// Somebody who always comes first is not written over: it is said in the end.
	s.between = func() { s.etag++ }
	s.restless = true
	_, _, err := s.agentctl("env", "set", "A=b")
	require.ErrorContains(t, err, "412 precondition_failed")
	s.has(stored)
}

// TestAnEmptyValueIsNotSetUnlessItIsSaid: what a program printed that failed is none, wherever it is read.
func TestAnEmptyValueIsNotSetUnlessItIsSaid(t *testing.T) {
	t.Parallel()
	s := newShop(t, stored)
	file := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(file, []byte("\r\n"), 0o600))
	for _, args := range [][]string{{"TONE"}, {"TONE", "--sensitive"}, {"TONE", "--value-file", file}} {
		root := newRootCommand("agentctl")
		root.SetArgs(append([]string{"env", "set", "--server", s.url, "--project", s.id, "--api-key", s.key}, args...))
		root.SetIn(strings.NewReader("\n"))
		root.SetErr(io.Discard)
		require.EqualError(t, root.ExecuteContext(t.Context()),
			"TONE: the value that was read is empty, and nothing is set; TONE= sets an empty one, `agentctl env unset TONE` removes the variable")
	}
	s.has(stored)
	_, _, err := s.agentctl("env", "set", "TONE=")
	require.NoError(t, err)
	s.has(stored + `,{"name":"TONE","value":"","sensitive":false}`)
}
