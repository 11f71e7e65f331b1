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

// shop is the part of a project's REST API that is about variables.
type shop struct {
	t            *testing.T
	url, key, id string
	production   string

	mu   sync.Mutex
	body string // of the variables
	etag int
	// between is a concurrent change before the next write, with restless before each write.
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
			if r.Header.Get("If-Match") != s.currentETag() {
				problemAnswer(http.StatusPreconditionFailed, "precondition_failed")(w)
				return
			}
			body, _ := io.ReadAll(r.Body)
			s.body, s.etag = string(body), s.etag+1
		}
		w.Header().Set("ETag", s.currentETag())
		_, _ = io.WriteString(w, s.body)
	default:
		problemAnswer(http.StatusNotFound, "not_found")(w)
	}
}

func (s *shop) currentETag() string { return fmt.Sprintf(`"x.%d"`, s.etag) }

func (s *shop) agentctl(args ...string) (out, messages string, err error) {
	s.t.Helper()
	return run(s.t, append(args, "--server", s.url, "--project", s.id, "--api-key", s.key)...)
}

// requireVariables checks the variables that were sent last.
func (s *shop) requireVariables(want string) {
	s.t.Helper()
	require.JSONEq(s.t, "["+want+"]", s.body)
}

const stored = `{"name":"REGION","value":"eu","sensitive":false,"secret_ref":null},` +
	`{"name":"TOKEN","value":"********","sensitive":true,"secret_ref":{"name":"s","key":"k"}}`

// List and get show variables, and mask sensitive values.
func TestEnv_ListsAndPrintsVariables(t *testing.T) {
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

// Set keeps all other variables, even if they change between its read and its write.
func TestEnvSet_KeepsOtherVariables(t *testing.T) {
	t.Parallel()
	s := newShop(t, stored)
	s.between = func() {
		s.body, s.etag = `[{"name":"MINE","value":"1","sensitive":false},`+stored+`]`, s.etag+1
	}
	_, messages, err := s.agentctl("env", "set", "TONE=formal=very", "REGION=us")
	require.NoError(t, err)
	require.Equal(t, "2 variables set in production\n"+changeInEffect+"\n", messages)
	s.requireVariables(`{"name":"MINE","value":"1","sensitive":false},{"name":"REGION","value":"us","sensitive":false},` +
		`{"name":"TOKEN","value":"********","sensitive":true,"secret_ref":{"name":"s","key":"k"}},{"name":"TONE","value":"formal=very","sensitive":false}`)

	_, messages, err = s.agentctl("env", "unset", "TONE", "MINE")
	require.NoError(t, err)
	require.Equal(t, "2 variables removed from production\n"+changeInEffect+"\n", messages)
	s.requireVariables(strings.Replace(strings.Replace(stored, "eu", "us", 1), `,"secret_ref":null`, "", 1))
	_, _, err = s.agentctl("env", "unset", "TONE")
	require.ErrorContains(t, err, "has no variable TONE")
}

// A sensitive variable stays sensitive. Values can come from a file or from standard input.
func TestEnvSet_KeepsVariablesSensitive(t *testing.T) {
	t.Parallel()
	s := newShop(t, stored)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("s3cret\n"), 0o600))
	_, _, err := s.agentctl("env", "set", "TOKEN", "--value-file", file)
	require.NoError(t, err)
	require.Contains(t, s.body, `{"name":"TOKEN","sensitive":true,"value":"s3cret"}`)
	_, _, err = s.agentctl("env", "set", "TOKEN=open", "--sensitive=false")
	require.NoError(t, err)
	require.Contains(t, s.body, `{"name":"TOKEN","sensitive":false,"value":"open"}`)

	root := newRootCommand("agentctl")
	root.SetArgs([]string{"env", "set", "OTHER", "--sensitive", "--server", s.url, "--project", s.id, "--api-key", s.key})
	root.SetIn(strings.NewReader("two\nlines\r\n"))
	root.SetErr(io.Discard)
	require.NoError(t, root.ExecuteContext(t.Context()))
	require.Contains(t, s.body, `{"name":"OTHER","sensitive":true,"value":"two\nlines"}`)
}

// Set rejects invalid values, and gives up after too many concurrent changes.
func TestEnvSet_RejectsInvalidValues(t *testing.T) {
	t.Parallel()
	s := newShop(t, stored)
	for want, args := range map[string][]string{
		"region: must be NAME=VALUE":          {"region=eu"},
		"REGION: must be NAME=VALUE":          {"A=b", "REGION"},
		"********":                            {"TOKEN=********"},
		"must not be empty":                   {"TOKEN="},
		"--value-file: needs one NAME":        {"A=b", "--value-file", "x"},
		"reading the value of A: open nowher": {"A", "--value-file", "nowhere"},
		"A has a value of more than":          {"A=" + strings.Repeat("x", 8193)},
	} {
		t.Run(want, func(t *testing.T) {
			_, _, err := s.agentctl(append([]string{"env", "set"}, args...)...)
			require.ErrorContains(t, err, want)
			require.Equal(t, exitFailed, exitCode(err))
		})
	}
	s.requireVariables(stored)

	// Set reports that concurrent changes always came first, and overwrites none.
	s.between = func() { s.etag++ }
	s.restless = true
	_, _, err := s.agentctl("env", "set", "A=b")
	require.ErrorContains(t, err, "412 precondition_failed")
	s.requireVariables(stored)
}

// Empty input is rejected, because a program that failed prints nothing. NAME= sets an empty value.
func TestEnvSet_RejectsEmptyInput(t *testing.T) {
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
			"TONE: the value is empty, so nothing was set; TONE= sets an empty value, `agentctl env unset TONE` removes the variable")
	}
	s.requireVariables(stored)
	_, _, err := s.agentctl("env", "set", "TONE=")
	require.NoError(t, err)
	s.requireVariables(stored + `,{"name":"TONE","value":"","sensitive":false}`)
}
