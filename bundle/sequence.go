// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/agentplatform/agentplatform/internal/expr"
)

// SequenceStep is a step of a sequential agent: an action, or actions that run at the same time.
type SequenceStep struct {
	StepAction
	ShareHistory bool         `yaml:"share_history" without:"false" example:"true" doc:"Shares one conversation with the other steps of the agent that have the key."`
	Parallel     []StepAction `yaml:"parallel" required:"true" choice:"action" doc:"Steps that run at the same time, at most 8. If one fails, the others are cancelled."`
}

// StepAction runs an agent, calls a tool or runs a script.
type StepAction struct {
	Agent  string `yaml:"agent" required:"true" choice:"action" form:"name" example:"support" doc:"Name of the agent to run."`
	Tool   string `yaml:"tool" required:"true" choice:"action" doc:"Tool to call without a model. Its error fails the run with 'tool_failed'."`
	Script string `yaml:"script" required:"true" choice:"action" doc:"Function of a script to run: 'steps.file.function' of a file 'steps/file.star', or 'steps.folder.file.function'. It may have the parameters 'input', 'steps' (the results so far, by name) and 'context'. If it fails, the run fails with 'script_error'."`
	// As is "" if the result has no name.
	As    string                `yaml:"as" form:"variable" without:"the name of the agent, with '_' for '-'" example:"reply" doc:"Name of the result for the expressions of later steps. The result of a tool or a script without the key has no name."`
	When  Expression            `yaml:"when" without:"always" example:"input != ''" doc:"CEL condition. If it is false, the step is skipped and its result is null."`
	With  map[string]Expression `yaml:"with" without:"no arguments" doc:"Arguments of the tool, each as a CEL expression."`
	Input StepInput             `yaml:"input" without:"the whole input, with attachments" example:"{question: input}" doc:"Input of the agent or the script: a CEL expression, or keys with an expression each. Text is the input as it is, any other value is JSON."`
}

// Variables of the expressions of steps, beside the results of earlier steps.
const (
	VariableInput   = "input"
	VariableContext = "context"
	VariableHeaders = "headers"
)

// stepVariables are the variables that no result can be named after.
var stepVariables = []string{VariableInput, VariableContext, VariableHeaders}

// fillNames sets the default names of the results of steps.
func (a *Agent) fillNames() {
	fill := func(s *StepAction) {
		if s.As == "" {
			s.As = strings.ReplaceAll(s.Agent, "-", "_")
		}
	}
	for i := range a.Steps {
		fill(&a.Steps[i].StepAction)
		for j := range a.Steps[i].Parallel {
			fill(&a.Steps[i].Parallel[j])
		}
	}
}

// Actions returns the actions of a step: one, or several that run at the same time.
func (s *SequenceStep) Actions() []StepAction {
	if len(s.Parallel) > 0 {
		return s.Parallel
	}
	return []StepAction{s.StepAction}
}

// subagents returns the names of the agents that a sequential agent runs, each as often as it runs.
func (a *Agent) subagents() (names []string) {
	names = append(names, a.Agents...)
	for i := range a.Steps {
		for _, action := range a.Steps[i].Actions() {
			if action.Agent != "" {
				names = append(names, action.Agent)
			}
		}
	}
	return names
}

// stepsKey returns the key with the steps of a sequential agent.
func (a *Agent) stepsKey() string {
	if len(a.Steps) > 0 {
		return "steps"
	}
	return "agents"
}

// StepTools returns the references of the tools that the steps of the agent call, each as often as it is called.
func (a *Agent) StepTools() (references []string) {
	for i := range a.Steps {
		for _, action := range a.Steps[i].Actions() {
			if action.Tool != "" {
				references = append(references, action.Tool)
			}
		}
	}
	return references
}

// StepInput is the input of a step: one expression for the whole, or an expression for each key.
type StepInput struct {
	Whole Expression
	Keys  map[string]Expression
}

func (i *StepInput) unmarshalNode(d *decoder, n *node, path string) {
	if n.kind == kindMap {
		d.decode(n, &i.Keys, path)
		return
	}
	i.Whole.unmarshalNode(d, n, path)
}

// Expression is a CEL expression of a step or a condition of a tool. The zero value is no expression.
type Expression struct {
	text  string
	value *expr.Value
	node  *node
}

// IsWritten reports whether there is an expression.
func (e Expression) IsWritten() bool { return e.text != "" }

// Value returns the compiled expression. A valid project has one for each written expression.
func (e Expression) Value() *expr.Value { return e.value }

// At returns the position of a written expression.
func (e Expression) At() Position { return e.node.pos }

func (e *Expression) unmarshalNode(d *decoder, n *node, path string) {
	e.node = n
	switch value := n.scalar.(type) {
	case string:
		e.text = value
	case json.Number:
		e.text = string(value)
	case bool:
		e.text = strconv.FormatBool(value)
	default:
		if !n.isNull() {
			d.reportMismatch(n, path, "a CEL expression")
		}
	}
}
