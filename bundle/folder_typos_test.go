// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A folder with a typo in its name causes a warning, a folder with another purpose does not.
func TestMisnamedFolders(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"agent/hello.yaml":            "agent: is not read: the name of the folder is agents; rename it if you meant that folder",
		"Agents/team/hello.yaml":      "Agents: is not read: the name of the folder is agents; rename it if you meant that folder",
		"agnets/hello.yml":            "agnets: is not read: the name of the folder is agents; rename it if you meant that folder",
		"connector/tickets.yaml":      "connector: is not read: the name of the folder is connectors; rename it if you meant that folder",
		"conectors/tickets.yaml":      "conectors: is not read: the name of the folder is connectors; rename it if you meant that folder",
		"test/hello.yaml":             "test: is not read: the name of the folder is tests; rename it if you meant that folder",
		"model/hello.yaml":            "model: is not read: the name of the folder is models; rename it if you meant that folder",
		"schema/order.json":           "schema: is not read: the name of the folder is schemas; rename it if you meant that folder",
		"middlewares/log.star":        "middlewares: is not read: the name of the folder is middleware; rename it if you meant that folder",
		"agents/hello.yaml":           "",
		"agents/hello.YAML":           "", // the build refuses it
		"agents/README.md":            "",
		"agents/prompt.txt":           "",
		"schemas/order.YAML":          "",
		"tests/files/order.YAML":      "",
		"test/unit_test.go":           "", // of a program
		"tool/main.go":                "",
		"hook/pre-commit.yaml":        "",
		"docs/agents.yaml":            "",
		"src/agents/hello.yaml":       "",
		"deploy/project.yml":          "",
		"text/hello.yaml":             "",
		"texts/hello.yaml":            "",
		"books/hello.yaml":            "",
		"tests2/hello.yaml":           "",
		".github/workflows/test.yaml": "",
		"agent.yaml":                  "",
		"test":                        "",
	} {
		t.Run(name, func(t *testing.T) {
			warnings := MisnamedFolders([]string{name, "agents/hello.yaml"})
			require.Equal(t, want, warnings.Error())
		})
	}
	require.Len(t, MisnamedFolders([]string{"agent/a.yaml", "agent/b.yaml", "tool/c.star"}), 2, "one warning a folder")
	for _, folder := range folderNames() {
		require.Empty(t, SuggestFolder(folder), "it is read")
		if folder != apiFolder { // api is a usual name of a folder with code
			require.Equal(t, folder, SuggestFolder(folder[:len(folder)-1]))
		}
	}
}
