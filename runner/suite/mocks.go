// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/features"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/script"
)

// mocksOf returns the mocks of a case and its suite.
func mocksOf(s *bundle.Suite, c *bundle.Case) bundle.Mocks {
	return bundle.Mocks{
		Models: overlay(s.Mocks.Models, c.Mocks.Models), Tools: overlay(s.Mocks.Tools, c.Mocks.Tools),
		HTTP: slices.Concat(c.Mocks.HTTP, s.Mocks.HTTP), // the first one that fits answers
		MCP:  slices.Concat(c.Mocks.MCP, s.Mocks.MCP),
	}
}

// overlay returns base with the values of own taking precedence.
func overlay[T any](base, own map[string]T) map[string]T {
	out := make(map[string]T, len(base)+len(own))
	maps.Copy(out, base)
	maps.Copy(out, own)
	return out
}

// engineOf returns an engine with the mocks of a case.
func engineOf(opts Options, scripts *script.Pool, s *bundle.Suite, c *bundle.Case) *engine.Engine {
	mocks := mocksOf(s, c)
	config := engine.Config{
		Models: mockedModels{opts.Models, mocks.Models}, Variables: opts.Variables, Prices: unmocked(opts.Prices, mocks.Models),
		Features: append([]engine.Feature{watchNotes()}, append(features.New(features.Config{
			ToolHTTP: &http.Client{Transport: mockTransport(mocks.HTTP)}, Variables: opts.Variables, Scripts: scripts, Mocked: true,
		}), mockMCP(mocks.MCP))...),
		Tools: opts.Tools, ReplaceTool: func(t engine.Tool) engine.Tool { return mockTool(t, mocks.Tools) },
	}
	if !asksReal(opts.Project, s.Agent, mocks) {
		config.Sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() } // no service needs time to recover
	}
	return engine.New(config)
}

// mockTool returns a tool that answers with its mock. A tool without a mock is unchanged.
func mockTool(t engine.Tool, mocks map[string]bundle.ToolMock) engine.Tool {
	mock, ok := mocks[t.Reference]
	if !ok {
		mock, ok = mocks[t.Name]
	}
	if ok {
		t.Run = func(context.Context, *engine.Call) (map[string]any, error) {
			if mock.Error != "" {
				return nil, errors.New(mock.Error)
			}
			return mock.Result, nil
		}
	}
	return t
}

// unmocked returns the prices of models without a mock. Mocks cost nothing.
func unmocked(prices func() (runnerconfig.Prices, error), mocks map[string]bundle.ModelMock) func() (runnerconfig.Prices, error) {
	if prices == nil {
		return nil
	}
	return func() (runnerconfig.Prices, error) {
		p, err := prices()
		maps.DeleteFunc(p.Prices, func(reference string, _ runnerconfig.Price) bool { _, mocked := mocks[reference]; return mocked })
		return p, err
	}
}

// asksReal reports whether an agent calls a model service.
func asksReal(project *bundle.Project, agent string, mocks bundle.Mocks) bool {
	for _, a := range project.Steps(agent) {
		for _, use := range a.Models() {
			if _, mocked := mocks.Models[use.Reference]; !mocked && !strings.HasPrefix(use.Reference, bundle.ScriptedPrefix) {
				return true
			}
		}
	}
	return false
}

// mockedModels are models with mocks.
type mockedModels struct {
	engine.Models
	mocks map[string]bundle.ModelMock
}

// Resolve implements engine.Models.
func (m mockedModels) Resolve(reference string, project *bundle.Project, settings model.Settings) (model.Model, error) {
	mock, mocked := m.mocks[reference]
	switch {
	case !mocked:
		return m.Models.Resolve(reference, project, settings)
	case mock.Script != nil:
		return model.Scripted(reference, mock.Script), nil
	}
	return model.Scripted(reference, project.Scripts[strings.TrimPrefix(mock.Reference, bundle.ScriptedPrefix)]), nil
}

// unmockedList collects what one run did that no mock answers, each once.
type unmockedList struct {
	mu   sync.Mutex
	seen []string
}

// unmockedKind is a kind of actions that mocks answer. It is the key of a list in a context.
type unmockedKind string

// Kinds of actions.
const (
	unmockedRequest unmockedKind = "request"
	unmockedCall    unmockedKind = "call"
)

// withUnmocked returns a context whose actions of a kind without a mock are added to a list.
func withUnmocked(ctx context.Context, kind unmockedKind, list *unmockedList) context.Context {
	return context.WithValue(ctx, kind, list)
}

// addUnmocked adds an action to the list of a context, if there is one.
func addUnmocked(ctx context.Context, kind unmockedKind, text string) {
	list, ok := ctx.Value(kind).(*unmockedList)
	if !ok {
		return
	}
	list.mu.Lock()
	defer list.mu.Unlock()
	if !slices.Contains(list.seen, text) {
		list.seen = append(list.seen, text)
	}
}

// listFindings returns a finding for each action.
func (u *unmockedList) listFindings(at bundle.Position, expected string) (out []Finding) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, action := range u.seen {
		out = append(out, Finding{At: at, Expected: expected, Got: "no mock answers " + action})
	}
	return out
}

// mockMCP returns the feature of MCP servers for tests. It offers the pinned tools, and the tools that mocks and agents name.
// Mocks answer their calls. It connects to no server.
func mockMCP(mocks []bundle.MCPMock) engine.Feature {
	return engine.Feature{
		Name: "an MCP server",
		OfferedTools: func(_ context.Context, at *engine.Scope) (tools []engine.Tool, err error) {
			for i := range at.Agent().MCPServers {
				spec := &at.Agent().MCPServers[i]
				for _, t := range mockedTools(at, spec, mocks) {
					tool, err := mockMCPTool(spec, t, mocks)
					if err != nil {
						return nil, err
					}
					tools = append(tools, tool)
				}
			}
			return tools, nil
		},
	}
}

// mockedTools returns the tools of a server. Without a lock, as on a developer's machine, only their names are known.
func mockedTools(at *engine.Scope, spec *bundle.MCPServer, mocks []bundle.MCPMock) []bundle.LockedTool {
	locked, _ := at.Project().Lock.Server(spec.Name)
	tools := spec.Select(locked.Tools)
	add := func(name string) {
		if spec.Offers(name) && !slices.ContainsFunc(tools, func(t bundle.LockedTool) bool { return t.Name == name }) {
			tools = append(tools, bundle.LockedTool{Name: name, Schema: json.RawMessage(`{"type":"object"}`)})
		}
	}
	if len(locked.Tools) > 0 {
		return tools
	}
	for _, name := range spec.Tools {
		if !strings.Contains(name, "*") {
			add(name)
		}
	}
	for _, mock := range mocks {
		if mock.Server == spec.Name {
			add(mock.Tool)
		}
	}
	if name := at.Agent().ToolName; spec.MayHaveTool(name) {
		add(strings.TrimPrefix(name, spec.Prefix))
	}
	return tools
}

// mockMCPTool returns a tool that mocks answer.
func mockMCPTool(spec *bundle.MCPServer, t bundle.LockedTool, mocks []bundle.MCPMock) (engine.Tool, error) {
	tool := engine.Tool{Name: spec.ToolName(t.Name), Description: t.Description, Idempotent: true, Discoverable: spec.Discoverable}
	if err := exactjson.Decode(t.Schema, &tool.Parameters); err != nil {
		return tool, fmt.Errorf("reading the schema of tool %q: %w", t.Name, err)
	}
	if schema, err := engine.CompileArguments(t.Name, tool.Parameters); err == nil {
		tool.Schema = schema
	}
	tool.Run = func(ctx context.Context, call *engine.Call) (map[string]any, error) {
		for _, mock := range mocks {
			if mock.Server != spec.Name || mock.Tool != t.Name || !contains(journalForm(call.Arguments), journalForm(mock.Arguments)) {
				continue
			}
			if mock.Error != "" {
				return nil, errors.New(mock.Error)
			}
			return mock.Result, nil
		}
		addCall(ctx, spec.Name, t.Name, call.Arguments)
		return nil, errors.New("no mock answers the call")
	}
	return tool, nil
}

// addCall adds a call of a tool of an MCP server that no mock answers.
func addCall(ctx context.Context, server, tool string, arguments map[string]any) {
	shown, err := json.Marshal(arguments)
	if err != nil {
		shown = nil // Impossible: arguments were JSON.
	}
	addUnmocked(ctx, unmockedCall, fmt.Sprintf("the call of tool %q of MCP server %q with %.500s", tool, server, shown))
}

// mockTransport answers HTTP requests with mocks. A request without a mock fails its case, and nothing
// is sent.
type mockTransport []bundle.HTTPMock

func (m mockTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer func() { _ = req.Body.Close() }() // as a transport must
	}
	at := slices.IndexFunc(m, func(mock bundle.HTTPMock) bool { return fitsRequest(&mock, req) })
	if at < 0 {
		addRequest(req)
		return nil, errors.New("no mock answers the request")
	}
	return respondWith(&m[at], req)
}

// fitsRequest reports whether a mock answers a request.
func fitsRequest(mock *bundle.HTTPMock, req *http.Request) bool {
	method, target := bundle.ParseMockedRequest(mock.Request)
	got, want := cmp.Or(req.URL.EscapedPath(), "/"), cmp.Or(target.EscapedPath(), "/")
	switch {
	case method != req.Method:
		return false
	case target.Host != "" && (target.Scheme != req.URL.Scheme || target.Host != req.URL.Host || got != want):
		return false
	case target.Host == "" && !strings.HasSuffix(got, want):
		return false
	}
	return target.RawQuery == "" || maps.EqualFunc(target.Query(), req.URL.Query(), slices.Equal[[]string])
}

// respondWith returns the response of a mock.
func respondWith(mock *bundle.HTTPMock, req *http.Request) (*http.Response, error) {
	body, header := []byte(mock.Text), http.Header{}
	header.Set("Content-Type", "text/plain; charset=utf-8")
	if mock.JSON != nil {
		var err error
		if body, err = json.Marshal(mock.JSON); err != nil {
			return nil, fmt.Errorf("writing the response of a mock: %w", err)
		}
		header.Set("Content-Type", "application/json")
	}
	for name, value := range mock.Headers {
		header.Set(name, value)
	}
	status := mock.Status
	if status == 0 {
		status = http.StatusOK
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}, nil
}

// addRequest adds a request without a mock. The text is a value for the key request of a mock.
func addRequest(req *http.Request) {
	text := req.Method + " " + req.URL.EscapedPath()
	if req.URL.RawQuery != "" {
		text += "?" + req.URL.RawQuery
	}
	addUnmocked(req.Context(), unmockedRequest, text)
}
