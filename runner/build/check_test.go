// SPDX-License-Identifier: Apache-2.0

package build_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/runner/build"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// Problems of files, expressions, tests and the engine are reported together, sorted by position.
func TestCheck_ReportsAllProblems(t *testing.T) {
	t.Parallel()
	root := fstest.MapFS{}
	for name, text := range map[string]string{
		"agents/ok.yaml": okAgent + "guardrails: {}\nmodle: x\nconcurrency: {key: 'input.id +'}\ntools: [Bad!]\n",
		"tests/t.yaml":   "agent: nobody\ncases: [{name: a, payload: x, expected_result: outptu}]\n",
		".schemas/a.yml": "not: [read", "agents/._ok.yaml": "x", "agents/.hid.yaml": okAgent, "connectors/.x/a.yaml": "x", "models/.#a.yaml": "x", "tools/.gitkeep": "",
	} {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	_, problems, err := build.Check(root, engine.New(engine.Config{}).Check)
	require.NoError(t, err)
	lines := strings.Split(problems.Error(), "\n")
	require.Len(t, lines, 6)
	for i, want := range []string{
		`agents/ok.yaml:3:1: "guardrails" is not supported`, `agents/ok.yaml:4:1: unknown key "modle"`,
		`agents/ok.yaml:5:15: "concurrency.key" is not`, `agents/ok.yaml:6:1: "Bad!" is not a tool`,
		`tests/t.yaml:1:1: no agent is named "nobody"`, `tests/t.yaml:2:31: "expected_result" is not a CEL`,
	} {
		require.True(t, strings.HasPrefix(lines[i], want), "%s\n%s", lines[i], want)
	}
	project, problems, err := build.Check(fstest.MapFS{"agents/ok.yaml": {Data: []byte(okAgent)}}, nil)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.NotNil(t, project.Agent("ok"))
}
