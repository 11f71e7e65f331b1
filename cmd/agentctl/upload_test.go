// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// folderWith makes a folder with files by their paths.
func folderWith(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		writeTestFile(t, filepath.Join(dir, name), content)
	}
	return dir
}

func writeTestFile(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

const helloAgent = "name: hello\nmodel: openai/gpt-5\n"

// endedAtOnce is the log of a build that has written nothing.
func endedAtOnce(w http.ResponseWriter, _ string) { _, _ = io.WriteString(w, end) }

// Upload sends the files of a project, and no others.
func TestDeploy_UploadsAFolder(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	id := p.addDeployment(`"status":"deployed","is_live":true`)
	p.streams = []func(http.ResponseWriter, string){endedAtOnce}
	dir := folderWith(t, map[string]string{"agents/hello.yaml": helloAgent, "tests/files/a": "x", "README.md": "no", ".git/config": "no"})
	out, messages, err := p.agentctl("deploy", "--upload", dir, "--skip-tests")
	require.NoError(t, err)
	require.Equal(t, id+"\n", out)
	require.Regexp(t, `^uploaded 2 files, .*\ndeploying to production: `+id+`\nlive in production\n$`, messages)
	require.Equal(t, []string{"/deployments/upload environment_id=" + p.production + "&skip_tests=true application/zstd"}, p.called)
	sum := sha256.Sum256(p.uploads[0])
	files, err := bundle.UnpackUpload(p.uploads[0], "sha256:"+hex.EncodeToString(sum[:]))
	require.NoError(t, err)
	require.Equal(t, []string{"agents/hello.yaml", "tests/files/a"}, files.Paths(), "and nothing else")

	_, _, err = p.agentctl("deploy", "--upload", folderWith(t, map[string]string{"tests/files/a": "x", "agents/hello.yaml": helloAgent}))
	require.NoError(t, err)
	require.Equal(t, p.uploads[0], p.uploads[1], "equal files are one upload")
}

// Folders without agents, and flags that do not fit an upload, are rejected.
func TestDeploy_RejectsInvalidFolders(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	linked := folderWith(t, map[string]string{"agents/hello.yaml": helloAgent})
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(linked, "agents/link.yaml")))
	for want, args := range map[string][]string{
		"agents/link.yaml: is a link": {"--upload", linked},
		"has no agents":               {"--upload", t.TempDir()},
		"opening the folder":          {"--upload", filepath.Join(t.TempDir(), "nowhere")},
		"needs --upload":              {"--skip-tests"},
		"[commit upload]":             {"--upload", ".", "--commit", "a"},
		"[branch upload]":             {"--upload", ".", "--branch", "a"},
	} {
		t.Run(want, func(t *testing.T) {
			_, _, err := p.agentctl(append([]string{"deploy"}, args...)...)
			require.ErrorContains(t, err, want)
		})
	}
	require.Empty(t, p.called)
}
