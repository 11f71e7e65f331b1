// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
)

// variablePrefix begins what stands for a variable of the environment, whatever the run's context has.
const variablePrefix = "env."

// VariableName is the form of the names of variables of an environment.
var VariableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]{0,127}$`)

// foreign are placeholders as other programs write them.
var foreign = regexp.MustCompile(`\{\{[^{}\n]*\}\}|\$\{[^{}\n]*\}`)

// Warn finds placeholders of prompts that are written as other programs have them: no value takes their place, or
// one takes the place of a part. A prompt may mean them so, which is why a build does not refuse them.
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

// PromptVariables are the names of the environment's variables that a system prompt has, in order.
func PromptVariables(prompt string) (names []string) {
	for _, written := range placeholder.FindAllString(prompt, -1) {
		if name, isVariable := strings.CutPrefix(written[1:len(written)-1], variablePrefix); isVariable && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// prompt is the agent's system prompt with values in place of what stands for them: {env.NAME} for a
// variable of the environment, {var} and {var.field} for a value of the run's context.
func (a *attempt) prompt(agent *bundle.Agent) (text string, err error) {
	text = placeholder.ReplaceAllStringFunc(agent.SystemPrompt, func(written string) string {
		path := written[1 : len(written)-1]
		name, isVariable := strings.CutPrefix(path, variablePrefix)
		if !isVariable {
			return inContext(written, path, a.in.Context)
		}
		value, problem := a.variable(name)
		if problem != nil && err == nil {
			problem.message = fmt.Sprintf("the system prompt of agent %q has %s: %s", agent.Name, written, problem.message)
			err = problem
		}
		return value
	})
	return text, err
}

// variable is the value of a variable of the environment that a model may be told.
func (a *attempt) variable(name string) (string, *failure) {
	if a.engine.cfg.Variables == nil {
		return "", &failure{code: CodeVariable, message: "there are no variables here"}
	}
	variables, err := a.engine.cfg.Variables()
	if err != nil {
		return "", &failure{code: CodeVariable, message: "the variables of the environment could not be read", cause: err}
	}
	found, there := variables.Find(name)
	switch {
	case !there:
		return "", &failure{code: CodeVariable, message: fmt.Sprintf("the environment has no variable %q; add it", name)}
	case found.Sensitive:
		return "", &failure{code: CodeVariable, message: fmt.Sprintf("the variable %q is sensitive, and no model is told such a value; name another one", name)}
	}
	return found.Value, nil
}

// inContext is the value at a path of the run's context, of which a field may have hyphens. What the context
// lacks stays as it was written, so that braces can be.
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
