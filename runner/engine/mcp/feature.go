// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// Outcomes of the step that lists a live server.
const (
	stepListed      = "listed"
	stepUnavailable = "unavailable"
)

// noTools ends a log line about a server that an agent has no tools of.
const noTools = "; the agent has no tools of it"

// Feature returns the feature that offers the tools of MCP servers to agents. variables returns the environment's current
// variables.
func (c *Client) Feature(variables func() (runnerconfig.Variables, error)) engine.Feature {
	return engine.Feature{
		Name: "an MCP server",
		OfferedTools: func(ctx context.Context, at *engine.Scope) ([]engine.Tool, error) {
			return c.offerAll(ctx, at, at.Agent(), variables)
		},
	}
}

// offerAll returns the tools of all servers of an agent.
func (c *Client) offerAll(
	ctx context.Context, at *engine.Scope, agent *bundle.Agent, variables func() (runnerconfig.Variables, error),
) (tools []engine.Tool, err error) {
	if len(agent.MCPServers) == 0 {
		return nil, nil
	}
	current, err := variables()
	if err != nil {
		return nil, engine.NewFailure(runerror.VariableUnavailable, "the variables of the environment could not be read", err)
	}
	for i := range agent.MCPServers {
		spec := &agent.MCPServers[i]
		if agent.Type == bundle.AgentTool && !spec.MayHaveTool(agent.ToolName) {
			continue // of defaults for all agents: the agent never calls it
		}
		if isLeftOut, err := leaveOut(ctx, at, spec, current); err != nil {
			return nil, err
		} else if isLeftOut {
			continue
		}
		if _, err := Resolve(spec, current, nil); err != nil {
			return nil, engine.NewFailure(runerror.VariableUnavailable, err.Error(), err)
		}
		offered, err := c.offerTools(ctx, at, spec, variables)
		if err != nil {
			return nil, err
		}
		tools = append(tools, offered...)
	}
	return tools, nil
}

// leaveOut reports whether an agent has no tools of a server, because the server is not required and the environment lacks its
// OAuth app. The log of the run says so. Later attempts leave the server out, too, because the model has seen the other tools.
// If an earlier attempt began with the tools of the server, it stays, and the missing app fails the run.
func leaveOut(ctx context.Context, at *engine.Scope, spec *bundle.MCPServer, current runnerconfig.Variables) (bool, error) {
	if spec.OAuthApp == "" || spec.IsRequired() {
		return false, nil
	}
	id := "mcp:" + at.Path() + ":" + spec.Name
	_, found := current.FindOAuthApp(spec.OAuthApp)
	if !at.HasStep(id) && (found || at.HasBegun()) {
		return false, nil
	}
	_, err := at.Step(ctx, id, "mcp_tools", func(context.Context) (engine.Step, error) {
		problem := fmt.Sprintf("MCP server %q: %s", spec.Name, runnerconfig.NoOAuthApp(spec.OAuthApp))
		shown, err := json.Marshal(map[string]string{"error": problem})
		return engine.Step{Outcome: stepUnavailable, Result: shown, Log: []engine.LogLine{{Level: "warn", Text: problem + noTools}}}, err
	})
	return true, err
}

// offerTools returns the tools of one server for an agent. Values of the run's context are resolved when the server is used:
// for each call, and to list the tools of a live server when the agent begins. Steps before that may have set them.
func (c *Client) offerTools(
	ctx context.Context, at *engine.Scope, spec *bundle.MCPServer, variables func() (runnerconfig.Variables, error),
) ([]engine.Tool, error) {
	resolve := func(call *engine.Call) (Server, error) { return resolveFor(call.Scope, spec, variables) }
	subject := Subject{DeploymentID: at.DeploymentID(), Agent: at.Agent().Name, Server: spec.Name}
	if spec.IsPinned() {
		locked, _ := at.Project().Lock.Server(spec.Name)
		return c.toolsOf(spec, subject, locked.Tools, resolve)
	}
	server, err := resolveFor(at, spec, variables)
	if err != nil {
		return nil, err
	}
	tools, err := c.liveTools(ctx, at, server)
	if err != nil {
		return nil, err
	}
	return c.toolsOf(spec, subject, tools, resolve)
}

// resolveFor returns a server with the current values of variables and of the run's context. Its error fails the run.
func resolveFor(at *engine.Scope, spec *bundle.MCPServer, variables func() (runnerconfig.Variables, error)) (Server, error) {
	current, err := variables()
	if err != nil {
		return Server{}, engine.NewFailure(runerror.VariableUnavailable, "the variables of the environment could not be read", err)
	}
	runContext := at.RunContext()
	if runContext == nil {
		runContext = map[string]any{}
	}
	server, err := Resolve(spec, current, runContext)
	if err != nil {
		return Server{}, engine.NewFailure(runerror.VariableUnavailable, err.Error(), err)
	}
	return server, nil
}

// leaveOutLarge returns the tools of a live server that an agent can get, and a line about each other one.
func leaveOutLarge(spec *bundle.MCPServer, tools []bundle.LockedTool) (kept []bundle.LockedTool, log []engine.LogLine) {
	size := 0
	for _, t := range tools {
		problem := t.Problem()
		if problem == "" && size+t.Size() > bundle.MaxMCPListSize {
			problem = fmt.Sprintf("the tools have more than %d bytes together", bundle.MaxMCPListSize)
		}
		if problem != "" {
			log = append(log, engine.LogLine{Level: "warn", Text: fmt.Sprintf("the tool %.64q of the MCP server %q is left out: %s", t.Name, spec.Name, problem)})
			continue
		}
		size += t.Size()
		kept = append(kept, t)
	}
	return kept, log
}

// liveTools returns the tools that a server lists in the first attempt of a run. Later attempts get the same tools, because
// the model has seen them. A server that cannot be reached has no tools.
func (c *Client) liveTools(ctx context.Context, at *engine.Scope, server Server) (tools []bundle.LockedTool, err error) {
	spec := server.Spec
	step, err := at.Step(ctx, "mcp:"+at.Path()+":"+spec.Name, "mcp_tools", func(ctx context.Context) (engine.Step, error) {
		listed, err := c.Live(ctx, server)
		if err != nil {
			if ctx.Err() != nil {
				return engine.Step{}, ctx.Err()
			}
			shown, encoding := json.Marshal(map[string]string{"error": err.Error()})
			line := engine.LogLine{Level: "warn", Text: err.Error() + noTools}
			return engine.Step{Outcome: stepUnavailable, Result: shown, Log: []engine.LogLine{line}}, encoding
		}
		selected, log := leaveOutLarge(spec, spec.Select(listed.Tools))
		bare := bundle.MCPServer{Name: spec.Name, Prefix: spec.Prefix}
		if problem := bare.CheckTools(selected, map[string]bool{}); problem != "" {
			return engine.Step{}, engine.NewFailure(runerror.MCPUnavailable, problem, nil)
		}
		data, err := json.Marshal(selected)
		return engine.Step{Outcome: stepListed, Result: data, Log: log}, err
	})
	if err != nil || step.Outcome != stepListed {
		return nil, err
	}
	if err := exactjson.Decode(step.Result, &tools); err != nil {
		return nil, fmt.Errorf("reading the tools of MCP server %q: %w", spec.Name, err)
	}
	return tools, nil
}
