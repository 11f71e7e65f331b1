// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/later"
)

// Check finds what a repository asks for and this release does not do. A build
// refuses it: a guardrail that is silently left out would be worse.
func (e *Engine) Check(p *bundle.Project) bundle.Problems {
	var problems bundle.Problems
	add := func(at bundle.Position, message string) {
		problems = append(problems, bundle.Problem{Position: at, Message: message + " is not supported by this release; remove it"})
	}
	for _, a := range p.Agents {
		if a.Type != bundle.AgentLLM && a.Type != bundle.AgentSequential {
			add(a.At("type"), "type "+string(a.Type))
		}
		problems = append(problems, a.Unsupported()...)
		for _, name := range PromptVariables(a.SystemPrompt) {
			if !VariableName.MatchString(name) {
				problems = append(problems, bundle.Problem{Position: a.At("system_prompt"), Message: "{" + variablePrefix + name +
					"} never has a value: the names of variables are capital letters, digits and _, and no digit first; correct it"})
			}
		}
		for _, t := range a.Tools {
			if _, known := e.tools[t.Reference]; !known {
				problems = append(problems, bundle.Problem{Position: a.At("tools"), Message: "tool " + t.Reference + " is unknown; there is " + strings.Join(e.toolNames(), ", ")})
			} else if t.Condition != "" {
				add(a.At("tools"), "the condition of tool "+t.Reference)
			}
		}
	}
	for _, c := range p.Connectors {
		problems = append(problems, c.Unsupported()...)
	}
	for _, s := range p.Suites {
		for _, c := range s.Cases {
			problems = append(problems, c.Unsupported()...)
		}
	}
	for _, file := range p.Files.Paths() {
		folder, _, _ := strings.Cut(file, "/")
		if later.Has(later.File, "folder."+folder, "") {
			add(bundle.Position{File: file}, "the folder "+folder)
		}
	}
	slices.SortStableFunc(problems, func(a, b bundle.Problem) int { return strings.Compare(a.String(), b.String()) })
	return problems
}

func (e *Engine) toolNames() []string {
	names := make([]string, 0, len(e.tools))
	for name := range e.tools {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
