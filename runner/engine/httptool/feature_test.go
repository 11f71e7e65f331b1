// SPDX-License-Identifier: Apache-2.0

package httptool

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/tracecontext"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// journal keeps the entries of a run.
type journal struct{ entries []dispatchapi.JournalEntry }

func (j *journal) Append(_ context.Context, entries []dispatchapi.JournalEntry) error {
	j.entries = append(j.entries, entries...)
	return nil
}

// A run calls HTTP tools and operations of OpenAPI documents with the credentials of its agent. No journal entry has a
// sensitive value.
func TestFeature_RunsTools(t *testing.T) {
	t.Parallel()
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		respond(http.StatusOK, "application/json", `{"echo":"`+r.Header.Get("Authorization")+`","id":9007199254740993}`)(w, r)
	})
	p, err := bundle.Parse(bundle.Files{
		"agents/clerk.yaml": []byte("name: clerk\nmodel: scripted/clerk\ntools: [t.note, 'api:shop.get*']\napis: {shop: {base_url: '${URL}/api', auth: {bearer: '${SECRET_SHOP}'}}}\n"),
		"models/clerk.yaml": []byte("steps:\n- {turn: 1, tool_calls: [{name: t_note, arguments: {text: hi}}, {name: shop_getOrder, arguments: {id: a/b, filter: {state: [x]}}}]}\n" +
			"- {match: '(?s).*tool shop_getOrder: (.*)', text: '${1}'}\n"),
		"tools/t.yaml": []byte("base_url: ${URL}\nheaders: {Authorization: 'Key ${SECRET_NOTES}'}\ntools: {note: {description: N, parameters: {text: {type: string}}, request: POST /notes, json: {text: '{text}'}}}\n"),
		"apis/shop.json": []byte(`{"openapi":"3.1.0","paths":{"/orders/{id}":{"get":{"operationId":"getOrder","parameters":[
			{"name":"id","in":"path","required":true,"schema":{"type":"string"}},{"name":"filter","in":"query","style":"deepObject","schema":{"type":"object"}}]}}}}`),
	})
	require.NoError(t, err)
	e := engine.New(engine.Config{
		Models: &model.Registry{}, Features: []engine.Feature{newClient(t, s.URL, "SECRET_SHOP", "sh0p-canary", "SECRET_NOTES", "n0te-canary").Feature()},
	})
	require.Empty(t, e.Check(p))
	var j journal
	out := e.Execute(t.Context(), engine.Input{RunID: "run-1", AgentName: "clerk", Project: p, Message: "hi", Journal: &j})
	require.Equal(t, engine.Completed, out.Status, out.Error)
	require.Equal(t, `{"body":{"echo":"Bearer [REDACTED]","id":9007199254740993},"status":200}`, out.Output)
	seen := map[string]received{}
	for _, r := range s.requests() {
		seen[r.method+" "+r.uri] = r
	}
	require.Len(t, seen, 2)
	require.Equal(t, "Bearer sh0p-canary", seen["GET /api/orders/a%2Fb?filter%5Bstate%5D=%5B%22x%22%5D"].header.Get("Authorization"))
	note := seen["POST /notes"]
	require.Equal(t, "Key n0te-canary", note.header.Get("Authorization"))
	require.Equal(t, `{"text":"hi"}`, note.body)
	require.Regexp(t, `^run-1/.+`, note.header.Get("Idempotency-Key"))
	for _, entry := range append(j.entries, out.Trailing...) {
		require.NotContains(t, string(entry.Data), "canary")
	}
}

// Each attempt of a call continues the trace of the event, with a span of the call. Another origin does not get it.
func TestFeature_ContinuesTrace(t *testing.T) {
	t.Parallel()
	other := newService(t, respond(http.StatusOK, "application/json", `{}`))
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/moved", http.StatusFound)
	})
	p, err := bundle.Parse(bundle.Files{
		"agents/clerk.yaml": []byte("name: clerk\nmodel: scripted/clerk\ntools: [t.look]\n"),
		"models/clerk.yaml": []byte("steps: [{turn: 1, tool_calls: [{name: t_look}, {name: t_look}]}, {text: done}]\n"),
		"tools/t.yaml":      []byte("base_url: ${URL}\ntools: {look: {description: L, request: 'GET /state'}}\n"),
	})
	require.NoError(t, err)
	e := engine.New(engine.Config{Models: &model.Registry{}, Features: []engine.Feature{newClient(t, s.URL).Feature()}})
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	for _, traceparent := range []string{parent, ""} {
		t.Run(traceparent, func(t *testing.T) {
			before := len(s.requests())
			for range 2 {
				out := e.Execute(t.Context(), engine.Input{
					RunID: "run-1", Traceparent: traceparent, AgentName: "clerk", Project: p, Message: "hi", Journal: &journal{},
				})
				require.Equal(t, engine.Completed, out.Status, "%v", out.Cause)
			}
			var sent []string
			for _, r := range s.requests()[before:] {
				sent = append(sent, r.header.Values(tracecontext.Header)...)
			}
			first, second := tracecontext.TraceparentOf(traceparent, "run-1", "call_1_0"), tracecontext.TraceparentOf(traceparent, "run-1", "call_1_1")
			require.ElementsMatch(t, []string{first, second, first, second}, sent)
		})
	}
	for _, r := range other.requests() {
		require.Empty(t, r.header.Values(tracecontext.Header))
	}
}

// The journal has the server of a request, without the rest of the address and without a secret name.
func TestFeature_RecordsServer(t *testing.T) {
	t.Parallel()
	s := newService(t, respond(http.StatusOK, "application/json", `{}`))
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	require.NoError(t, err)
	for base, want := range map[string]string{
		"${URL}/${SECRET_KEY}": `"server":{"address":"` + host + `","port":` + port + `}`, "${SECRET_URL}": "",
	} {
		t.Run(base, func(t *testing.T) {
			p, err := bundle.Parse(bundle.Files{
				"agents/clerk.yaml": []byte("name: clerk\nmodel: scripted/clerk\ntools: [t.look]\n"),
				"models/clerk.yaml": []byte("steps: [{turn: 1, tool_calls: [{name: t_look}]}, {text: done}]\n"),
				"tools/t.yaml":      []byte("base_url: '" + base + "'\ntools: {look: {description: L, request: 'GET /state'}}\n"),
			})
			require.NoError(t, err)
			e := engine.New(engine.Config{Models: &model.Registry{}, Features: []engine.Feature{newClient(t, s.URL, "SECRET_KEY", "c4nary", "SECRET_URL", s.URL).Feature()}})
			j := &journal{}
			out := e.Execute(t.Context(), engine.Input{RunID: "run-1", AgentName: "clerk", Project: p, Message: "hi", Journal: j})
			require.Equal(t, engine.Completed, out.Status, "%v", out.Cause)
			for _, entry := range append(j.entries, out.Trailing...) {
				require.NotContains(t, string(entry.Data), "c4nary")
				if entry.Kind == dispatchapi.JournalToolResult {
					require.Contains(t, string(entry.Data), want)
					require.Equal(t, want == "", !strings.Contains(string(entry.Data), `"server"`))
				}
			}
		})
	}
}

// Arguments that do not fit the schema of a tool go back to the model, and nothing is sent.
func TestFeature_ChecksArguments(t *testing.T) {
	t.Parallel()
	for name, arguments := range map[string]string{
		"pattern": "{order: 'a1'}", "type": "{order: 4711}", "missing": "{}", "unknown": "{order: '1', more: 1}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, respond(http.StatusOK, "application/json", `{}`))
			p, err := bundle.Parse(bundle.Files{
				"agents/clerk.yaml": []byte("name: clerk\nmodel: scripted/clerk\ntools: [t.look]\n"),
				"models/clerk.yaml": []byte("steps: [{turn: 1, tool_calls: [{name: t_look, arguments: " + arguments + "}]}, {match: '(?s).*tool t_look: (.*)', text: '${1}'}]\n"),
				"tools/t.yaml":      []byte("base_url: ${URL}\ntools: {look: {description: L, parameters: {order: {type: string, pattern: '^[0-9]+$'}}, request: 'GET /{order}'}}\n"),
			})
			require.NoError(t, err)
			e := engine.New(engine.Config{Models: &model.Registry{}, Features: []engine.Feature{newClient(t, s.URL).Feature()}})
			out := e.Execute(t.Context(), engine.Input{RunID: "r", AgentName: "clerk", Project: p, Message: "hi", Journal: &journal{}})
			require.Contains(t, out.Output, "the arguments do not fit", "%s %v", out.Error, out.Cause)
			require.Empty(t, s.requests())
		})
	}
}

// Every operation of the platform's own REST API has a tool that renders a request.
func TestTool_RendersOwnOpenAPI(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../../docs/openapi.json")
	require.NoError(t, err)
	s := newService(t, respond(http.StatusOK, "application/json", `{}`))
	p, err := bundle.Parse(bundle.Files{
		"agents/a.yaml":      []byte("name: a\nmodel: openai/x\ntools: ['api:platform.*']\napis: {platform: {base_url: '${URL}', auth: {bearer: '${SECRET_KEY}'}}}\n"),
		"apis/platform.json": document,
	})
	require.NoError(t, err)
	client := newClient(t, s.URL, "SECRET_KEY", "k3y-canary")
	for _, tool := range p.HTTPTools("api:platform.*") {
		t.Run(tool.Name, func(t *testing.T) {
			args := map[string]any{}
			for _, part := range tool.Path {
				if part.Argument != "" {
					args[part.Argument] = "x"
				}
			}
			before := len(s.requests())
			_, err := client.runTool(t.Context(), tool.ForAgent(p.Agent("a")), args, "run/1")
			require.NoError(t, err)
			last := s.requests()[before]
			require.Equal(t, tool.Method, last.method)
			require.Equal(t, "Bearer k3y-canary", last.header.Get("Authorization"))
		})
	}
}
