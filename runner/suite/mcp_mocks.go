// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/runner/engine"
)

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
