// SPDX-License-Identifier: Apache-2.0

package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/internal/tracecontext"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
	"github.com/agentplatform/agentplatform/runner/model"
)

// journal is the journal of a run.
type journal struct {
	mu      sync.Mutex
	entries []dispatchapi.JournalEntry
}

func (j *journal) Append(_ context.Context, entries []dispatchapi.JournalEntry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entries...)
	return nil
}

// callScript is a model that calls the tool crm_get and repeats what it sees.
const callScript = `steps:
  - {turn: 1, tool_calls: [{name: crm_get, arguments: {id: 12345678901234567890}}]}
  - {match: '(?s)tool crm_get: (.*)$', text: 'saw ${1}'}
`

// project returns a repository whose agent has the server, with its lock.
func project(t *testing.T, server string, lock ...bundle.LockedServer) *bundle.Project {
	t.Helper()
	p, err := bundle.Parse(bundle.Files{
		"agents/ok.yaml": []byte("name: ok\nmodel: scripted/m\nmcp_servers: [" + server + "]\n"), "models/m.yaml": []byte(callScript),
	})
	require.NoError(t, err)
	require.NoError(t, p.WriteLock(bundle.Lock{Servers: lock}))
	return p
}

// execute executes an attempt of a run with the feature.
func execute(t *testing.T, c *mcp.Client, p *bundle.Project, j *journal, variables ...runnerconfig.Variable) engine.Outcome {
	t.Helper()
	return executeWith(t, c, p, j, runnerconfig.Sorted(variables))
}

// executeWith is execute with variables and OAuth apps.
func executeWith(t *testing.T, c *mcp.Client, p *bundle.Project, j *journal, variables runnerconfig.Variables) engine.Outcome {
	t.Helper()
	e := engine.New(engine.Config{Models: &model.Registry{}, Features: []engine.Feature{
		c.Feature(func() (runnerconfig.Variables, error) { return variables, nil }),
	}})
	out := e.Execute(t.Context(), engine.Input{
		RunID: "run-1", AgentName: "ok", Project: p, Message: "hi", Context: map[string]any{"tenant": "acme"}, Journal: j, Prior: j.entries,
	})
	j.entries = append(j.entries, out.Trailing...)
	return out
}

// An agent calls a pinned tool with the values of the run. A later attempt replays the result.
func TestFeature_OffersPinnedTools(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var tenant string
	f.before = func(_ http.ResponseWriter, r *http.Request, _ request) bool {
		tenant = r.Header.Get("X-Tenant")
		return false
	}
	c, _ := newClient(t)
	listed, err := c.List(t.Context(), f.server(t))
	require.NoError(t, err)
	p := project(t, "{name: crm, url: '${CRM_URL}/mcp', prefix: crm_, headers: {X-Tenant: 't-${context.tenant}'}}", listed)
	j := &journal{}
	for range 2 {
		out := execute(t, c, p, j, runnerconfig.Variable{Name: "CRM_URL", Value: f.URL})
		require.Equal(t, engine.Completed, out.Status, "%v", out.Cause)
		require.Equal(t, `saw {"result":"done"}`, out.Output)
	}
	c.Wait()
	require.Equal(t, "t-acme", tenant)
	require.Equal(t, 1, f.ledger())
}

// A comparison names the deployment and the agent of the run. Agents that share a server are compared separately with one list.
func TestFeature_ComparesPinnedToolsPerAgent(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var compared comparisons
	c, _ := newClient(t, func(cfg *mcp.Config) { cfg.Compared = compared.record })
	listed, err := c.List(t.Context(), f.server(t))
	require.NoError(t, err)
	listed.Tools[0].Digest = "of earlier words"
	p := project(t, "{name: crm, url: '${CRM_URL}/mcp', prefix: crm_}", listed)
	e := engine.New(engine.Config{Models: &model.Registry{}, Features: []engine.Feature{
		c.Feature(func() (runnerconfig.Variables, error) {
			return runnerconfig.Sorted([]runnerconfig.Variable{{Name: "CRM_URL", Value: f.URL}}), nil
		}),
	}})
	for _, deployment := range []string{"one", "one", "two"} {
		out := e.Execute(t.Context(), engine.Input{
			RunID: "run-1", AgentName: "ok", DeploymentID: deployment, Project: p, Message: "hi", Journal: &journal{},
		})
		require.Equal(t, engine.Completed, out.Status, "%v", out.Cause)
		c.Wait()
	}
	require.Equal(t, 2, f.requests("POST tools/list"), "one by the test, and one in the background")
	of := func(deployment string) mcp.Comparison {
		return mcp.Comparison{Subject: mcp.Subject{DeploymentID: deployment, Agent: "ok", Server: "crm"}, Drifted: []string{"get"}}
	}
	require.Equal(t, []mcp.Comparison{of("one"), of("two")}, compared.takeAll())
}

// A call names the trace of its run in its header and its metadata. Other requests of the shared session do not.
func TestFeature_ContinuesTrace(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var mu sync.Mutex
	headers, fields := map[string][]string{}, map[string]any{}
	f.before = func(_ http.ResponseWriter, r *http.Request, call request) bool {
		var params struct {
			Meta map[string]any `json:"_meta"`
		}
		_ = json.Unmarshal(call.Params, &params)
		mu.Lock()
		defer mu.Unlock()
		headers[call.Method], fields[call.Method] = r.Header.Values(tracecontext.Header), params.Meta[tracecontext.Field]
		return false
	}
	c, _ := newClient(t)
	listed, err := c.List(t.Context(), f.server(t))
	require.NoError(t, err)
	p := project(t, "{name: crm, url: '${CRM_URL}/mcp', prefix: crm_}", listed)
	out := execute(t, c, p, &journal{}, runnerconfig.Variable{Name: "CRM_URL", Value: f.URL})
	require.Equal(t, engine.Completed, out.Status, "%v", out.Cause)
	c.Wait()
	mu.Lock()
	defer mu.Unlock()
	want := tracecontext.TraceparentOf("", "run-1", runtrace.RequestPosition(runtrace.TypeMCP, "call_1_0"))
	require.Equal(t, []string{want}, headers["tools/call"])
	require.Equal(t, want, fields["tools/call"])
	require.Contains(t, headers, "initialize")
	for method, values := range headers {
		if method != "tools/call" {
			require.Empty(t, values, method)
		}
	}
}

// The journal has the server, the protocol and a digest of the session of a call, and no secret of the address.
func TestFeature_RecordsServer(t *testing.T) {
	t.Parallel()
	const canary = "s3cret-canary"
	f := newFake(t)
	c, _ := newClient(t)
	listed, err := c.List(t.Context(), f.server(t))
	require.NoError(t, err)
	host, port, err := net.SplitHostPort(f.Listener.Addr().String())
	require.NoError(t, err)
	const call = `"mcp":{"tool":"get","protocol":"2025-06-18","session":"[0-9a-f]{16}"}`
	for name, row := range map[string]struct {
		variable runnerconfig.Variable
		want     string
	}{
		"public address":    {runnerconfig.Variable{Name: "CRM_URL", Value: f.URL + "/" + canary}, `"server":{"address":"` + host + `","port":` + port + `},` + call},
		"sensitive address": {runnerconfig.Variable{Name: "CRM_URL", Value: f.URL, Sensitive: true}, call},
	} {
		t.Run(name, func(t *testing.T) {
			p, j := project(t, "{name: crm, url: '${CRM_URL}/mcp', prefix: crm_}", listed), &journal{}
			out := execute(t, c, p, j, row.variable)
			require.Equal(t, engine.Completed, out.Status, "%v", out.Cause)
			c.Wait()
			for _, e := range j.entries {
				require.NotContains(t, string(e.Data), canary)
				if e.Kind == dispatchapi.JournalToolResult {
					require.Regexp(t, row.want, string(e.Data))
					require.Equal(t, row.variable.Sensitive, !strings.Contains(string(e.Data), `"server"`))
				}
			}
		})
	}
}

// Missing values fail the run when the server is needed, and name the value.
func TestFeature_FailsWithoutValues(t *testing.T) {
	t.Parallel()
	c, _ := newClient(t)
	for _, row := range []struct{ name, server, want string }{
		{"variable", "{name: crm, url: '${CRM_URL}/mcp'}", `MCP server "crm": the environment has no variable CRM_URL`},
		{"context", "{name: crm, url: 'https://a.example', prefix: crm_, headers: {X-A: '${context.user}'}}", `MCP server "crm": the context of the run has no text or number "user"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			tool, err := bundle.NewLockedTool("get", "Gets.", []byte(`{"type":"object"}`), nil)
			require.NoError(t, err)
			out := execute(t, c, project(t, row.server, bundle.LockedServer{Name: "crm", Tools: []bundle.LockedTool{tool}}), &journal{})
			require.Equal(t, runerror.VariableUnavailable, out.ErrorCode)
			require.Equal(t, row.want, out.Error)
		})
	}
}

// A header has the value that an earlier step has set, for pinned and for live servers.
func TestFeature_UsesContextOfEarlierSteps(t *testing.T) {
	t.Parallel()
	for name, discovery := range map[string]string{"pinned": "pinned", "live": "live"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			var mu sync.Mutex
			var users []string
			f.before = func(_ http.ResponseWriter, r *http.Request, _ request) bool {
				mu.Lock()
				defer mu.Unlock()
				users = append(users, r.Header.Get("X-User"))
				return false
			}
			c, _ := newClient(t)
			listed, err := c.List(t.Context(), f.server(t))
			require.NoError(t, err)
			users = nil
			p, err := bundle.Parse(bundle.Files{
				"agents/all.yaml": []byte("name: all\ntype: sequential\nsteps: [{tool: sign_in}, {agent: ok}]\n"),
				"agents/ok.yaml": []byte("name: ok\nmodel: scripted/m\nmcp_servers: [{name: crm, url: '" + f.URL +
					"', prefix: crm_, headers: {X-User: '${context.user}'}, discovery: " + discovery + "}]\n"),
				"models/m.yaml": []byte(callScript),
			})
			require.NoError(t, err)
			require.NoError(t, p.WriteLock(bundle.Lock{Servers: []bundle.LockedServer{listed}}))
			signIn := engine.Tool{Name: "sign_in", Idempotent: true, Run: func(_ context.Context, call *engine.Call) (map[string]any, error) {
				call.ChangeContext(map[string]any{"user": "ada"})
				return map[string]any{}, nil
			}}
			e := engine.New(engine.Config{Models: &model.Registry{}, Tools: []engine.Tool{signIn}, Features: []engine.Feature{
				c.Feature(func() (runnerconfig.Variables, error) { return runnerconfig.Variables{}, nil }),
			}})
			out := e.Execute(t.Context(), engine.Input{RunID: "r", AgentName: "all", Project: p, Message: "hi", Journal: &journal{}})
			require.Equal(t, `saw {"result":"done"}`, out.Output, "%s %v", out.Error, out.Cause)
			c.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.NotEmpty(t, users)
			for _, user := range users {
				require.Equal(t, "ada", user)
			}
		})
	}
}

// A run lists a live server once, and later attempts get the same tools. A server that cannot be reached has no tools.
func TestFeature_ListsLiveServers(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c, _ := newClient(t)
	p := project(t, "{name: crm, url: '"+f.URL+"', prefix: crm_, discovery: live, idempotent: [get]}")
	j := &journal{}
	require.Equal(t, `saw {"result":"done"}`, execute(t, c, p, j).Output)
	f.tools = "[]"
	later, _ := newClient(t)
	require.Equal(t, `saw {"result":"done"}`, execute(t, later, p, j).Output)
	require.Equal(t, 1, f.requests("POST tools/list"))
	require.Equal(t, dispatchapi.JournalStep, j.entries[0].Kind)

	away := project(t, "{name: crm, url: 'http://127.0.0.1:1', discovery: live}")
	j = &journal{}
	out := execute(t, c, away, j)
	require.Contains(t, out.Output+out.Error, "crm_get", "the model calls a tool that does not exist")
	require.Contains(t, string(j.entries[0].Data), "unavailable")
	require.NotContains(t, string(j.entries[0].Data), "127.0.0.1")
}

// A live server with unusable tools fails the run.
func TestFeature_FailsForUnusableLiveTools(t *testing.T) {
	t.Parallel()
	for name, tools := range map[string]string{
		"long name": `[{"name":"` + strings.Repeat("x", 65) + `","inputSchema":{}}]`,
		"alike":     `[{"name":"x.a","inputSchema":{}},{"name":"x_a","inputSchema":{}}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.tools = tools
			c, _ := newClient(t)
			out := execute(t, c, project(t, "{name: crm, url: '"+f.URL+"', discovery: live, tools: ['x*']}"), &journal{})
			require.Equal(t, runerror.MCPUnavailable, out.ErrorCode)
		})
	}
}

// A live tool that is too large is left out with a line in the log of the run. The others stay.
func TestFeature_LeavesOutLargeLiveTools(t *testing.T) {
	t.Parallel()
	large := func(name string, size int) string {
		return `{"name":"` + name + `","description":"` + strings.Repeat("x", size) + `","inputSchema":{"type":"object"}}`
	}
	deep := strings.Repeat(`{"properties":`, 70) + "{}" + strings.Repeat("}", 70)
	most := strings.Join([]string{large("a", 31<<10), large("b", 31<<10), large("c", 31<<10), large("d", 31<<10), large("e", 31<<10)}, ",")
	for _, row := range []struct{ name, tools, want string }{
		{"tool", large("big", 33<<10), `the tool \"big\" of the MCP server \"crm\" is left out: the description and schema have`},
		{"list", most, `the tool \"e\" of the MCP server \"crm\" is left out: the tools have more than 131072 bytes together`},
		{"schema", `{"name":"deep","inputSchema":{"type":"object","properties":` + deep + `}}`, `the schema has 72 nested levels, at most 64`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.tools = "[" + getTool + "," + row.tools + "]"
			c, _ := newClient(t)
			j := &journal{}
			out := execute(t, c, project(t, "{name: crm, url: '"+f.URL+"', prefix: crm_, discovery: live, idempotent: [get]}"), j)
			require.Equal(t, `saw {"result":"done"}`, out.Output, "%v", out.Cause)
			require.Contains(t, string(j.entries[0].Data), row.want)
		})
	}
}

// The list of a server is limited as a whole, also for tools that no agent gets.
func TestList_LimitsSize(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.tools = `[{"name":"x","description":"` + strings.Repeat("x", 1<<20) + `","inputSchema":{}}]`
	c, _ := newClient(t)
	_, err := c.List(t.Context(), f.server(t))
	require.EqualError(t, err, `the MCP server "crm" cannot be used: the server's tools have more than 1048576 bytes`)
}

// Descriptions and schemas of tools show no secrets that a server returns.
func TestList_ShowsNoSecrets(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.tools = `[{"name":"x","description":"for k4nary-\u0073ecret","inputSchema":{"type":"object","properties":{"a":{"default":"k4nary-secret"}}}}]`
	c, _ := newClient(t)
	server := resolve(t, bundle.MCPServer{URL: f.URL, Headers: map[string]string{"X-Key": "${KEY}"}},
		runnerconfig.Variable{Name: "KEY", Value: "k4nary-secret", Sensitive: true})
	listed, err := c.List(t.Context(), server)
	require.NoError(t, err)
	require.Equal(t, "for [REDACTED]", listed.Tools[0].Description)
	require.NotContains(t, string(listed.Tools[0].Schema), "k4nary")
}

// A lost answer fails the run with a code if the repository asks for it.
func TestFeature_LostAnswerFailsRun(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer = func(w http.ResponseWriter, _ *http.Request, _ request) { hijack(w, "") }
	c, _ := newClient(t)
	out := execute(t, c, project(t, "{name: crm, url: '"+f.URL+"', prefix: crm_, discovery: live, on_lost_answer: fail}"), &journal{})
	require.Equal(t, runerror.MCPUnavailable, out.ErrorCode)
	require.Equal(t, 1, f.ledger())
	out = execute(t, c, project(t, "{name: crm, url: '"+f.URL+"', prefix: crm_, discovery: live}"), &journal{})
	require.Equal(t, engine.Completed, out.Status)
	require.Contains(t, out.Output, "outcome_unknown")
}

// Agents without servers need no variables.
func TestFeature_NeedsNoVariablesWithoutServers(t *testing.T) {
	t.Parallel()
	c, _ := newClient(t)
	feature := c.Feature(func() (runnerconfig.Variables, error) { return runnerconfig.Variables{}, errors.New("broken") })
	p, err := bundle.Parse(bundle.Files{"agents/ok.yaml": []byte("name: ok\nmodel: scripted/m\n"), "models/m.yaml": []byte("steps: [{text: hi}]\n")})
	require.NoError(t, err)
	out := engine.New(engine.Config{Models: &model.Registry{}, Features: []engine.Feature{feature}}).Execute(t.Context(), engine.Input{
		RunID: "run-1", AgentName: "ok", Project: p, Message: "hi", Journal: &journal{},
	})
	require.Equal(t, "hi", out.Output)
}
