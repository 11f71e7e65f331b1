// SPDX-License-Identifier: Apache-2.0

package build_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/build"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
	"github.com/agentplatform/agentplatform/runner/model"
)

// lister answers with tools by the names of servers.
type lister map[string][]string

func (l lister) List(_ context.Context, server mcp.Server) (bundle.LockedServer, error) {
	names, found := l[server.Spec.Name]
	if !found {
		return bundle.LockedServer{}, errors.New(`the MCP server "` + server.Spec.Name + `" cannot be used: the connection failed`)
	}
	out := bundle.LockedServer{Name: server.Spec.Name, Protocol: "2025-06-18"}
	for _, name := range names {
		tool, err := bundle.NewLockedTool(name, server.URL, []byte(`{"type":"object"}`), nil)
		if err != nil {
			return bundle.LockedServer{}, err
		}
		out.Tools = append(out.Tools, tool)
	}
	return out, nil
}

// packServers packs a repository with agents that use MCP servers.
func packServers(t *testing.T, l lister, pairs ...string) (*desk, dispatchapi.BuildResult) {
	t.Helper()
	d := &desk{}
	require.NoError(t, build.Pack(t.Context(), build.PackOptions{
		Dir: fetched(t, build.Result{Commit: "abc"}, pairs...), Dispatch: d, MCP: l,
		Variables: func() (runnerconfig.Variables, error) {
			return runnerconfig.Variables{Variables: []runnerconfig.Variable{{Name: "CRM_URL", Value: "https://crm.example"}}}, nil
		},
		Now: func() time.Time { return time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC) },
	}))
	return d, d.results[0]
}

// The bundle has the tools that agents use, and the digest depends on them alone.
func TestPack_LocksTools(t *testing.T) {
	t.Parallel()
	agents := []string{
		"agents/ok.yaml", okAgent + "mcp_servers: [{name: crm, url: '${CRM_URL}/mcp', tools: [get_*], headers: {X-A: '${context.tenant}'}}]\n",
		"agents/other.yaml", "name: other\nmodel: openai/gpt-5\nmcp_servers:\n  - {name: crm, url: '${CRM_URL}/mcp', tools: [set], headers: {X-A: '${context.tenant}'}}\n" +
			"  - {name: live, url: 'https://live.example', discovery: live}\n  - {name: away, url: 'https://away.example', required: false}\n",
	}
	d, result := packServers(t, lister{"crm": {"set", "get_b", "get_a", "unused"}}, agents...)
	require.Empty(t, result.FailureReason, result.Message)
	p, err := bundle.Open(bytes.NewReader(d.bundles[result.BundleDigest]), result.BundleDigest)
	require.NoError(t, err)
	locked, found := p.Lock.Server("crm")
	require.True(t, found)
	require.Len(t, p.Lock.Servers, 1)
	require.Equal(t, []string{"get_a", "get_b", "set"}, []string{locked.Tools[0].Name, locked.Tools[1].Name, locked.Tools[2].Name})
	require.Equal(t, "https://crm.example/mcp", locked.Tools[0].Description)
	require.Contains(t, d.text(), `MCP server "crm" has 4 tools, protocol 2025-06-18: "set", "get_b", "get_a", "unused"`)
	require.Contains(t, d.text(), `warning: agents have no tools of an MCP server that is not required: the MCP server "away" cannot be used`)
	_, again := packServers(t, lister{"crm": {"get_a", "other", "set", "get_b"}}, agents...)
	require.Equal(t, result.BundleDigest, again.BundleDigest)
	_, changed := packServers(t, lister{"crm": {"get_a", "set"}}, agents...)
	require.NotEqual(t, result.BundleDigest, changed.BundleDigest)
}

func TestPack_RejectsUnusableServers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, servers, want string }{
		{"away", "{name: away, url: 'https://away.example'}", `agents/ok.yaml:3:1: the MCP server "away" cannot be used`},
		{"variable", "{name: crm, url: '${GONE}'}", `agents/ok.yaml:3:1: MCP server "crm": the environment has no variable GONE`},
		{"pattern", "{name: crm, url: 'https://crm.example', tools: [delete_*]}", `agents/ok.yaml:3:16: the MCP server "crm" has no tool that matches "delete_*"`},
		{"names", "{name: crm, url: 'https://crm.example'}, {name: shop, url: 'https://shop.example'}", `two tools with the name "get", one of them from the MCP server "shop"`},
		{"built-in tool", "{name: crm, url: 'https://crm.example', tools: [current_time]}", `two tools with the name "current_time"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, result := packServers(t, lister{"crm": {"get", "current_time"}, "shop": {"get"}},
				"agents/ok.yaml", okAgent+"mcp_servers: ["+row.servers+"]\ntools: [current_time]\n")
			require.Equal(t, dispatchapi.FailureBuild, result.FailureReason)
			require.True(t, strings.Contains(result.Message, row.want), result.Message)
		})
	}
}

// Names for models are unique over all sources of tools, and all tools of requests count.
func TestPack_ComparesNamesOfAllTools(t *testing.T) {
	t.Parallel()
	many := make([]string, 64)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	l := lister{"crm": {"orders_find", "shop_list", "scripts_run", "send_ops", "search_tools", "free"}, "a": many, "b": many, "c": {"one"}}
	files := []string{
		"tools/orders.yaml", "base_url: https://shop.example\ntools: {find: {description: F, request: GET /}}\n",
		"tools/scripts.star", "def run():\n    \"\"\"Runs.\"\"\"\n",
		"apis/shop.yaml", "openapi: 3.1.0\ninfo: {title: S, version: '1'}\nservers: [{url: 'https://shop.example'}]\npaths: {/a: {get: {operationId: list, summary: L, responses: {}}}}\n",
		"connectors/ops.yaml", "type: webhook\nmode: outbound\nconfig: {url: 'https://ops.example'}\nlinks: [{agent: flow, outbound: {mode: agent_tool, action_name: send_ops}}]\n",
		"agents/flow.yaml", "name: flow\ntype: sequential\nagents: [ok]\n",
	}
	const crm = "mcp_servers: [{name: crm, url: 'https://crm.example', tools: [%s]}]\n"
	for name, row := range map[string]struct{ keys, want string }{
		"wildcard":          {"tools: ['orders.*']\n" + fmt.Sprintf(crm, "orders_find"), `two tools with the name "orders_find", one of them from the MCP server "crm"`},
		"function":          {"tools: ['scripts.*']\n" + fmt.Sprintf(crm, "scripts_run"), `two tools with the name "scripts_run"`},
		"operation":         {"tools: ['api:shop.*']\n" + fmt.Sprintf(crm, "shop_list"), `two tools with the name "shop_list"`},
		"discoverable":      {"discoverable_tools: ['orders.*']\n" + fmt.Sprintf(crm, "orders_find"), `two tools with the name "orders_find"`},
		"search":            {"discoverable_tools: ['orders.*']\n" + fmt.Sprintf(crm, "search_tools"), `two tools with the name "search_tools"`},
		"link of a parent":  {fmt.Sprintf(crm, "send_ops"), `two tools with the name "send_ops"`},
		"others":            {"tools: ['orders.*']\n" + fmt.Sprintf(crm, "free"), ""},
		"too many":          {"mcp_servers: [{name: a, url: 'https://a.example'}, {name: b, url: 'https://b.example', prefix: b_}]\n", "the agent has 129 tools with the tools of its MCP servers, at most 128 are allowed"},
		"many discoverable": {"mcp_servers: [{name: a, url: 'https://a.example'}, {name: b, url: 'https://b.example', prefix: b_, discoverable: true}]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, result := packServers(t, l, append(slices.Clone(files), "agents/ok.yaml", okAgent+row.keys)...)
			if row.want == "" {
				require.Empty(t, result.FailureReason, result.Message)
				return
			}
			require.Contains(t, result.Message, row.want)
		})
	}
}

// strictLister is a server whose tool takes a number.
type strictLister struct{}

func (strictLister) List(_ context.Context, server mcp.Server) (bundle.LockedServer, error) {
	tool, err := bundle.NewLockedTool("get", "Gets.", []byte(`{"type":"object","properties":{"id":{"type":"integer"}}}`), nil)
	return bundle.LockedServer{Name: server.Spec.Name, Protocol: "2025-06-18", Tools: []bundle.LockedTool{tool}}, err
}

// A case can fail in a build only, because a machine without the pinned schemas cannot check arguments. The log says why.
func TestPack_LogsRejectedCallsOfTests(t *testing.T) {
	t.Parallel()
	d := &desk{}
	require.NoError(t, build.Pack(t.Context(), build.PackOptions{
		Dir: fetched(t, build.Result{Commit: "abc"},
			"agents/a.yaml", "name: a\nmodel: scripted/m\nmcp_servers: [{name: crm, url: 'https://crm.example'}]\n",
			"models/m.yaml", "steps: [{turn: 1, tool_calls: [{name: get, arguments: {id: '7'}}]}, {turn: 2, text: done}]\n",
			"tests/a.yaml", "agent: a\ncases:\n  - name: a\n    payload: x\n    mocks: {mcp: [{server: crm, tool: get, result: {}}]}\n    expected_tool_calls: [{tool: get}]\n"),
		Dispatch: d, MCP: strictLister{}, Now: time.Now, Models: &model.Registry{},
	}))
	require.Equal(t, dispatchapi.FailureTests, d.results[0].FailureReason)
	require.Contains(t, d.text(), `note: rejected call of "get": the arguments do not fit: id: must be of type integer, not string`)
}

// A file of the repository cannot pretend to be the lock.
func TestPack_IgnoresLockOfRepository(t *testing.T) {
	t.Parallel()
	d, result := packServers(t, lister{}, "agents/ok.yaml", okAgent, "mcp.lock", `{"servers":[{"server":"crm"}]}`)
	p, err := bundle.Open(bytes.NewReader(d.bundles[result.BundleDigest]), result.BundleDigest)
	require.NoError(t, err)
	require.Empty(t, p.Lock.Servers)
}

// An agent of type tool needs a tool that the build knows, unless its server is not listed.
func TestPack_ChecksToolOfAgent(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, tool, servers, want string }{
		{"tool of server", "crm_get", "{name: crm, url: 'https://crm.example', prefix: crm_}", ""},
		{"built-in tool", "current_time", "{name: crm, url: 'https://crm.example'}", ""},
		{"live server", "anything", "{name: live, url: 'https://live.example', discovery: live}", ""},
		{"unknown tool", "crm_set", "{name: crm, url: 'https://crm.example', prefix: crm_}", `agents/call.yaml:3:1: no MCP server of the agent offers the tool "crm_set"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, result := packServers(t, lister{"crm": {"get"}}, "agents/call.yaml", "name: call\ntype: tool\ntool_name: "+row.tool+"\nmcp_servers: ["+row.servers+"]\n")
			if row.want == "" {
				require.Empty(t, result.FailureReason, result.Message)
				return
			}
			require.Equal(t, dispatchapi.FailureBuild, result.FailureReason)
			require.Contains(t, result.Message, row.want)
		})
	}
}
