// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"slices"
	"strconv"
)

// Names of the tools that an agent with discoverable tools has.
const (
	SearchTools = "search_tools"
	UseTool     = "use_tool"
)

// ReadFile is the name of the tool with which an agent reads the files of its run. An agent whose own tool has the name keeps its
// own.
const ReadFile = "read_file"

// toolList is a key of an agent with references to tools.
type toolList struct {
	key   string
	tools []Tool
	most  int
}

// toolLists returns the keys of the agent with references to tools.
func (a *Agent) toolLists() []toolList {
	return []toolList{{"tools", a.Tools, MaxTools}, {"discoverable_tools", a.DiscoverableTools, MaxDiscoverableTools}}
}

// DiscoversTools reports whether the agent has tools that are not part of requests to the model.
func (a *Agent) DiscoversTools() bool {
	return len(a.DiscoverableTools) > 0 || slices.ContainsFunc(a.MCPServers, func(s MCPServer) bool { return s.Discoverable })
}

// toolReferences returns the references of the tools that a reference of an agent names.
func (p *Project) toolReferences(reference string) []string {
	if found := p.codeReferences(reference); len(found) > 0 {
		return found
	}
	return []string{reference}
}

// checkToolNames reports tools of an agent that models could not tell apart, and too many tools.
func (p *repoParser) checkToolNames(a *Agent) {
	names := map[string]string{}
	if a.DiscoversTools() {
		names[SearchTools], names[UseTool] = "", ""
	}
	for _, list := range a.toolLists() {
		own := map[string]bool{}
		for _, t := range list.tools {
			for _, reference := range p.project.toolReferences(t.Reference) {
				name := ModelToolName(reference)
				switch other, taken := names[name]; {
				case taken && other == "":
					p.problems.add(a.At(list.key), "the tool %q has the name %s, with which the model finds discoverable tools; rename it", reference, name)
				case taken && other != reference:
					p.problems.add(a.At(list.key), "the tools %q and %q have the same name for the model, %s; rename one", other, reference, name)
				}
				names[name], own[name] = reference, true
			}
		}
		if len(own) > list.most {
			p.problems.add(a.At(list.key), "the agent has %d tools, at most %d are allowed; name fewer", len(own), list.most)
		}
	}
}

// CheckToolCounts reports agents with too many tools because of links, also of links to agents that run them, or because of the
// tools that find discoverable tools. Only builds check it, so that a bundle of an earlier release stays valid. Parse reports
// agents that name too many tools, CheckLockedTools counts the tools of MCP servers too.
func (p *Project) CheckToolCounts() (problems Problems) {
	shown, isReported := map[*Agent]int{}, map[*Agent]bool{}
	for _, a := range p.Agents {
		named := 0
		for name, isShown := range p.ownToolNames(a) {
			if !isShown {
				continue
			}
			shown[a]++
			if name != SearchTools && name != UseTool {
				named++
			}
		}
		isReported[a] = named > MaxTools
	}
	for _, root := range p.Agents {
		links := len(p.Actions(p.BaseName(root.Name)))
		for _, a := range p.Steps(root.Name) {
			if isReported[a] || a.Model == "" || shown[a]+links <= MaxTools {
				continue
			}
			isReported[a] = true
			problems.add(a.At("tools"), "requests of the agent have %d tools, with the tools of its links and for its discoverable tools; "+
				"at most %d are allowed; name fewer tools, or remove a link", shown[a]+links, MaxTools)
		}
	}
	return problems
}

// ToolNames returns the names for models of the tools that an agent has without its MCP servers: the tools that it names
// and the tools of links, also of links to agents that run it. The value is true for a tool that is part of each request.
func (p *Project) ToolNames(a *Agent) map[string]bool {
	names := p.ownToolNames(a)
	for _, root := range p.Agents {
		actions := p.Actions(p.BaseName(root.Name))
		if len(actions) == 0 || !slices.Contains(p.Steps(root.Name), a) {
			continue
		}
		for _, action := range actions {
			names[action.Name] = true
		}
	}
	return names
}

// ownToolNames is ToolNames without links.
func (p *Project) ownToolNames(a *Agent) map[string]bool {
	names := map[string]bool{}
	if a.DiscoversTools() {
		names[SearchTools], names[UseTool] = true, true
	}
	for i, list := range a.toolLists() {
		for _, t := range list.tools {
			for _, reference := range p.toolReferences(t.Reference) {
				names[ModelToolName(reference)] = names[ModelToolName(reference)] || i == 0
			}
		}
	}
	return names
}

// CheckLockedTools returns the problems of the tools that an agent gets from its servers with pinned tools.
func (p *Project) CheckLockedTools(a *Agent, lock Lock) (problems Problems) {
	names := p.ToolNames(a)
	taken, shown := map[string]bool{}, 0
	for name, isShown := range names {
		taken[name] = true
		if isShown {
			shown++
		}
	}
	fromServers := 0
	for i := range a.MCPServers {
		spec := &a.MCPServers[i]
		locked, found := lock.Server(spec.Name)
		if !found {
			continue
		}
		if problem := spec.CheckTools(locked.Tools, taken); problem != "" {
			problems.add(a.AtServer(i), "%s", problem)
		}
		if !spec.Discoverable {
			fromServers += len(spec.Select(locked.Tools))
		}
	}
	if fromServers > 0 && shown+fromServers > MaxTools {
		problems.add(a.At("mcp_servers"), "the agent has "+strconv.Itoa(shown+fromServers)+
			" tools with the tools of its MCP servers, at most %d are allowed; name fewer, or set \"discoverable\" of a server", MaxTools)
	}
	return problems
}
