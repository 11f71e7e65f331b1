// SPDX-License-Identifier: Apache-2.0

package runtrace

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var attributeCases = map[string]struct {
	journal []Entry
	span    string
	want    map[string]any
}{
	"run": {nil, "run support", map[string]any{
		"gen_ai.agent.name": "support", "gen_ai.agent.version": "sha256:abc", "agentplatform.run.id": "r1",
		"agentplatform.run.status": "completed", "agentplatform.run.attempt": 1,
	}},
	"agent with steps": {journalOf("model_answer", `{"agent":"pipe/0:classify","turn":1,"model":"a/b"}`), "invoke_workflow pipe", map[string]any{
		"gen_ai.agent.name": "pipe", "gen_ai.agent.version": "sha256:abc", "gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "pipe",
	}},
	"agent": {journalOf("model_answer", `{"agent":"pipe/0:classify","turn":1,"model":"a/b"}`), "invoke_agent classify", map[string]any{
		"gen_ai.agent.name": "classify", "gen_ai.agent.version": "sha256:abc", "gen_ai.operation.name": "invoke_agent",
	}},
	"model request": {journalOf("model_answer", `{"agent":"a","turn":1,"model":"openai/gpt-5","response_model":"gpt-5-2026","temperature":0.2,"max_output_tokens":2000,
		"server":{"address":"api.openai.com","port":443}}`), "chat gpt-5", map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5", "gen_ai.response.model": "gpt-5-2026",
		"gen_ai.request.temperature": 0.2, "gen_ai.request.max_tokens": 2000, "server.address": "api.openai.com", "server.port": 443, "agentplatform.turn": 1,
	}},
	"request of a script": {journalOf("tool_result", `{"agent":"a","call_id":"c1/1","tool":"http.get","digest":"d","server":{"address":"::1","port":70000}}`),
		"http.get", map[string]any{"agentplatform.effect.name": "http.get", "server.address": "::1"}},
	"call of an HTTP tool": {journalOf(
		"tool_started", `{"agent":"a","call_id":"c1","tool":"look","type":"http"}`,
		"tool_result", `{"call_id":"c1","tool":"look","server":{"address":"shop.example","port":80}}`), "execute_tool look", map[string]any{
		"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look", "gen_ai.tool.call.id": "c1", "gen_ai.tool.type": "extension",
		"agentplatform.tool.type": "http", "server.address": "shop.example", "server.port": 80,
	}},
	"call of an MCP tool": {journalOf(
		"tool_started", `{"agent":"a","call_id":"c1","tool":"crm_get","type":"mcp"}`,
		"tool_result", `{"call_id":"c1","tool":"crm_get","server":{"address":"crm.example","port":443},"mcp":{"tool":"get"}}`), "execute_tool crm_get", map[string]any{
		"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "crm_get", "gen_ai.tool.call.id": "c1", "gen_ai.tool.type": "extension",
		"agentplatform.tool.type": "mcp",
	}},
	"MCP request": {journalOf(
		"tool_started", `{"agent":"a","call_id":"c1","tool":"crm_get","type":"mcp"}`,
		"tool_result", `{"call_id":"c1","tool":"crm_get","server":{"address":"crm.example","port":443},
			"mcp":{"tool":"get","protocol":"2025-06-18","session":"0123456789abcdef"}}`), "tools/call get", map[string]any{
		"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get", "mcp.method.name": "tools/call", "mcp.protocol.version": "2025-06-18",
		"mcp.session.id": "0123456789abcdef", "network.transport": "tcp", "server.address": "crm.example", "server.port": 443,
	}},
	"MCP request of an earlier release": {journalOf(
		"tool_started", `{"agent":"a","call_id":"c1","tool":"crm_get","type":"mcp"}`, "tool_result", `{"call_id":"c1","tool":"crm_get"}`),
		"tools/call crm_get", map[string]any{
			"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "crm_get", "mcp.method.name": "tools/call", "network.transport": "tcp",
		}},
}

// Spans have the attributes of the conventions. A journal of an earlier release has fewer facts.
func TestCompute_Attributes(t *testing.T) {
	t.Parallel()
	for name, row := range attributeCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := NewBuilder("r1")
			b.Version = "sha256:abc"
			for i := range row.journal {
				require.NoError(t, b.AddEntry(&row.journal[i]))
			}
			spans := b.BuildTrace(endedRun(time.Minute)).Spans
			at := slices.IndexFunc(spans, func(s Span) bool { return s.Name == row.span })
			require.GreaterOrEqual(t, at, 0)
			require.Equal(t, row.want, spans[at].Attributes)
		})
	}
}

// The span of a request to an MCP server has the span ID in the traceparent of the request, and the error of the call.
func TestCompute_MCPRequest(t *testing.T) {
	t.Parallel()
	trace, err := ComputeTrace(endedRun(time.Minute), journalOf(
		"tool_started", `{"agent":"a","call_id":"c1","tool":"get","type":"mcp"}`,
		"tool_result", `{"call_id":"c1","tool":"get","error":"no such order","code":"x"}`))
	require.NoError(t, err)
	call, request := trace.Spans[2], trace.Spans[3]
	require.Equal(t, SpanID("r1", RequestPosition(TypeMCP, "c1")), request.ID)
	require.Equal(t, call.ID, request.Parent)
	require.Equal(t, []string{"x", "no such order"}, []string{request.ErrorType, request.Error})
}

// A server of a URL has its host and its port, and nothing else.
func TestServerOf_KeepsHostAndPort(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]*Server{
		"https://user:secret@api.example/v1?key=secret": {"api.example", 443},
		"http://api.example":                            {"api.example", 80},
		"https://[2001:db8::1]:8443/":                   {"2001:db8::1", 8443},
		"https://api.example:99999":                     {"api.example", 443},
		"/v1":                                           nil,
	} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(address)
			require.NoError(t, err)
			require.Equal(t, want, ServerOf(u))
		})
	}
}

// The ID of a session can be enough to use the session, so only its digest is kept.
func TestNewMCPCall_HidesSession(t *testing.T) {
	t.Parallel()
	call := NewMCPCall("get", "2025-06-18", "session-1")
	require.Len(t, call.Session, sessionDigits)
	require.NotContains(t, call.Session, "session")
	require.Empty(t, NewMCPCall("get", "2026-07-28", "").Session)
}
