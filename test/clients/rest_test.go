// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

// language is a section of docs/rest-api.md that generates a client of the REST API. Its lock files are in a folder below rest.
type language struct {
	folder, heading string
	// programs are code blocks of the section, by the name of their file.
	programs map[string]string
	// locked are the files with the installed versions. The commands of the section install the same ones.
	locked []string
	// story builds and runs the program story of the folder, which manages a project.
	story [][]string
}

var languages = []language{
	{
		folder: "typescript", heading: "### TypeScript", programs: map[string]string{"failed.ts": "ts"},
		locked: []string{"package.json", "package-lock.json"},
		story:  [][]string{{"npx", "tsc", "--noEmit", "--strict"}, {"npx", "tsc"}, {"node", "built/story.js"}},
	},
	{
		folder: "go", heading: "### Go", programs: map[string]string{"oapi-codegen.yaml": "yaml", "failed/main.go": "go"},
		locked: []string{"go.mod", "go.sum"},
	},
}

// installed is true if there is an installation with a project, a live agent and two runs.
var installed = flag.Bool("rest.installed", false, "test the installation that AGENTPLATFORM_SERVER, AGENTPLATFORM_PROJECT and AGENTPLATFORM_API_KEY name, instead of a new one")

// Generated clients manage a project: the clients of docs/rest-api.md by the commands of the page, and the client of this
// repository.
func TestRESTClient_ManagesAProject(t *testing.T) {
	if !*installed {
		own := install(t)
		t.Setenv("AGENTPLATFORM_SERVER", own.facade)
		t.Setenv("AGENTPLATFORM_PROJECT", own.project)
		t.Setenv("AGENTPLATFORM_API_KEY", own.key.String())
	}
	server := os.Getenv("AGENTPLATFORM_SERVER")
	t.Setenv("npm_config_ignore_scripts", "true")
	page, err := os.ReadFile("../../docs/rest-api.md")
	require.NoError(t, err)
	hello, err := filepath.Abs("../../examples/hello")
	require.NoError(t, err)
	for _, l := range languages {
		t.Run(l.folder, func(t *testing.T) { l.run(t, string(page), server, hello) })
	}
	t.Run("restclient", func(t *testing.T) {
		api := restclient.New(restclient.Options{Server: server, Project: os.Getenv("AGENTPLATFORM_PROJECT"), Key: os.Getenv("AGENTPLATFORM_API_KEY")})
		(&goStory{API: api, t: t, folder: hello}).run()
	})
}

// run generates a client by the commands of the page, and runs the programs of the page and the story.
func (l *language) run(t *testing.T, page, server, folder string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), l.folder)
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("rest", l.folder))))
	section := findSection(t, page, l.heading)
	for name, block := range l.programs {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		writeFile(t, dir, name, strings.ReplaceAll(findBlock(t, section, block), "https://agents.example", server))
	}
	for command := range strings.SplitSeq(findBlock(t, section, "console"), "\n") {
		command, found := strings.CutPrefix(command, "$ ")
		require.True(t, found, command)
		output := run(t, nil, dir, "sh", "-ec", strings.ReplaceAll(command, "https://agents.example", server))
		t.Logf("$ %s\n%s", command, output)
	}
	for _, name := range l.locked {
		require.Equal(t, readText(t, filepath.Join("rest", l.folder, name)), readText(t, filepath.Join(dir, name)), "the page installs other versions than %s", name)
	}
	for i, command := range l.story {
		if i == len(l.story)-1 {
			require.Equal(t, "done\n", run(t, nil, dir, command[0], append(command[1:], folder)...))
			continue
		}
		run(t, nil, dir, command[0], command[1:]...)
	}
}

// findSection returns the text below a heading of a page, until the next heading.
func findSection(t *testing.T, page, heading string) string {
	t.Helper()
	_, section, found := strings.Cut(page, "\n"+heading+"\n")
	require.True(t, found, "docs/rest-api.md has no %s", heading)
	section, _, _ = strings.Cut(section, "\n##")
	return section
}

// findBlock returns the only code block of a section in a language.
func findBlock(t *testing.T, section, language string) string {
	t.Helper()
	parts := strings.Split(section, "```"+language+"\n")
	require.Len(t, parts, 2, "blocks of %s", language)
	block, _, closed := strings.Cut(parts[1], "\n```")
	require.True(t, closed)
	return block
}

func readText(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}
