// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatIsPushedIsServed by a real git, as docs/first-agent.md says to.
func TestWhatIsPushedIsServed(t *testing.T) {
	t.Parallel()
	folder, err := newRepository()
	require.NoError(t, err)
	content := "name: hello\n"
	_, err = folder.commit("Add the agents", map[string]*string{"agents/hello.yaml": &content})
	require.NoError(t, err)
	srv := httptest.NewServer(&repositories{folder: folder, pushed: map[string]*repository{}})
	t.Cleanup(srv.Close)
	git := func(dir string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), "git", args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
			"GIT_COMMITTER_EMAIL=a@example.com", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0")
		out, err := c.CombinedOutput()
		require.NoError(t, err, "git %v: %s", args, out)
		return string(out)
	}
	write := func(dir, text string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "agents"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "agents", "mine.yaml"), []byte(text), 0o600))
		git(dir, "add", ".")
		git(dir, "commit", "-qm", text)
		git(dir, "push", srv.URL+"/mine.git", "main")
	}
	mine := t.TempDir()
	git(mine, "init", "-q", "-b", "main")
	write(mine, "one")
	random := make([]byte, 2<<20) // more than Git sends before it has asked whether it may
	_, err = rand.Read(random)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(mine, "large.bin"), random, 0o600))
	write(mine, "two") // on what is there

	there := filepath.Join(t.TempDir(), "clone")
	git(".", "clone", "-q", srv.URL+"/mine.git", there)
	got, err := os.ReadFile(filepath.Join(there, "agents", "mine.yaml"))
	require.NoError(t, err)
	require.Equal(t, "two", string(got))

	other := filepath.Join(t.TempDir(), "clone")
	git(".", "clone", "-q", srv.URL+"/agents.git", other)
	require.FileExists(t, filepath.Join(other, "agents", "hello.yaml"))
	require.NoFileExists(t, filepath.Join(other, "agents", "mine.yaml"), "of another repository")
}
