// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/examples"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/suite"
)

// open is an example with its files, which a build would take.
func open(t *testing.T, name string) (fs.FS, *bundle.Project) {
	t.Helper()
	files, err := examples.Open(name)
	require.NoError(t, err)
	project, err := bundle.Load(files)
	require.NoError(t, err, name)
	return files, project
}

func read(t *testing.T, files fs.FS, file string) string {
	t.Helper()
	content, err := fs.ReadFile(files, file)
	require.NoError(t, err, file)
	return string(content)
}

// TestEveryExampleIsAValidRepository: whatever a build refuses is not in it.
func TestEveryExampleIsAValidRepository(t *testing.T) {
	t.Parallel()
	require.Subset(t, examples.Names(), []string{"hello", "support-triage", "invoice-reader", "nightly-report", "release-notes"})
	for _, name := range examples.Names() {
		_, project := open(t, name)
		require.NotEmpty(t, project.Agents, name)
		require.Empty(t, engine.New(engine.Config{}).Check(project), name)
		require.Empty(t, suite.Check(project), name)
		require.NotEmpty(t, project.Suites, name)
		require.NotEmpty(t, examples.About(name), "%s: its README begins with what it is, in a line", name)
		require.NotContains(t, examples.About(name), "](", "it is shown as it is")
		require.True(t, strings.HasSuffix(examples.About(name), "."), "%s: what it is goes on in another line", name)
	}
	_, err := examples.Open("nothing")
	require.ErrorContains(t, err, `there is no example "nothing"; there is hello`)
}

// TestEveryExamplePassesItsTests: without a model service.
func TestEveryExamplePassesItsTests(t *testing.T) {
	t.Parallel()
	for _, name := range examples.Names() {
		_, project := open(t, name)
		results, err := suite.Run(t.Context(), suite.Options{Project: project, Models: &model.Registry{}})
		require.NoError(t, err, name)
		require.NotEmpty(t, results, name)
		for _, r := range results {
			require.True(t, r.Passed, "%s: %s", name, r.Explain())
		}
	}
}

var (
	variable = regexp.MustCompile(`\$\{([A-Z][A-Z0-9_]*)\}`)
	// fence is a block of a README that is copied to a terminal or into a file.
	fence = regexp.MustCompile("(?s)```(\\w*)\n(.*?)```")
	// sent is the body of a call, which the shell takes as it is.
	sent = regexp.MustCompile(`(?s)(?:--json|-d|--data-binary|body=) ?'(\{.*?\})'`)
	// part is a field of a form.
	part  = regexp.MustCompile(`-F '?([a-z_]+)=([^'\s]*)`)
	named = regexp.MustCompile("`((?:agents|connectors|models|tests)/[a-z0-9/_.-]*)`")
)

// TestEveryREADMETellsWhatIsThere: each connector by its file, each variable that one names, and
// no file that is not there.
func TestEveryREADMETellsWhatIsThere(t *testing.T) {
	t.Parallel()
	for _, name := range examples.Names() {
		files, project := open(t, name)
		readme := read(t, files, "README.md")
		for _, c := range project.Connectors {
			require.Contains(t, readme, "`"+c.SourcePath+"`", name)
			for _, found := range variable.FindAllStringSubmatch(read(t, files, c.SourcePath), -1) {
				require.Contains(t, readme, "name: "+found[1], "%s: what %s is", name, found[0])
			}
			if c.Mode != bundle.ModeOutbound && c.Type == bundle.ConnectorWebhook {
				require.Contains(t, readme, "conn dev."+c.Key+" ", "%s: how its URL is found", name)
			}
		}
		for _, a := range project.Agents {
			require.Contains(t, readme, "`"+a.Name+"`", name)
		}
		for _, found := range named.FindAllStringSubmatch(readme, -1) {
			_, err := fs.Stat(files, strings.TrimSuffix(found[1], "/"))
			require.NoError(t, err, "%s names %s", name, found[1])
		}
	}
}

// TestCommandsOfREADMEsSendWhatAgentsTake: JSON, with the keys that their tests send, and files
// that are there.
func TestCommandsOfREADMEsSendWhatAgentsTake(t *testing.T) {
	t.Parallel()
	for _, name := range examples.Names() {
		files, project := open(t, name)
		known := map[string]bool{}
		for _, s := range project.Suites {
			for _, c := range s.Cases {
				payload, _ := c.Payload.(map[string]any)
				for key := range payload {
					known[key] = true
				}
			}
		}
		calls := 0
		for _, block := range fence.FindAllStringSubmatch(read(t, files, "README.md"), -1) {
			for _, found := range sent.FindAllStringSubmatch(block[2], -1) {
				var body map[string]any
				require.NoError(t, json.Unmarshal([]byte(found[1]), &body), "%s: %s", name, found[1])
				for _, key := range slices.Sorted(maps.Keys(body)) {
					require.True(t, known[key], "%s sends %q, of which its tests know nothing", name, key)
				}
				calls++
			}
			for _, found := range part.FindAllStringSubmatch(block[2], -1) {
				calls++
				if file, isFile := strings.CutPrefix(found[2], "@"); isFile {
					_, err := fs.Stat(files, path.Clean(file))
					require.NoError(t, err, "%s sends %s", name, file)
					continue
				}
				require.True(t, known[found[1]], "%s sends %q, of which its tests know nothing", name, found[1])
			}
		}
		if slices.ContainsFunc(project.Connectors, func(c *bundle.Connector) bool {
			return c.Type == bundle.ConnectorWebhook && c.Mode != bundle.ModeOutbound
		}) {
			require.NotZero(t, calls, "%s has a webhook that nobody calls", name)
		}
	}
}
