// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// served are the repositories of a folder with one agent.
func served(t *testing.T) (url string) {
	t.Helper()
	content := "name: hello\n"
	repos, err := newRepositories(map[string]*string{"agents/hello.yaml": &content})
	require.NoError(t, err)
	srv := httptest.NewServer(repos)
	t.Cleanup(srv.Close)
	return srv.URL
}

// runGit runs a real git.
func runGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	gitOutput(t, dir, args...)
}

// gitOutput runs the installed git and returns its output.
func gitOutput(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "git", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@example.com", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "git %v: %s", args, out)
	return string(out)
}

// clone fetches a repository and returns the folder of its agents.
func clone(t *testing.T, url string) (agents string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	runGit(t, ".", "clone", "-q", url, dir)
	return filepath.Join(dir, "agents")
}

// mine is the agent that these tests change.
func mine(t *testing.T, agents string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(agents, "mine.yaml"))
	require.NoError(t, err)
	return string(text)
}

// The server accepts a push as docs/first-agent.md describes it.
func TestServe_PushedCommits(t *testing.T) {
	t.Parallel()
	url := served(t)
	write := func(dir, text string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "agents"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "agents", "mine.yaml"), []byte(text), 0o600))
		runGit(t, dir, "add", ".")
		runGit(t, dir, "commit", "-qm", text)
		runGit(t, dir, "push", url+"/mine.git", "main")
	}
	dir := t.TempDir()
	runGit(t, dir, "init", "-q", "-b", "main")
	write(dir, "one")
	random := make([]byte, 2<<20) // more than Git sends before it has checked its permission
	_, err := rand.Read(random)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "large.bin"), random, 0o600))
	write(dir, "two") // on top of the first commit

	require.Equal(t, "two", mine(t, clone(t, url+"/mine.git")))
	other := clone(t, url+"/agents.git")
	require.FileExists(t, filepath.Join(other, "hello.yaml"))
	require.NoFileExists(t, filepath.Join(other, "mine.yaml"), "of another repository")
}

func TestServe_LocalCommits(t *testing.T) {
	t.Parallel()
	url := served(t)
	for _, text := range []string{"one", "two"} {
		answer, err := http.Post(url+"/mine.git/commit", "application/json",
			strings.NewReader(`{"message": "a commit", "files": {"agents/mine.yaml": "`+text+`"}}`))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode)
		agents := clone(t, url+"/mine.git")
		require.Equal(t, text, mine(t, agents))
		require.FileExists(t, filepath.Join(agents, "hello.yaml"), "it begins with the folder's files")
	}
	require.NoFileExists(t, filepath.Join(clone(t, url+"/agents.git"), "mine.yaml"), "of another repository")
}

// Clients that resolve a tag from the advertised refs find its commit.
func TestRefs_PeelAnnotatedTags(t *testing.T) {
	t.Parallel()
	url, dir := served(t)+"/tagged.git", t.TempDir()
	runGit(t, dir, "init", "-q", "-b", "main")
	runGit(t, dir, "commit", "-q", "--allow-empty", "-m", "one")
	runGit(t, dir, "tag", "-a", "annotated", "-m", "annotated")
	runGit(t, dir, "tag", "-a", "nested", "-m", "nested", "annotated")
	runGit(t, dir, "tag", "light")
	runGit(t, dir, "push", "-q", url, "main", "annotated", "nested", "light")
	commit := strings.TrimSpace(gitOutput(t, dir, "rev-parse", "HEAD"))
	refs := gitOutput(t, dir, "ls-remote", url)
	for _, line := range []string{"refs/tags/annotated^{}", "refs/tags/nested^{}", "refs/tags/light"} {
		require.Contains(t, refs, commit+"\t"+line+"\n")
	}
	require.NotContains(t, refs, "light^{}")
	runGit(t, ".", "clone", "-q", "--branch", "annotated", url, filepath.Join(t.TempDir(), "clone"))
}

// The tutorial and the examples look orders up.
func TestServeOrders_ReturnsKnownOrders(t *testing.T) {
	t.Parallel()
	routes := http.NewServeMux()
	serveOrders(routes)
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/orders/4711":          {http.StatusOK, `{"order":"4711","state":"shipped","carrier":"DHL","shipment":{"carrier":"DHL","eta":"tomorrow"}}` + "\n"},
		"/orders/4712/payments": {http.StatusOK, `{"payments":[{"amount":35,"state":"paid"}]}` + "\n"},
		"/orders/1":             {http.StatusNotFound, "there is no such order\n"},
	} {
		t.Run(path, func(t *testing.T) {
			got := httptest.NewRecorder()
			routes.ServeHTTP(got, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			require.Equal(t, want.status, got.Code)
			require.Equal(t, want.body, got.Body.String())
		})
	}
}
