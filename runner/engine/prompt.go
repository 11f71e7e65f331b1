// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// variablePrefix begins a placeholder for a variable of the environment, regardless of the run's
// context.
const variablePrefix = "env."

// VariableName is the form of variable names of an environment.
var VariableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]{0,127}$`)

// foreign matches placeholders in the syntax of other programs.
var foreign = regexp.MustCompile(`\{\{[^{}\n]*\}\}|\$\{[^{}\n]*\}`)

// Warn returns placeholders in prompts that use the syntax of other programs. They are not
// replaced, or only partly. A prompt can contain them on purpose, so a build does not reject them.
func Warn(p *bundle.Project) (warnings bundle.Problems) {
	if p == nil {
		return nil
	}
	for _, a := range p.Agents {
		if found := foreign.FindString(a.SystemPrompt); found != "" {
			warnings = append(warnings, bundle.Problem{Position: a.At("system_prompt"), Message: found +
				" in the prompt does not stand for a value; write {field}, or {env.NAME} for a variable of the environment"})
		}
	}
	return warnings
}

var placeholder = regexp.MustCompile(`\{[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_-]*)*\}`)

// PromptVariables returns the names of the environment's variables in a system prompt in order.
func PromptVariables(prompt string) (names []string) {
	for _, written := range placeholder.FindAllString(prompt, -1) {
		if name, isVariable := strings.CutPrefix(written[1:len(written)-1], variablePrefix); isVariable && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// systemPrompt returns the agent's system prompt with replaced placeholders: {env.NAME} for a variable of
// the environment, {var} and {var.field} for a value of the run's context.
func (s *Scope) systemPrompt(agent *bundle.Agent) (text string, err error) {
	values := s.values.copyValues()
	text = placeholder.ReplaceAllStringFunc(agent.SystemPrompt, func(written string) string {
		path := written[1 : len(written)-1]
		name, isVariable := strings.CutPrefix(path, variablePrefix)
		if !isVariable {
			return inContext(written, path, values)
		}
		value, problem := s.variable(name)
		if problem != nil && err == nil {
			problem.message = fmt.Sprintf("the system prompt of agent %q has %s: %s", agent.Name, written, problem.message)
			err = problem
		}
		return value
	})
	return text, err
}

// variable returns the value of an environment variable that models may see.
func (a *attempt) variable(name string) (string, *failure) {
	if a.engine.cfg.Variables == nil {
		return "", &failure{code: runerror.VariableUnavailable, message: "variables are not available here"}
	}
	variables, err := a.engine.cfg.Variables()
	if err != nil {
		return "", &failure{code: runerror.VariableUnavailable, message: "the variables of the environment could not be read", cause: err}
	}
	found, there := variables.Find(name)
	switch {
	case !there:
		return "", &failure{code: runerror.VariableUnavailable, message: fmt.Sprintf("the environment has no variable %q; add it", name)}
	case found.Sensitive:
		return "", &failure{code: runerror.VariableUnavailable, message: fmt.Sprintf("the variable %q is sensitive, and is never sent to a model; use another variable", name)}
	}
	return found.Value, nil
}

// inContext returns the value at a path of the run's context. A field can contain hyphens. A
// placeholder without a value is not replaced, so prompts can contain braces.
func inContext(written, path string, values map[string]any) string {
	var value any = values
	for field := range strings.SplitSeq(path, ".") {
		fields, ok := value.(map[string]any)
		if !ok {
			return written
		}
		if value, ok = fields[field]; !ok {
			return written
		}
	}
	if text, ok := value.(string); ok {
		return text
	}
	data, err := json.Marshal(value)
	if err != nil {
		return written
	}
	return string(data)
}
