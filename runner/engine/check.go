// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
)

// Check returns the problems of a repository that uses what this release does not support, or a tool or variable that
// cannot exist. A build fails for them.
func (e *Engine) Check(p *bundle.Project) bundle.Problems {
	problems := p.Unsupported()
	for _, a := range p.Agents {
		for _, name := range bundle.PromptVariables(a.SystemPrompt) {
			if !bundle.VariableName.MatchString(name) {
				problems = append(problems, neverHasValue(a.At("system_prompt"), "{"+bundle.PromptVariable+name+"}"))
			}
		}
		if a.ToolName != "" {
			problems = append(problems, e.checkToolName(p, a)...)
		}
		for _, t := range a.Tools {
			problems = append(problems, e.checkReference(p, a.At("tools"), t.Reference)...)
		}
		for _, t := range a.DiscoverableTools {
			problems = append(problems, e.checkReference(p, a.At("discoverable_tools"), t.Reference)...)
		}
		for i := range a.Steps {
			for _, action := range a.Steps[i].Actions() {
				if action.Tool != "" {
					problems = append(problems, e.checkReference(p, a.AtStep(i), action.Tool)...)
				}
			}
		}
	}
	for _, f := range e.features {
		if f.Check != nil {
			problems = append(problems, f.Check(p)...)
		}
	}
	return problems.With(nil)
}

// checkReference returns the problem of a reference to a tool that no feature knows.
func (e *Engine) checkReference(p *bundle.Project, at bundle.Position, reference string) bundle.Problems {
	if len(e.namedTools(p, reference)) > 0 {
		return nil
	}
	return bundle.Problems{{Position: at, Message: "tool " + reference + " is unknown; use one of " + strings.Join(e.referenceForms(), ", ")}}
}

// referenceForms describes the references to tools that an agent can have.
func (e *Engine) referenceForms() (forms []string) {
	for _, f := range e.features {
		if f.References != "" {
			forms = append(forms, f.References)
		}
	}
	return forms
}
