// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"maps"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/internal/contextheader"
)

func (p *parsing) suite(file string) {
	source := p.parse(file)
	if source == nil {
		return
	}
	if p.tests += source.weight; p.tests > maxAllNodes {
		p.problems.add(Position{File: file}, "the tests up to this file are too large together; put what is long into %s", testFiles)
		return
	}
	s := &Suite{source: source}
	p.decoder().decode(source, s, "")
	if source.kind != kindMap {
		return
	}
	if s.Agent == "" {
		p.problems.add(source.pos, `a suite needs "agent", the name of the agent that it tests`)
	}
	if len(s.Cases) == 0 {
		p.problems.add(source.pos, `a suite needs "cases"`)
	}
	p.checkScripts(source.path("mocks", "models"), s.Mocks.Models)
	s.Cases = slices.DeleteFunc(s.Cases, func(c *Case) bool { return c == nil || c.source == nil || c.source.kind != kindMap })
	for _, c := range s.Cases {
		p.checkCase(c)
	}
	p.project.Suites = append(p.project.Suites, s)
}

// checkCase checks what one case says, without looking at other files but its attachments.
func (p *parsing) checkCase(c *Case) {
	if !agentName.MatchString(c.Name) || len(c.Name) > maxName {
		p.problems.add(c.At("name"), `a case needs a "name" of at most %d lower-case letters, digits and inner dashes`, maxName)
	}
	_, isMap := c.Payload.(map[string]any)
	switch {
	case !c.source.written("payload") && len(c.Files) == 0:
		p.problems.add(c.source.pos, `a case needs "payload" or "files"`)
	case c.source.written("payload") && len(c.Files) > 0 && !isMap:
		p.problems.add(c.At("payload"), `beside "files" the payload must be keys and values, as of a form`)
	}
	if len(c.Context.Headers) > contextheader.Max {
		p.problems.add(c.At("context", "headers"), `"context.headers" may have at most %d headers`, contextheader.Max)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Context.Headers)) {
		if wrong := contextheader.Check(name); wrong != "" {
			p.problems.add(c.At("context", "headers", name), "%q %s", name, wrong)
		}
	}
	for i, call := range c.ExpectedToolCalls {
		if call.Tool == "" {
			p.problems.add(c.source.path("expected_tool_calls").items[i].pos, `an expected call needs "tool"`)
		}
	}
	p.checkScripts(c.source.path("mocks", "models"), c.Mocks.Models)
	p.checkAttachments(c)
}

// checkScripts checks the scripts that are written in place.
func (p *parsing) checkScripts(source *node, mocks map[string]ModelMock) {
	for _, reference := range slices.Sorted(maps.Keys(mocks)) {
		script := mocks[reference].Script
		if script == nil {
			continue
		}
		own := source.path(reference)
		if len(script.Steps) == 0 {
			p.problems.add(own.pos, `a script needs "steps"`)
		}
		steps := own.path("steps")
		for i, step := range script.Steps {
			p.checkStep(steps.items[i], step)
		}
	}
}

func (p *parsing) checkAttachments(c *Case) {
	if len(c.Files) > MaxAttachments {
		p.problems.add(c.At("files"), "a case has at most %d files", MaxAttachments)
	}
	size := 0
	for _, name := range c.Files {
		data, there := p.files[TestFile(name)]
		if !there || !strings.HasPrefix(TestFile(name), testFiles) {
			p.problems.add(c.At("files"), "there is no file %s; write its path below tests/, such as files/invoice.pdf", printable(TestFile(name)))
		}
		size += len(data)
	}
	if size > MaxAttachmentsSize {
		p.problems.add(c.At("files"), "the files of a case are at most %d MiB together", MaxAttachmentsSize>>20)
	}
}

// linkSuites checks what tests refer to, and how many there are.
func (p *parsing) linkSuites() {
	named, cases, runs := map[[2]string]Position{}, 0, 0
	for _, s := range p.project.Suites {
		if s.Agent != "" && p.project.byName[s.Agent] == nil {
			p.problems.add(s.source.get("agent").pos, "no agent is named %q; write it or correct the name", s.Agent)
			continue
		}
		known := p.reach(s.Agent)
		p.linkMocks(s.source, s.Mocks, s.Agent, known)
		for _, c := range s.Cases {
			if first, taken := named[[2]string{s.Agent, c.Name}]; taken {
				p.problems.add(c.At("name"), "agent %q has a case %q already, at %s; choose another name", s.Agent, c.Name, first)
			}
			named[[2]string{s.Agent, c.Name}] = c.At("name")
			p.linkMocks(c.source, c.Mocks, s.Agent, known)
			p.linkCalls(c, s.Agent, known)
			cases++
			if runs += c.Runs; cases == MaxTestCases+1 || runs > MaxTestRuns && runs-c.Runs <= MaxTestRuns {
				p.problems.add(c.source.pos, "a repository has at most %d cases with %d runs together", MaxTestCases, MaxTestRuns)
			}
		}
	}
}

// reached are the models and tools that an agent may ask, and those that it runs.
type reached struct {
	models, tools []string
	// sends are tools that send: what they answer cannot be another.
	sends []string
}

func (p *parsing) reach(agent string) (out reached) {
	for _, a := range p.project.Steps(agent) {
		for _, model := range []string{a.Model, a.FallbackModel} {
			if model != "" {
				out.models = append(out.models, model)
			}
		}
		for _, t := range a.Tools {
			out.tools = append(out.tools, t.Reference)
		}
		if a.ToolName != "" {
			out.tools = append(out.tools, a.ToolName)
		}
	}
	for _, action := range p.project.Actions(p.project.RunsOf(agent)) {
		out.sends = append(out.sends, action.Name)
	}
	return out
}

// linkMocks reports mocks that nobody asks.
func (p *parsing) linkMocks(source *node, mocks Mocks, agent string, known reached) {
	at := func(kind, name string) Position { return source.path("mocks", kind).get(name).pos }
	for _, model := range slices.Sorted(maps.Keys(mocks.Models)) {
		if !slices.Contains(known.models, model) {
			p.problems.add(at("models", model), "agent %q asks no model %q; there is %s", agent, model, listed(known.models))
		}
		mock := mocks.Models[model]
		if file, isScript := strings.CutPrefix(mock.Reference, scriptedProvider); mock.Script == nil && (!isScript || p.project.Scripts[file] == nil) {
			p.problems.add(at("models", model), "the mock %q is no script; write scripted/<file> of one in models/, or its steps", mock.Reference)
		}
	}
	for _, tool := range slices.Sorted(maps.Keys(mocks.Tools)) {
		if !slices.Contains(known.tools, tool) {
			p.problems.add(at("tools", tool), "agent %q has no tool %q; there is %s", agent, tool, listed(known.tools))
		}
		if mock := mocks.Tools[tool]; (mock.Result == nil) == (mock.Error == "") {
			p.problems.add(at("tools", tool), `the mock of a tool needs either "result" or "error"`)
		}
	}
}

// linkCalls reports tools that no run can call: nothing would be expected of them.
func (p *parsing) linkCalls(c *Case, agent string, known reached) {
	tools := slices.Concat(known.tools, known.sends)
	for _, call := range c.ExpectedToolCalls {
		if call.Tool != "" && !slices.Contains(tools, call.Tool) {
			p.problems.add(c.At("expected_tool_calls"), "agent %q has no tool %q; there is %s", agent, call.Tool, listed(tools))
		}
	}
	for _, tool := range c.ExpectedNoToolCalls {
		if !slices.Contains(tools, tool) {
			p.problems.add(c.At("expected_no_tool_calls"), "agent %q has no tool %q; there is %s", agent, tool, listed(tools))
		}
	}
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), ", ")
}
