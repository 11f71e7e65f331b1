// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// foreignPlaceholder matches placeholders in the syntax of other programs.
var foreignPlaceholder = regexp.MustCompile(`\{\{[^{}\n]*\}\}|\$\{[^{}\n]*\}`)

// looseBraces matches a name in braces, also one that is not a placeholder because of a hyphen, an index or blanks.
var looseBraces = regexp.MustCompile(`\{ *[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+|\[[0-9]+\])* *\}`)

// Warn returns placeholders that can never get a value, placeholders in the syntax of other programs, and references to variables
// that cannot exist. The text stays as it is written, or is replaced only partly. A prompt can contain it on purpose, and a test
// can mock a variable, so a build does not reject them.
func Warn(p *bundle.Project) (warnings bundle.Problems) {
	if p == nil {
		return nil
	}
	for _, a := range p.Agents {
		if found := foreignPlaceholder.FindString(a.SystemPrompt); found != "" {
			warnings = append(warnings, bundle.Problem{Position: a.At("system_prompt"), Message: found +
				" in the prompt does not stand for a value; write {field}, or {env.NAME} for a variable of the environment"})
		}
		for _, written := range looseBraces.FindAllString(foreignPlaceholder.ReplaceAllString(a.SystemPrompt, " "), -1) {
			if problem := reasonNeverFilled(written); problem != "" {
				warnings = append(warnings, bundle.Problem{Position: a.At("system_prompt"), Message: written + " in the prompt never gets a value: " + problem})
				break
			}
		}
	}
	warnings = append(warnings, p.PlainBraces()...)
	for _, use := range p.VariableUses() {
		if !bundle.VariableName.MatchString(use.Name) && !strings.HasPrefix(use.Written, "{") { // Check reports the ones of prompts.
			warnings = append(warnings, neverHasValue(use.Position, use.Written))
		}
	}
	return warnings
}

// reasonNeverFilled returns the reason why a placeholder of a prompt can never get a value; "" if it can. Fields of the input are not
// known before a run.
func reasonNeverFilled(written string) string {
	if bundle.PromptPlaceholder.FindString(written) != written {
		return "a placeholder has the form {field} or {field.field}, without blanks and indexes; the first name has letters, digits and _"
	}
	name, rest, isPath := strings.Cut(written[1:len(written)-1], ".")
	switch {
	case (name == "run_id" || name == "agent_name" || name == "connector_id") && isPath:
		return name + " is a text without fields; write {" + name + "}"
	case name == "headers" && strings.Contains(rest, "."):
		return "a header is a text without fields; write {headers.name}"
	case name == "headers" && rest != strings.ToLower(rest):
		return "names of headers are in lower case; write {headers." + strings.ToLower(rest) + "}"
	}
	return ""
}

// neverHasValue is the problem of a reference to a variable that cannot exist.
func neverHasValue(at bundle.Position, written string) bundle.Problem {
	return bundle.Problem{Position: at, Message: written +
		" never has a value: the name of a variable has capital letters, digits and _, and no digit first; correct it"}
}

// systemPrompt returns the agent's system prompt with replaced placeholders: {env.NAME} for a variable of
// the environment, {var} and {var.field} for a value of the run's context.
func (s *Scope) systemPrompt(agent *bundle.Agent) (text string, err error) {
	values := s.values.copyValues()
	text = bundle.PromptPlaceholder.ReplaceAllStringFunc(agent.SystemPrompt, func(written string) string {
		path := written[1 : len(written)-1]
		name, isVariable := strings.CutPrefix(path, bundle.PromptVariable)
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
