// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"path"
	"slices"
	"strings"
)

// suggestName returns the file's stem in the form of a name.
func suggestName(file string) string {
	name := strings.Trim(strings.ReplaceAll(strings.ToLower(fileStem(file)), "_", "-"), "-")
	if !agentName.MatchString(name) {
		return "my-agent"
	}
	return name
}

// checkDelays checks the delays of retries against each other.
func (p *repoParser) checkDelays(a *Agent) {
	if a.Retry.MaxDelay < a.Retry.InitialDelay {
		at := a.source.findNode("retry_options", "max_delay").pos
		p.problems.add(at, `"retry_options.max_delay" must be at least the initial_delay of %s`, a.Retry.InitialDelay.Std())
	}
}

// linkAgent checks the references of an agent to other files.
func (p *repoParser) linkAgent(a *Agent) {
	for _, name := range a.Agents {
		p.linkAgentName(a.At("agents"), name)
	}
	for _, use := range a.Models() {
		if file, ok := strings.CutPrefix(use.Reference, ScriptedPrefix); ok && !p.hasFile("models/"+file+".yaml") {
			p.problems.add(a.At(use.Keys...), "model %q needs the script models/%s.yaml, which does not exist", use.Reference, file)
		}
	}
	p.linkAPIs(a)
	for _, list := range a.toolLists() {
		for _, t := range list.tools {
			p.checkTool(a, a.At(list.key), false, t.Reference)
		}
		p.compileConditions(list.key, list.tools)
	}
	p.checkToolNames(a)
	if a.ToolName != "" {
		p.checkTool(a, a.At("tool_name"), true, a.ToolName)
	}
	p.linkSteps(a)
}

// linkAgentName checks the name of an agent that events or other agents run.
func (p *repoParser) linkAgentName(at Position, name string) {
	switch a := p.project.byName[name]; {
	case a == nil:
		p.problems.add(at, "no agent is named %q; write it or correct the name", name)
	case a.VariantOf != "":
		p.problems.add(at, "agent %q is an A/B variant, which executes its share of the runs of %q; name that agent", name, a.VariantOf)
	}
}

// checkTool checks a reference to a tool: folder.file.name is a request of a YAML file or a function of a script in
// tools/, folder.file.* are all of the file, api:name.operationId is an operation of a document in apis/, and any other
// reference is the name of a built-in tool, which the runner knows.
func (p *repoParser) checkTool(a *Agent, at Position, single bool, reference string) {
	switch {
	case single && strings.HasSuffix(reference, wildcard):
		p.problems.add(at, "%q names several tools; name one", reference)
	case strings.HasPrefix(reference, apiPrefix):
		p.checkAPITool(a, at, reference)
	case len(p.project.HTTPTools(reference)) > 0:
	case codeName.MatchString(reference):
		file := "tools/" + strings.ReplaceAll(strings.TrimSuffix(reference, path.Ext(reference)), ".", "/") + ".yaml"
		if p.hasFile(file) {
			p.problems.add(at, "%s has no tool %q; correct the name", file, strings.TrimPrefix(path.Ext(reference), "."))
			return
		}
		p.checkScriptTool(at, reference)
	case !toolName.MatchString(reference):
		p.problems.add(at, "%q is not a tool; write folder.file.name or the name of a built-in tool", reference)
	}
}

// findCycles reports sequential agents that run themselves, directly or through other agents, and those with too many
// steps.
func (p *repoParser) findCycles() {
	w := cycleFinder{repoParser: p, steps: map[string]int{}}
	for _, a := range p.project.Agents {
		if a.Type == AgentSequential && p.project.byName[a.Name] == a {
			w.countSteps(a)
		}
	}
}

// cycleFinder visits sequential agents depth first.
type cycleFinder struct {
	*repoParser
	// steps is the number of agents, tools and scripts that an agent runs with all nested steps, 0 during the count.
	steps map[string]int
	path  []string
}

func (w *cycleFinder) countSteps(a *Agent) int {
	if n, seen := w.steps[a.Name]; seen {
		return n
	}
	w.steps[a.Name] = 0
	w.path = append(w.path, a.Name)
	total := 0
	total += len(a.StepTools()) + len(a.stepScripts())
	for _, name := range a.subagents() {
		next := w.project.byName[name]
		if next == nil || next.Type != AgentSequential {
			total++
			continue
		}
		if at := slices.Index(w.path, name); at >= 0 {
			loop := append(slices.Clone(w.path[at:]), name)
			w.problems.add(a.At(a.stepsKey()), "agents run each other in a loop: %s", strings.Join(loop, " -> "))
			continue
		}
		total += w.countSteps(next)
	}
	if total > MaxSteps {
		w.problems.add(a.At(a.stepsKey()), "runs %d agents with all nested steps; at most %d are allowed", total, MaxSteps)
		total = 1 // Reported here, and not again for agents that run this one.
	}
	w.path = w.path[:len(w.path)-1]
	w.steps[a.Name] = total
	return total
}
