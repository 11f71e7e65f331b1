// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/examples"
)

// Init writes the files of an example and their schemas, and never overwrites a file.
func TestInit_CreatesARepository(t *testing.T) {
	t.Parallel()
	for _, example := range examples.Names() {
		folder := filepath.Join(t.TempDir(), "new", "agents")
		out, messages, err := run(t, "init", folder, "--template", example)
		require.NoError(t, err)
		require.Contains(t, messages, example)
		project, err := bundle.Load(os.DirFS(folder))
		require.NoError(t, err)
		require.NotEmpty(t, project.Agents)
		for file, text := range project.Files {
			kind := bundle.KindOf(file)
			if kind == "" {
				continue
			}
			line, _, _ := strings.Cut(string(text), "\n")
			schema, found := strings.CutPrefix(line, "# yaml-language-server: $schema=")
			require.True(t, found, file)
			own, err := os.ReadFile(filepath.Join(folder, filepath.Dir(file), schema))
			require.NoError(t, err, file)
			want, err := bundle.Schema(kind)
			require.NoError(t, err)
			require.Equal(t, string(want), string(own), file)
		}
		help, _, err := run(t, "init", "--help")
		require.NoError(t, err)
		require.Contains(t, help, examples.About(example))
		for _, path := range strings.Fields(out) {
			require.FileExists(t, path)
		}
		_, _, err = run(t, "init", folder, "--template", example)
		require.ErrorContains(t, err, "README.md")
		require.ErrorContains(t, err, "; nothing was written")
	}

	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "README.md"), []byte("mine"), 0o600))
	_, _, err := run(t, "init", folder)
	require.ErrorContains(t, err, "already has README.md")
	require.NoDirExists(t, filepath.Join(folder, "agents"))
	_, _, err = run(t, "init", folder, "--template", "nothing")
	require.ErrorContains(t, err, "--template: there is no example")
}

// links returns the targets of the links of a Markdown file.
var links = regexp.MustCompile(`\]\(([^)\s#]+)[^)]*\)`)

// Links in the files of an example are valid in any repository.
func TestInit_KeepsLinksValid(t *testing.T) {
	t.Parallel()
	elsewhere := 0
	for _, example := range examples.Names() {
		folder := filepath.Join(t.TempDir(), "agents")
		_, _, err := run(t, "init", folder, "--template", example)
		require.NoError(t, err)
		require.NoError(t, filepath.WalkDir(folder, func(file string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(file) != ".md" {
				return err
			}
			text, err := os.ReadFile(file)
			for _, link := range links.FindAllStringSubmatch(string(text), -1) {
				target := filepath.Join(filepath.Dir(file), link[1])
				if ours, found := strings.CutPrefix(link[1], sources); found {
					target = filepath.Join("..", "..", ours)
					elsewhere++
				} else if strings.Contains(link[1], "://") {
					continue
				}
				require.FileExists(t, target, "%s of %s", link[1], example)
			}
			return err
		}))
	}
	require.NotZero(t, elsewhere)
}

// Init writes nothing if it cannot write all files.
func TestInit_WritesAllOrNothing(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "elsewhere")
	require.NoError(t, os.Mkdir(outside, 0o755))
	for name, stands := range map[string]func(path string) error{
		"a link to elsewhere": func(path string) error { return os.Symlink(outside, path) },
		"a link to nothing":   func(path string) error { return os.Symlink("nothing", path) },
		"a file":              func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, of := range []string{"agents", "tests", ".schemas"} {
				folder := t.TempDir()
				require.NoError(t, stands(filepath.Join(folder, of)))
				_, _, err := run(t, "init", folder)
				require.ErrorContains(t, err, "has "+of+", which is not a folder in it; nothing was written")
				entries, err := os.ReadDir(folder)
				require.NoError(t, err)
				require.Len(t, entries, 1)
			}
		})
	}
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, entries, "a link leads nowhere")
}
