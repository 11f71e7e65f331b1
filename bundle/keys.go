// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"path"
	"reflect"
	"slices"
	"strings"
)

var (
	everyType = agentTypes(allowed[Agent]("type"))
	onlyLLM   = []AgentType{AgentLLM}
)

// typesOf says for which types of agents a key has an effect. A key that is not
// here is refused for all of them. What a release does not do yet is refused by
// the engine, whatever the type.
var typesOf = map[string][]AgentType{
	"version":             everyType,
	"name":                everyType,
	"description":         everyType,
	"type":                everyType,
	"model":               onlyLLM,
	"fallback_model":      onlyLLM,
	"system_prompt":       onlyLLM,
	"temperature":         onlyLLM,
	"reasoning_effort":    onlyLLM,
	"tools":               onlyLLM,
	"agents":              {AgentSequential},
	"tool_name":           {AgentTool},
	"url":                 {AgentRemote},
	"output_schema":       everyType,
	"max_concurrent_runs": everyType,
	"max_iterations":      onlyLLM,
	"timeout":             {AgentLLM, AgentSequential},
	"retry_options":       onlyLLM,
	"concurrency":         everyType,
	"session":             everyType,
	"guardrails":          everyType,
	"approval":            everyType,
	"mcp_servers":         everyType,
	"files_required":      everyType,
	"variants":            everyType,
}

var agentKeys = fieldsOf(reflect.TypeFor[Agent]())

// agentTypes are types by their names.
func agentTypes(names []string) []AgentType {
	types := make([]AgentType, len(names))
	for i, name := range names {
		types[i] = AgentType(name)
	}
	return types
}

// typeNames lists types for messages.
func typeNames(types []AgentType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}

// knowsType says whether there is such a type, and reports one that there is not.
func (p *parsing) knowsType(t AgentType, at Position) bool {
	if slices.Contains(everyType, t) {
		return true
	}
	p.problems.add(at, `"type" must be one of %s, not %q`, typeNames(supportedTypes(everyType)), t)
	return false
}

// checkType checks the keys that belong to some types of agents.
func (p *parsing) checkType(a *Agent) {
	if !p.knowsType(a.Type, a.At("type")) {
		return
	}
	need := map[AgentType]struct {
		key string
		set bool
	}{
		AgentLLM:        {"model", a.Model != ""},
		AgentSequential: {"agents", len(a.Agents) > 0},
		AgentTool:       {"tool_name", a.ToolName != ""},
		AgentRemote:     {"url", a.URL != ""},
	}[a.Type]
	if !need.set {
		p.problems.add(a.At("type"), "an agent of type %s needs %q", a.Type, need.key)
	}
	for _, e := range a.source.entries {
		types := typesOf[e.key]
		if _, known := agentKeys[e.key]; known && !e.value.null() && !slices.Contains(types, a.Type) {
			p.notForType(e, types, "; remove it or change the type")
		}
	}
	if a.URL != "" {
		p.checkURL(a, "url", a.URL)
	}
}

// notForType reports a key that is for other types of agents; remedy ends the message.
func (p *parsing) notForType(e entry, types []AgentType, remedy string) {
	if isUnsupported(things["agent"], e.key) {
		p.problems.add(e.pos, "%q is not supported by this release; remove it", e.key)
		return
	}
	p.problems.add(e.pos, "%q is for agents of type %s%s", e.key, typeNames(supportedTypes(types)), remedy)
}

// withDefaults folds defaults into an agent, without the keys that have no effect
// for its type, or in the file of a variant: one file of defaults serves agents of several
// types. For a type that is none it keeps them all: it is the type that is reported then.
func withDefaults(base, own *node) *node {
	out := fold(base, own)
	if _, _, isVariant := variantFile(own.pos.File); isVariant {
		out.entries = slices.DeleteFunc(out.entries, func(e entry) bool {
			return own.get(e.key) == nil && slices.Contains(ofBase, e.key)
		})
	}
	agentType := AgentLLM
	if written := out.path("type"); written != nil {
		if text, _ := written.scalar.(string); text != "" {
			agentType = AgentType(text)
		}
	}
	if !slices.Contains(everyType, agentType) {
		return out
	}
	out.entries = slices.DeleteFunc(out.entries, func(e entry) bool {
		return e.pos.File != own.pos.File && !slices.Contains(typesOf[e.key], agentType)
	})
	return out
}

// linkDefaults reports defaults that no agent takes.
func (p *parsing) linkDefaults() {
	if len(p.problems) > 0 {
		return // An agent with a problem may be the one that takes them.
	}
	present := map[string][]AgentType{} // of the agents at and below a folder
	for _, a := range p.project.Agents {
		for folder := path.Dir(a.SourcePath); folder != "."; folder = path.Dir(folder) {
			if !slices.Contains(present[folder], a.Type) {
				present[folder] = append(present[folder], a.Type)
			}
		}
	}
	for folder, folded := range p.defaults {
		if folded == nil {
			continue
		}
		for _, e := range folded.entries {
			types := typesOf[e.key]
			takes := func(t AgentType) bool { return slices.Contains(types, t) }
			if path.Dir(e.pos.File) == folder && !e.value.null() && !slices.ContainsFunc(present[folder], takes) {
				p.notForType(e, types, ", and there is none in "+folder+"; remove it")
			}
		}
	}
}
