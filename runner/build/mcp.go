// SPDX-License-Identifier: Apache-2.0

package build

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
)

// maxListings limits the MCP servers that are listed at the same time.
const maxListings = 4

// ToolLister lists the tools of MCP servers. *mcp.Client implements it.
type ToolLister interface {
	List(ctx context.Context, server mcp.Server) (bundle.LockedServer, error)
}

// pinnedServer is an MCP server whose tools the build lists, with the agents that use it.
type pinnedServer struct {
	*bundle.MCPServer
	// users are the agents, each with its own keys of the server.
	users []serverUser
	// required is true if one of the agents requires the server.
	required bool

	listed bundle.LockedServer
	err    error
}

// serverUser is an agent that uses a server.
type serverUser struct {
	agent *bundle.Agent
	spec  *bundle.MCPServer
}

// LockTools lists the tools of the agents' pinned MCP servers and writes them into the files of the project. addLine gets lines for the
// log.
func LockTools(
	ctx context.Context, tools ToolLister, variables func() (runnerconfig.Variables, error), project *bundle.Project, agents []*bundle.Agent,
	addLine func(format string, args ...any),
) error {
	servers := pinnedServers(agents)
	if err := listServers(ctx, tools, variables, servers); err != nil {
		return err
	}
	var lock bundle.Lock
	for _, s := range servers {
		switch {
		case s.err != nil && s.required:
			return &buildError{fmt.Errorf("%s: %w", s.users[0].agent.At("mcp_servers"), s.err)}
		case s.err != nil:
			addLine("warning: agents have no tools of an MCP server that is not required: %v", s.err)
			continue
		}
		addLine("MCP server %q has %d tools, protocol %s: %s", s.Name, len(s.listed.Tools), s.listed.Protocol, listNames(s.listed.Tools))
		s.listed.Tools = slices.DeleteFunc(slices.Clone(s.listed.Tools), func(t bundle.LockedTool) bool {
			return !slices.ContainsFunc(s.users, func(u serverUser) bool { return u.spec.Offers(t.Name) })
		})
		lock.Servers = append(lock.Servers, s.listed)
	}
	if problems := checkLocked(project, agents, lock); len(problems) > 0 {
		return &buildError{problems}
	}
	if err := project.WriteLock(lock); err != nil {
		return &buildError{err}
	}
	return nil
}

// listNames returns the names that tools have at their server, in one line. Servers choose the names, so they are quoted.
func listNames(tools []bundle.LockedTool) string {
	const most = 64
	var names []string
	for _, t := range tools[:min(len(tools), most)] {
		names = append(names, fmt.Sprintf("%.64q", t.Name))
	}
	if more := len(tools) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// pinnedServers returns the pinned servers of agents, sorted by name.
func pinnedServers(agents []*bundle.Agent) (servers []*pinnedServer) {
	byName := map[string]*pinnedServer{}
	for _, a := range agents {
		for i := range a.MCPServers {
			spec := &a.MCPServers[i]
			if !spec.IsPinned() {
				continue
			}
			s := byName[spec.Name]
			if s == nil {
				s = &pinnedServer{MCPServer: spec}
				byName[spec.Name] = s
				servers = append(servers, s)
			}
			s.users = append(s.users, serverUser{a, spec})
			s.required = s.required || spec.IsRequired()
		}
	}
	slices.SortFunc(servers, func(a, b *pinnedServer) int { return cmp.Compare(a.Name, b.Name) })
	return servers
}

// listServers lists the tools of the servers. A server that cannot be listed has an error.
func listServers(
	ctx context.Context, tools ToolLister, readVariables func() (runnerconfig.Variables, error), servers []*pinnedServer,
) error {
	if len(servers) == 0 {
		return nil
	}
	var variables runnerconfig.Variables
	if readVariables != nil {
		var err error
		if variables, err = readVariables(); err != nil {
			return fmt.Errorf("listing the tools of MCP servers: %w", err)
		}
	}
	var listings errgroup.Group
	listings.SetLimit(maxListings)
	for _, s := range servers {
		listings.Go(func() error {
			server, err := mcp.Resolve(s.MCPServer, variables, nil)
			if err == nil {
				s.listed, err = tools.List(ctx, server)
			}
			s.err = err
			return nil
		})
	}
	_ = listings.Wait() // each server has its own error
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("listing the tools of MCP servers: %w", err)
	}
	return nil
}

// checkLocked returns the problems of the tools that agents get from pinned servers.
func checkLocked(project *bundle.Project, agents []*bundle.Agent, lock bundle.Lock) (problems bundle.Problems) {
	for _, a := range agents {
		if len(a.MCPServers) > 0 {
			problems = append(problems, project.CheckLockedTools(a, lock)...)
		}
		if a.Type == bundle.AgentTool && !hasTool(project, a.ToolName) && !mayHaveTool(a, lock) {
			problems = append(problems, bundle.Problem{Position: a.At("tool_name"), Message: fmt.Sprintf(
				"no MCP server of the agent offers the tool %q; correct the name, or \"tools\" of the server", a.ToolName)})
		}
	}
	return problems.With(nil)
}

// hasTool reports whether a reference names a tool of the repository or a built-in one.
func hasTool(project *bundle.Project, reference string) bool {
	return len(project.HTTPTools(reference)) > 0 || len(project.ScriptTools(reference)) > 0 ||
		slices.ContainsFunc(engine.Builtin(time.Now), func(t engine.Tool) bool { return t.Name == reference })
}

// mayHaveTool reports whether an MCP server of an agent of type tool has its tool. The tools of a server that was not listed
// are unknown.
func mayHaveTool(a *bundle.Agent, lock bundle.Lock) bool {
	return slices.ContainsFunc(a.MCPServers, func(spec bundle.MCPServer) bool {
		locked, isListed := lock.Server(spec.Name)
		if !isListed {
			return spec.MayHaveTool(a.ToolName)
		}
		return slices.ContainsFunc(spec.Select(locked.Tools), func(t bundle.LockedTool) bool { return spec.ToolName(t.Name) == a.ToolName })
	})
}
