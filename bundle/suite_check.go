// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"maps"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/connector"
)

func (p *repoParser) parseSuite(file string) {
	source := p.parseYAMLFile(file)
	if source == nil {
		return
	}
	if p.tests += source.weight; p.tests > maxAllNodes {
		p.problems.add(Position{File: file}, "the tests up to this file are too large together; move long inputs to %s", testFiles)
		return
	}
	s := &Suite{source: source}
	p.decoder().decode(source, s, "")
	if source.kind != kindMap {
		return
	}
	p.checkScripts(source.findNode("mocks", "models"), s.Mocks.Models)
	s.Cases = slices.DeleteFunc(s.Cases, func(c *Case) bool { return c == nil || c.source == nil || c.source.kind != kindMap })
	for _, c := range s.Cases {
		p.checkCase(c)
	}
	p.project.Suites = append(p.project.Suites, s)
}

// checkCase checks the keys of a case against each other, and its attachments.
func (p *repoParser) checkCase(c *Case) {
	_, isMap := c.Payload.(map[string]any)
	switch {
	case !c.source.isWritten("payload") && len(c.Files) == 0:
		p.problems.add(c.source.pos, `a case needs "payload" or "files"`)
	case c.source.isWritten("payload") && len(c.Files) > 0 && !isMap:
		p.problems.add(c.At("payload"), `beside "files" the payload must be keys and values, like the fields of a form`)
	}
	if len(c.Context.Headers) > connector.MaxContextHeaders {
		p.problems.add(c.At("context", "headers"), `"context.headers" may have at most %d headers`, connector.MaxContextHeaders)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Context.Headers)) {
		if wrong := connector.CheckContextHeader(name); wrong != "" {
			p.problems.add(c.At("context", "headers", name), "%q %s", name, wrong)
		}
	}
	p.checkScripts(c.source.findNode("mocks", "models"), c.Mocks.Models)
	p.checkAttachments(c)
}

// checkScripts checks the scripts that mocks contain.
func (p *repoParser) checkScripts(source *node, mocks map[string]ModelMock) {
	for _, reference := range slices.Sorted(maps.Keys(mocks)) {
		script := mocks[reference].Script
		if script == nil {
			continue
		}
		own := source.findNode(reference)
		steps := own.findNode("steps")
		for i, step := range script.Steps {
			p.checkStep(steps.items[i], step)
		}
	}
}

func (p *repoParser) checkAttachments(c *Case) {
	if len(c.Files) > MaxAttachments {
		p.problems.add(c.At("files"), "a case has at most %d files", MaxAttachments)
	}
	size := 0
	for _, name := range c.Files {
		data, there := p.files[TestFile(name)]
		if !there || !strings.HasPrefix(TestFile(name), testFiles) {
			p.problems.add(c.At("files"), "the file %s does not exist; write its path below tests/, such as files/invoice.pdf", escapePath(TestFile(name)))
		}
		size += len(data)
	}
	if size > MaxAttachmentsSize {
		p.problems.add(c.At("files"), "the files of a case are at most %d MiB together", MaxAttachmentsSize>>20)
	}
}

// linkSuites checks the references of tests, and the number of cases and runs.
func (p *repoParser) linkSuites() {
	named, cases, runs := map[[2]string]Position{}, 0, 0
	for _, s := range p.project.Suites {
		if s.Agent != "" && p.project.byName[s.Agent] == nil {
			p.problems.add(s.source.findEntry("agent").pos, "no agent is named %q; write it or correct the name", s.Agent)
			continue
		}
		known := p.reachableFrom(s.Agent)
		p.linkMocks(s.source, s.Mocks, s.Agent, known)
		p.linkMCPMocks(s.source, s.Mocks, s.Agent, known)
		p.linkHTTPMocks(s.source, s.Mocks, s.Agent, known)
		for _, c := range s.Cases {
			if first, taken := named[[2]string{s.Agent, c.Name}]; taken {
				p.problems.add(c.At("name"), "agent %q has a case %q already, at %s; choose another name", s.Agent, c.Name, first)
			}
			named[[2]string{s.Agent, c.Name}] = c.At("name")
			p.linkMocks(c.source, c.Mocks, s.Agent, known)
			p.linkMCPMocks(c.source, c.Mocks, s.Agent, known)
			p.linkHTTPMocks(c.source, c.Mocks, s.Agent, known)
			p.linkCalls(c, s.Agent, known)
			cases++
			if runs += c.Runs; cases == MaxTestCases+1 || runs > MaxTestRuns && runs-c.Runs <= MaxTestRuns {
				p.problems.add(c.source.pos, "a repository has at most %d cases with %d runs together", MaxTestCases, MaxTestRuns)
			}
		}
	}
}

// reachable holds the models and tools of an agent and of the agents that it runs.
type reachable struct {
	models, tools []string
	// sends are the tools that send results. Mocks cannot replace their answers.
	sends []string
	// servers are the MCP servers. Only a server knows all its tools.
	servers []*MCPServer
	// sendsHTTP is true if a tool or a script of the agent may send HTTP requests.
	sendsHTTP bool
}

// hasTool reports whether a run can call a tool, by its name for models.
func (r reachable) hasTool(name string) bool {
	return name == ReadFile || slices.Contains(r.tools, name) || slices.Contains(r.sends, name) ||
		slices.ContainsFunc(r.servers, func(s *MCPServer) bool { return s.MayHaveTool(name) })
}

// server returns the MCP server with a name, or nil.
func (r reachable) server(name string) *MCPServer {
	for _, s := range r.servers {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func (r reachable) serverNames() (names []string) {
	for _, s := range r.servers {
		names = append(names, s.Name)
	}
	return names
}

func (p *repoParser) reachableFrom(agent string) (out reachable) {
	for _, a := range p.project.Steps(agent) {
		for _, use := range a.Models() {
			out.models = append(out.models, use.Reference)
		}
		for _, t := range slices.Concat(a.Tools, a.DiscoverableTools) {
			out.tools = append(out.tools, p.project.toolReferences(t.Reference)...)
			out.sendsHTTP = out.sendsHTTP || p.project.sendsHTTP(t.Reference)
		}
		if a.DiscoversTools() {
			out.tools = append(out.tools, SearchTools)
		}
		for i := range a.MCPServers {
			out.servers = append(out.servers, &a.MCPServers[i])
		}
		out.tools = append(out.tools, a.StepTools()...)
		out.sendsHTTP = out.sendsHTTP || slices.ContainsFunc(a.StepTools(), p.project.sendsHTTP) ||
			(len(a.stepScripts()) > 0 || p.project.hasScriptsAround(a)) && p.project.scriptsSendHTTP()
		if a.ToolName != "" {
			out.tools = append(out.tools, a.ToolName)
			out.sendsHTTP = out.sendsHTTP || p.project.sendsHTTP(a.ToolName)
		}
	}
	for _, action := range p.project.Actions(p.project.BaseName(agent)) {
		out.sends = append(out.sends, action.Name)
	}
	if p.project.SendsByMiddleware(p.project.BaseName(agent)) {
		out.sends = append(out.sends, SendConnector)
	}
	return out
}

// linkMocks reports mocks of models and tools that the agent does not use.
func (p *repoParser) linkMocks(source *node, mocks Mocks, agent string, known reachable) {
	at := func(kind, name string) Position { return source.findNode("mocks", kind).findEntry(name).pos }
	for _, model := range slices.Sorted(maps.Keys(mocks.Models)) {
		if !slices.Contains(known.models, model) {
			p.problems.add(at("models", model), "agent %q does not use the model %q; its models: %s", agent, model, listNames(known.models))
		}
		mock := mocks.Models[model]
		if file, isScript := strings.CutPrefix(mock.Reference, ScriptedPrefix); mock.Script == nil && (!isScript || p.project.Scripts[file] == nil) {
			p.problems.add(at("models", model), "the mock %q is not a script; write scripted/<file> for a file in models/, or write its steps", mock.Reference)
		}
	}
	for _, tool := range slices.Sorted(maps.Keys(mocks.Tools)) {
		if !slices.Contains(known.tools, tool) {
			p.problems.add(at("tools", tool), "agent %q has no tool %q; its tools: %s", agent, tool, listNames(known.tools))
		}
		if mock := mocks.Tools[tool]; (mock.Result == nil) == (mock.Error == "") {
			p.problems.add(at("tools", tool), `the mock of a tool needs either "result" or "error"`)
		}
	}
}

// linkMCPMocks reports mocks of calls that the agent cannot make.
func (p *repoParser) linkMCPMocks(source *node, mocks Mocks, agent string, known reachable) {
	for i, mock := range mocks.MCP {
		at := source.findNode("mocks", "mcp").items[i].pos
		switch s := known.server(mock.Server); {
		case mock.Server == "" || mock.Tool == "": // Reported as missing.
		case s == nil:
			p.problems.add(at, "agent %q has no MCP server %q; its servers: %s", agent, mock.Server, listNames(known.serverNames()))
		case !s.Offers(mock.Tool):
			p.problems.add(at, `the server %q has no tool %q for agent %q; correct the name, or "tools" of the server`, mock.Server, mock.Tool, agent)
		case (mock.Result == nil) == (mock.Error == ""):
			p.problems.add(at, `the mock of a tool needs either "result" or "error"`)
		}
	}
}

// linkCalls reports expectations about tools that no run can call.
func (p *repoParser) linkCalls(c *Case, agent string, known reachable) {
	tools := slices.Concat(known.tools, known.sends)
	for _, call := range c.ExpectedToolCalls {
		if call.Tool != "" && !known.hasTool(call.Tool) {
			p.problems.add(c.At("expected_tool_calls"), "agent %q has no tool %q; its tools: %s", agent, call.Tool, listNames(tools))
		}
	}
	for _, tool := range c.ExpectedNoToolCalls {
		if !known.hasTool(tool) {
			p.problems.add(c.At("expected_no_tool_calls"), "agent %q has no tool %q; its tools: %s", agent, tool, listNames(tools))
		}
	}
}

func listNames(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), ", ")
}
