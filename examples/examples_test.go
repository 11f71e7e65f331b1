// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/examples"
	"github.com/agentplatform/agentplatform/internal/testenv/scripttest"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/features"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/suite"
)

func TestMain(m *testing.M) { scripttest.Main(m) }

// open returns an example and its files.
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

// forEach runs a test for each example.
func forEach(t *testing.T, test func(t *testing.T, name string)) {
	t.Parallel()
	require.Subset(t, examples.Names(), []string{"hello", "support-triage", "customer-desk", "order-refunds", "invoice-reader", "nightly-report", "release-notes", "ticket-pipeline", "mail-desk"})
	for _, name := range examples.Names() {
		t.Run(name, func(t *testing.T) { test(t, name) })
	}
}

// A build accepts every example, and its README starts with a summary.
func TestExamples_AreValid(t *testing.T) {
	forEach(t, func(t *testing.T, name string) {
		_, project := open(t, name)
		require.NotEmpty(t, project.Agents)
		require.Empty(t, engine.New(engine.Config{Features: features.New(features.Config{})}).Check(project))
		require.Empty(t, suite.Check(project))
		require.NotEmpty(t, project.Suites)
		require.NotEmpty(t, examples.About(name), "the README starts with a summary in one line")
		require.NotContains(t, examples.About(name), "](", "the summary is plain text")
		require.True(t, strings.HasSuffix(examples.About(name), "."), "the summary is one line")
	})
}

func TestOpen_RejectsUnknownExamples(t *testing.T) {
	t.Parallel()
	_, err := examples.Open("nothing")
	require.ErrorContains(t, err, `there is no example "nothing"; there is customer-desk, hello`)
}

// The tests of every example pass without a model service.
func TestExamples_PassTheirTests(t *testing.T) {
	forEach(t, func(t *testing.T, name string) {
		_, project := open(t, name)
		results, err := suite.Run(t.Context(), suite.Options{Project: project, Models: &model.Registry{}})
		require.NoError(t, err)
		require.NotEmpty(t, results)
		for _, r := range results {
			require.True(t, r.Passed, "%s", r.Explain())
		}
	})
}

var (
	variable = regexp.MustCompile(`\$\{([A-Z][A-Z0-9_]*)\}`)
	// fence is a code block of a README.
	fence = regexp.MustCompile("(?s)```(\\w*)\n(.*?)```")
	// sent is the JSON body of a command.
	sent = regexp.MustCompile(`(?s)(?:--json|-d|--data-binary|body=) ?'(\{.*?\})'`)
	// part is a form field of a command.
	part  = regexp.MustCompile(`-F '?([a-z_]+)=([^'\s]*)`)
	named = regexp.MustCompile("`((?:agents|connectors|models|tests)/[a-z0-9/_.-]*)`")
)

// A README names each agent, each connector file with its variables, and no missing file.
func TestREADMEs_MatchFiles(t *testing.T) {
	forEach(t, func(t *testing.T, name string) {
		files, project := open(t, name)
		readme := read(t, files, "README.md")
		for _, c := range project.Connectors {
			require.Contains(t, readme, "`"+c.SourcePath+"`")
			for _, found := range variable.FindAllStringSubmatch(read(t, files, c.SourcePath), -1) {
				require.Contains(t, readme, "name: "+found[1], "the README sets the variable")
			}
			if c.Kind().HasCallers() {
				require.Contains(t, readme, "conn dev."+c.Key+" ", "the README reads the URL of the webhook")
			}
		}
		for _, a := range project.Agents {
			require.Contains(t, readme, "`"+a.Name+"`")
		}
		for _, found := range named.FindAllStringSubmatch(readme, -1) {
			_, err := fs.Stat(files, strings.TrimSuffix(found[1], "/"))
			require.NoError(t, err, found[1])
		}
	})
}

// Commands of a README send valid JSON with the keys of the tests, and files that exist.
func TestREADMEs_SendKnownInput(t *testing.T) {
	forEach(t, func(t *testing.T, name string) {
		files, project := open(t, name)
		known, calls := payloadKeys(project), 0
		for _, block := range fence.FindAllStringSubmatch(read(t, files, "README.md"), -1) {
			for _, found := range sent.FindAllStringSubmatch(block[2], -1) {
				var body map[string]any
				require.NoError(t, json.Unmarshal([]byte(found[1]), &body), found[1])
				for _, key := range slices.Sorted(maps.Keys(body)) {
					require.True(t, known[key], "no test sends the key %q", key)
				}
				calls++
			}
			for _, found := range part.FindAllStringSubmatch(block[2], -1) {
				calls++
				if file, isFile := strings.CutPrefix(found[2], "@"); isFile {
					_, err := fs.Stat(files, path.Clean(file))
					require.NoError(t, err, file)
					continue
				}
				require.True(t, known[found[1]], "no test sends the key %q", found[1])
			}
		}
		if slices.ContainsFunc(project.Connectors, func(c *bundle.Connector) bool {
			return c.Kind().HasCallers()
		}) {
			require.NotZero(t, calls, "the README calls the webhook")
		}
	})
}

// howTos are how-to pages by the examples that they explain.
var howTos = map[string]string{
	"customer-desk": "../docs/mcp.md", "order-refunds": "../docs/scripts.md", "ticket-pipeline": "../docs/pipelines.md",
	"mail-desk": "../docs/middleware.md",
}

// howToFile matches the first line of a code block with a file of an example.
var howToFile = regexp.MustCompile(`^# ((?:agents|connectors|hooks|middleware|models|tests|tools|steps)/\S+)$`)

// The files in a how-to page equal the files of its example. A code block begins with the path of its file.
func TestHowTos_CopyExamples(t *testing.T) {
	t.Parallel()
	for name, page := range howTos {
		t.Run(name, func(t *testing.T) {
			files, _ := open(t, name)
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			copied := 0
			for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
				first, rest, _ := strings.Cut(block[2], "\n")
				if file := howToFile.FindStringSubmatch(first); file != nil {
					require.Contains(t, read(t, files, file[1]), rest)
					copied++
				}
			}
			require.GreaterOrEqual(t, copied, 2)
		})
	}
}

// payloadKeys returns the top-level keys of the payloads in a project's tests.
func payloadKeys(project *bundle.Project) map[string]bool {
	keys := map[string]bool{}
	for _, s := range project.Suites {
		for _, c := range s.Cases {
			payload, _ := c.Payload.(map[string]any)
			for key := range payload {
				keys[key] = true
			}
		}
	}
	return keys
}
