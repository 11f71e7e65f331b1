// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMisnamedSaysWhatIsAlmostRead: folders that are nearly called right, and nothing that a
// repository has for other reasons.
func TestMisnamedSaysWhatIsAlmostRead(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"agent/hello.yaml":            "agent: is not read, for the folder is called agents; rename it where that is meant",
		"Agents/team/hello.yaml":      "Agents: is not read, for the folder is called agents; rename it where that is meant",
		"agnets/hello.yml":            "agnets: is not read, for the folder is called agents; rename it where that is meant",
		"connector/tickets.yaml":      "connector: is not read, for the folder is called connectors; rename it where that is meant",
		"conectors/tickets.yaml":      "conectors: is not read, for the folder is called connectors; rename it where that is meant",
		"test/hello.yaml":             "test: is not read, for the folder is called tests; rename it where that is meant",
		"model/hello.yaml":            "model: is not read, for the folder is called models; rename it where that is meant",
		"schema/order.json":           "schema: is not read, for the folder is called schemas; rename it where that is meant",
		"middlewares/log.star":        "middlewares: is not read, for the folder is called middleware; rename it where that is meant",
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
			said := Misnamed([]string{name, "agents/hello.yaml"})
			require.Equal(t, want, said.Error())
		})
	}
	require.Len(t, Misnamed([]string{"agent/a.yaml", "agent/b.yaml", "tool/c.star"}), 2, "a folder is told of once")
	for _, folder := range layout {
		require.Empty(t, Meant(folder), "it is read")
		require.Equal(t, folder, Meant(folder[:len(folder)-1]))
	}
}
