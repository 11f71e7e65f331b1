// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/expand"
)

// mcpAgent returns a repository whose agent has these servers.
func mcpAgent(servers string, more ...string) bundle.Files {
	return newFiles(append([]string{"agents/ok.yaml", okAgent + "mcp_servers:\n" + servers}, more...)...)
}

func TestMCPServer_HasDefaults(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(mcpAgent("  - {name: crm, url: 'https://a.example'}\n  - {name: b, url: '${B_URL}/mcp', timeout: 90, connect_timeout: 5s," +
		" max_result: 2048, discovery: live, on_lost_answer: fail}\n"))
	require.NoError(t, err)
	bare, full := p.Agent("ok").MCPServers[0], p.Agent("ok").MCPServers[1]
	require.Equal(t, []any{time.Minute, 10 * time.Second, 64 << 10, true, true},
		[]any{bare.CallTimeout(), bare.ConnectLimit(), bare.ResultLimit(), bare.IsPinned(), bare.IsRequired()})
	require.Equal(t, []any{90 * time.Second, 5 * time.Second, 2048, false, true, bundle.MCPFail},
		[]any{full.CallTimeout(), full.ConnectLimit(), full.ResultLimit(), full.IsPinned(), full.IsRequired(), full.OnLostAnswer})
}

func TestMCPServer_SelectsTools(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, tool     string
		tools, exclude []string
		want           bool
	}{
		{"all", "get", nil, nil, true},
		{"named", "get", []string{"get"}, nil, true},
		{"other name", "get_all", []string{"get"}, nil, false},
		{"start", "search_orders", []string{"search_*"}, nil, true},
		{"middle", "a.get.b", []string{"a*b"}, nil, true},
		{"overlap", "ab", []string{"ab*b"}, nil, false},
		{"two wildcards", "xaybz", []string{"*a*b*"}, nil, true},
		{"slash", "files/read", []string{"files/*"}, nil, true},
		{"excluded", "search_secret", []string{"search_*"}, []string{"*secret"}, false},
		{"not a regular expression", "get", []string{"g.t"}, nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := bundle.MCPServer{Tools: row.tools, Exclude: row.exclude}
			require.Equal(t, row.want, s.Offers(row.tool))
		})
	}
	s := bundle.MCPServer{Prefix: "crm_", Tools: []string{"files/*"}, Idempotent: []string{"get_*"}}
	require.Equal(t, "crm_files_read_x", s.ToolName("files/read.x"))
	require.True(t, s.MayHaveTool("crm_files_read"))
	require.False(t, s.MayHaveTool("files_read"))
	require.False(t, s.MayHaveTool("crm_write"))
	require.True(t, s.VouchesFor("get_x"))
	require.False(t, s.VouchesFor("set_x"))
}

func TestMCPServer_RejectsConflicts(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, server, want string }{
		{"reserved header", "{name: a, url: 'https://a.example', headers: {Mcp-Session-Id: x}}", `"a" has the header "Mcp-Session-Id", which the protocol sets`},
		{"platform header", "{name: a, url: 'https://a.example', headers: {Host: x}}", `"a" has the header "Host"`},
		{"two kinds of OAuth", "{name: a, url: 'https://a.example', oauth_app: crm, oauth: {client_id: a, client_secret: b}}", `"a" has "oauth" and "oauth_app"; keep one`},
		{"app and header", "{name: a, url: 'https://a.example', oauth_app: crm, headers: {authorization: x}}", `"a" has "oauth_app" and the header "Authorization"; keep one`},
		{"two credentials", "{name: a, url: 'https://a.example', headers: {authorization: x}, oauth: {client_id: a, client_secret: b}}", `"a" has "oauth" and the header`},
		{"malformed variable", "{name: a, url: 'https://a.example/${x y}'}", `"a": a value has ${`},
		{"malformed header", "{name: a, url: 'https://a.example', headers: {X-A: '${context.}'}}", `"a" has ${ that is not followed`},
		{"context in the URL", "{name: a, url: 'https://a.example/${context.x}'}", `"a": a value has ${`},
		{"name twice", "{name: a, url: 'https://a.example'}\n  - {name: a, url: 'https://b.example'}", `two servers with the name "a"`},
		{"name", "{name: 'A b', url: 'https://a.example'}", `"mcp_servers[0].name" must be at most 40 lower-case letters`},
		{"timeout", "{name: a, url: 'https://a.example', timeout: 601}", `"mcp_servers[0].timeout" must be between 1 and 600`},
		{"timeout as text", "{name: a, url: 'https://a.example', timeout: 11m}", `"mcp_servers[0].timeout" must be between 1 and 600`},
		{"later key", "{name: a, url: 'https://a.example', elicitation: ask}", `unknown key "elicitation"`},
		{"many", strings.TrimPrefix(strings.Repeat("  - {name: a, url: 'https://a.example'}\n", 21), "  - "), `may name at most 20 servers`},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, problems := bundle.Examine(mcpAgent("  - " + row.server + "\n"))
			require.ErrorContains(t, problems, row.want)
		})
	}
}

// One name is one server, because the lock has its tools once.
func TestMCPServer_NameMeansOneServer(t *testing.T) {
	t.Parallel()
	other := func(server string) (string, string) {
		return "agents/other.yaml", "name: other\nmodel: openai/gpt-5\nmcp_servers: [" + server + "]\n"
	}
	file, text := other("{name: crm, url: 'https://a.example', tools: [get], prefix: x_}")
	_, err := bundle.Parse(mcpAgent("  - {name: crm, url: 'https://a.example'}\n", file, text))
	require.NoError(t, err)
	for _, server := range []string{
		"{name: crm, url: 'https://b.example'}", "{name: crm, url: 'https://a.example', discovery: live}",
		"{name: crm, url: 'https://a.example', headers: {X-A: b}}", "{name: crm, url: 'https://a.example', oauth: {client_id: a, client_secret: b}}", "{name: crm, url: 'https://a.example', oauth_app: b}",
	} {
		t.Run(server, func(t *testing.T) {
			file, text := other(server)
			_, err := bundle.Parse(mcpAgent("  - {name: crm, url: 'https://a.example'}\n", file, text))
			require.ErrorContains(t, err, `agents/other.yaml:3:16: the server "crm" has another "url"`)
		})
	}
}

// Values are never expanded again, so the input of a run cannot name variables.
func TestExpandContext_DoesNotExpandValues(t *testing.T) {
	t.Parallel()
	e := &expand.Expansion{Lookup: func(name string) (string, bool) { return "v:" + name, name != "GONE" }}
	context := func(name string) (string, bool) { return "${TOKEN}" + name, name != "gone" }
	got, missing, err := bundle.ExpandContext("a ${T} ${context.x} $${context.y} ${GONE}", e, context)
	require.NoError(t, err)
	require.Equal(t, "a v:T ${TOKEN}x ${context.y} ${GONE}", got)
	require.Empty(t, missing)
	require.Equal(t, []string{"GONE"}, e.Missing())
	_, missing, err = bundle.ExpandContext("${context.gone}", e, context)
	require.NoError(t, err)
	require.Equal(t, "gone", missing)
	require.True(t, bundle.UsesContext("a ${context.x}"))
	require.False(t, bundle.UsesContext("$${context.x} ${X}"))
}

func lockedTool(t *testing.T, name string) bundle.LockedTool {
	t.Helper()
	tool, err := bundle.NewLockedTool(name, "Gets <x>", []byte(`{"type":"object","maximum":12345678901234567890.10}`), []byte(`{"readOnlyHint": true}`))
	require.NoError(t, err)
	return tool
}

// Equal lists in any order give equal bundles, and a number keeps its digits.
func TestLock_IsPartOfBundle(t *testing.T) {
	t.Parallel()
	pack := func(names ...string) (string, *bytes.Buffer) {
		p, err := bundle.Parse(mcpAgent("  - {name: crm, url: 'https://a.example'}\n"))
		require.NoError(t, err)
		server := bundle.LockedServer{Name: "crm", Protocol: "2025-06-18"}
		for _, name := range names {
			server.Tools = append(server.Tools, lockedTool(t, name))
		}
		require.NoError(t, p.WriteLock(bundle.Lock{Servers: []bundle.LockedServer{{Name: "zoo"}, server}}))
		var packed bytes.Buffer
		digest, _, err := bundle.Pack(p.Files, &packed)
		require.NoError(t, err)
		return digest, &packed
	}
	first, packed := pack("get", "set")
	second, _ := pack("set", "get")
	require.Equal(t, first, second)
	other, _ := pack("get")
	require.NotEqual(t, first, other)
	opened, err := bundle.Open(packed, first)
	require.NoError(t, err)
	server, found := opened.Lock.Server("crm")
	require.True(t, found)
	require.Equal(t, "get", server.Tools[0].Name)
	require.Contains(t, string(server.Tools[0].Schema), "12345678901234567890.10")
	require.True(t, server.Tools[0].IsReadOnly())
	_, found = opened.Lock.Server("none")
	require.False(t, found)
}

func TestLock_RejectsInvalidTools(t *testing.T) {
	t.Parallel()
	_, err := bundle.NewLockedTool("x", "", []byte(`[1]`), nil)
	require.ErrorContains(t, err, "schema")
	_, err = bundle.NewLockedTool("x", "", []byte(`{}`), []byte(`7`))
	require.ErrorContains(t, err, "annotations")
	_, err = bundle.Parse(mcpAgent("  - {name: crm, url: 'https://a.example'}\n", bundle.LockFile, "{"))
	require.ErrorContains(t, err, "mcp.lock: is not as a build writes it")
	p, err := bundle.Parse(mcpAgent("  - {name: crm, url: 'https://a.example'}\n"))
	require.NoError(t, err)
	tool := lockedTool(t, strings.Repeat("x", bundle.MaxLockSize))
	require.ErrorContains(t, p.WriteLock(bundle.Lock{Servers: []bundle.LockedServer{{Name: "crm", Tools: []bundle.LockedTool{tool}}}}), "name fewer tools")
}

// A mock of a tool that the agent cannot call would hide a mistake.
func TestMocks_OfMCPServers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, mock, want string }{
		{"valid", "{server: crm, tool: get_customer, arguments: {id: 7}, result: {name: Ada}}", ""},
		{"unknown server", "{server: shop, tool: get_customer, error: x}", `agent "ok" has no MCP server "shop"; its servers: crm`},
		{"unknown tool", "{server: crm, tool: delete, error: x}", `the server "crm" has no tool "delete" for agent "ok"`},
		{"no answer", "{server: crm, tool: get_customer}", `needs either "result" or "error"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := bundle.Parse(mcpAgent("  - {name: crm, url: 'https://a.example', tools: [get_*], prefix: crm_}\n",
				"tests/t.yaml", "agent: ok\ncases: [{name: a, payload: x, expected_no_tool_calls: [crm_get_all], mocks: {mcp: ["+row.mock+"]}}]\n"))
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.want)
		})
	}
	_, err := bundle.Parse(mcpAgent("  - {name: crm, url: 'https://a.example', tools: [get_*], prefix: crm_}\n",
		"tests/t.yaml", "agent: ok\ncases: [{name: a, payload: x, expected_tool_calls: [{tool: get_all}]}]\n"))
	require.ErrorContains(t, err, `agent "ok" has no tool "get_all"`)
}

func TestCheckTools_RejectsUnusableTools(t *testing.T) {
	t.Parallel()
	listed := func(names ...string) (out []bundle.LockedTool) {
		for _, name := range names {
			out = append(out, bundle.LockedTool{Name: name})
		}
		return out
	}
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	sized := func(count, size int) (out []bundle.LockedTool) {
		for i := range count {
			out = append(out, bundle.LockedTool{Name: fmt.Sprint(i), Description: strings.Repeat("x", size-1)})
		}
		return out
	}
	nested := func(depth int) []bundle.LockedTool {
		schema := strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
		return []bundle.LockedTool{{Name: "deep", Schema: []byte(schema)}}
	}
	for _, row := range []struct {
		name   string
		spec   bundle.MCPServer
		listed []bundle.LockedTool
		want   string
	}{
		{"fine", bundle.MCPServer{Tools: []string{"get", "s*"}, Exclude: []string{"set"}}, listed("get", "set", "search"), ""},
		{"no match", bundle.MCPServer{Tools: []string{"get", "s*"}}, listed("get"), `has no tool that matches "s*"`},
		{"nothing to exclude", bundle.MCPServer{Exclude: []string{"delte_*"}}, listed("delete_order"), `has no tool that matches "delte_*"`},
		{"nothing idempotent", bundle.MCPServer{Idempotent: []string{"gte"}}, listed("get"), `has no tool that matches "gte"`},
		{"many", bundle.MCPServer{}, listed(many...), "offers 65 tools, at most 64"},
		{"long", bundle.MCPServer{Prefix: "crm_"}, listed(strings.Repeat("x", 61)), "more than 64 bytes with its prefix"},
		{"taken", bundle.MCPServer{}, listed("current_time"), `two tools with the name "current_time"`},
		{"largest tools", bundle.MCPServer{}, sized(4, bundle.MaxMCPToolSize), ""},
		{"large tool", bundle.MCPServer{}, sized(1, bundle.MaxMCPToolSize+1), `a tool "0" that agents cannot get: the description and schema have 32769 bytes, at most 32768`},
		{"large list", bundle.MCPServer{}, sized(5, bundle.MaxMCPToolSize), `offers tools with more than 131072 bytes; name the tools`},
		{"deepest schema", bundle.MCPServer{}, nested(bundle.MaxMCPSchemaDepth), ""},
		{"deep schema", bundle.MCPServer{}, nested(bundle.MaxMCPSchemaDepth + 1), "the schema has 65 nested levels, at most 64"},
		{"left out", bundle.MCPServer{Exclude: []string{"deep"}}, nested(bundle.MaxMCPSchemaDepth + 1), ""},
		{"alike", bundle.MCPServer{}, listed("a.b", "a/b"), `two tools with the name "a_b"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.spec.Name = "crm"
			problem := row.spec.CheckTools(row.listed, map[string]bool{"current_time": true})
			if row.want == "" {
				require.Empty(t, problem)
				return
			}
			require.Contains(t, problem, row.want)
		})
	}
}

// "required" decides what a build does, and a build does not connect to a live server.
func TestMCPServer_RejectsRequiredLiveServer(t *testing.T) {
	t.Parallel()
	for name, required := range map[string]string{"true": "true", "false": "false"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bundle.Parse(mcpAgent("  - {name: crm, url: 'https://a.example', discovery: live, required: " + required + "}\n"))
			require.ErrorContains(t, err, `agents/ok.yaml:4:6: "crm": "required" has no effect with "discovery: live", because the build does not connect to the server; remove it`)
		})
	}
}
