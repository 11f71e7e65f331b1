// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/suite"
)

// mcpFiles are an agent with an MCP server and a script that calls its tool crm_get.
func mcpFiles(arguments string) []string {
	return []string{
		"agents/crm.yaml", "name: crm\nmodel: scripted/crm\nmcp_servers: [{name: crm, url: 'https://${CRM}/mcp', prefix: crm_, tools: [get, 'find_*']}]\n",
		"models/crm.yaml", "steps:\n  - {turn: 1, tool_calls: [{name: crm_get, arguments: " + arguments + "}]}\n  - {match: 'tool crm_get: (.*)', text: 'saw ${1}'}\n",
	}
}

const crmSuite = `agent: crm
mocks: {mcp: [{server: crm, tool: get, result: {name: any}}]}
cases:
  - name: a
    payload: x
    mocks: {mcp: [{server: crm, tool: get, arguments: {id: 7}, result: {name: Ada}}, {server: crm, tool: get, arguments: {id: 8}, error: gone}]}
    expected_result: output.contains("WANT")
    expected_tool_calls: [{tool: crm_get, times: 1}]
`

// The first mock that fits answers, and mocks of the case come first. Nothing connects to the server, so no variable is
// needed.
func TestRun_MocksMCPServers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, arguments, want string }{
		{"mock of the case", "{id: 7, full: true}", "Ada"}, {"error", "{id: 8.0}", "gone"}, {"mock of the suite", "{id: 9}", "any"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := ran(t, strings.ReplaceAll(crmSuite, "WANT", row.want), mcpFiles(row.arguments)...)
			require.True(t, r.Passed, r.Explain())
		})
	}
}

// A call that no mock answers fails its case, whatever the case expects.
func TestRun_UnmockedCallFailsCase(t *testing.T) {
	t.Parallel()
	r := ran(t, "agent: crm\ncases: [{name: a, payload: x, expected_result: 'output != \"\" || status == \"failed\"'}]\n", mcpFiles("{id: 7}")...)
	require.False(t, r.Passed)
	require.Contains(t, r.Explain(), `no mock answers the call of tool "get" of MCP server "crm" with {"id":7}`)
}

// With the build's list, calls are checked against the pinned schemas, and tools that are not pinned do not exist.
func TestRun_ChecksPinnedSchemas(t *testing.T) {
	t.Parallel()
	p := project(t, "agent: crm\ncases: [{name: a, payload: x, mocks: {mcp: [{server: crm, tool: get, result: {name: Ada}}]}, expected_result: 'output.contains(\"id\")'}]\n",
		mcpFiles("{id: seven}")...)
	tool, err := bundle.NewLockedTool("get", "Gets", []byte(`{"type":"object","properties":{"id":{"type":"integer"}}}`), nil)
	require.NoError(t, err)
	require.NoError(t, p.WriteLock(bundle.Lock{Servers: []bundle.LockedServer{{Name: "crm", Tools: []bundle.LockedTool{tool}}}}))
	results, err := suite.Run(t.Context(), suite.Options{Project: p, Models: &model.Registry{}})
	require.NoError(t, err)
	require.True(t, results[0].Passed, results[0].Explain())
}
