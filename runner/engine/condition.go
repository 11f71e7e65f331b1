// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

const (
	// conditionSteps begins the IDs of the steps that record a condition with an error.
	conditionSteps = "condition:"
	// conditionKind is the kind of these steps, and conditionFailed is their outcome.
	conditionKind   = "tool_condition"
	conditionFailed = "failed"
)

// namedTools returns the tools that the agent names, each once. A tool that several references name has the conditions of all,
// and is part of requests if one of them is.
func (s *Scope) namedTools() (tools []Tool, err error) {
	if tools, err = s.addNamed(nil, s.agent.Tools, false); err != nil {
		return nil, err
	}
	return s.addNamed(tools, s.agent.DiscoverableTools, true)
}

// addNamed adds the tools of a list of references.
func (s *Scope) addNamed(tools []Tool, references []bundle.Tool, discoverable bool) ([]Tool, error) {
	for i := range references {
		named := &references[i]
		found := s.engine.namedTools(s.in.Project, named.Reference)
		if len(found) == 0 {
			return nil, &failure{code: runerror.NotSupported, message: fmt.Sprintf(
				"agent %q has tool %q, which this release does not support", s.agent.Name, named.Reference)}
		}
		for _, t := range found {
			at := slices.IndexFunc(tools, func(own Tool) bool { return own.Name == t.Name })
			if at < 0 {
				t.Discoverable = discoverable
				at, tools = len(tools), append(tools, t)
			}
			if named.Condition.IsWritten() {
				tools[at].Conditions = append(slices.Clone(tools[at].Conditions), named)
			}
		}
	}
	return tools, nil
}

// hideTools returns the tools that the model must not see in its next request. It depends only on the event and on changes of
// the run's context, which the journal has, so each attempt hides the same tools. A condition with an error hides its tools.
func (l *llmAgent) hideTools(ctx context.Context) (hidden map[string]bool, err error) {
	hidden = map[string]bool{}
	values, held := conditionValues{scope: l.Scope}, map[*bundle.Tool]bool{}
	for _, t := range l.tools {
		for _, c := range t.Conditions {
			holds, known := held[c]
			if !known {
				if holds, err = l.meetsCondition(ctx, c, &values); err != nil {
					return nil, err
				}
				held[c] = holds
			}
			if !holds {
				hidden[t.Name] = true
			}
		}
	}
	return hidden, nil
}

// meetsCondition evaluates a condition. Its error ends the attempt.
func (l *llmAgent) meetsCondition(ctx context.Context, t *bundle.Tool, values *conditionValues) (bool, error) {
	known, err := values.forExpression(t.Condition.Value())
	if err == nil {
		var holds bool
		if holds, err = t.Condition.Value().Holds(ctx, known); err == nil {
			return holds, nil
		}
	}
	if ctx.Err() != nil {
		return false, err
	}
	return false, l.logCondition(t, err)
}

// logCondition records once in a run that a condition has an error.
func (l *llmAgent) logCondition(t *bundle.Tool, problem error) error {
	at := t.Condition.At()
	id := fmt.Sprintf("%s%s:%s@%d.%d", conditionSteps, l.path, at.File, at.Line, at.Column)
	if _, known := l.journal.recordedStep(id); known {
		return nil
	}
	line := LogLine{Level: "warn", Text: fmt.Sprintf("the condition of tool %s cannot be evaluated, so the tool is hidden: %v", t.Reference, problem), Position: at.String()}
	_, err := l.journal.recordStep(stepEntry{
		ID: id, Agent: l.path, Kind: conditionKind, At: l.engine.cfg.Now().UTC(), Outcome: conditionFailed, Log: l.journal.logs.takeLines([]LogLine{line}),
	})
	return err
}

// conditionValues are the values of the variables of conditions before one request. Each is encoded once.
type conditionValues struct {
	scope *Scope
	known map[string]any
}

// forExpression returns values for the variables that an expression uses.
func (v *conditionValues) forExpression(e *expr.Value) (map[string]any, error) {
	if v.known == nil {
		v.known = map[string]any{}
	}
	for _, use := range e.Uses() {
		if _, known := v.known[use.Name]; known {
			continue
		}
		value, err := v.scope.eventValue(use.Name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", use.Name, err)
		}
		v.known[use.Name] = value
	}
	return v.known, nil
}

// eventValue returns the value of a variable of a condition: the input and the headers of the run's event, or the run's context.
func (s *Scope) eventValue(name string) (any, error) {
	values := s.RunContext()
	switch name {
	case bundle.VariableInput:
		if input, known := values[name]; known {
			return encodeValue(input)
		}
		return decodeText(s.in.Message, true)
	case bundle.VariableHeaders:
		headers, _ := values[name].(map[string]any)
		return encodeValues(headers)
	}
	return encodeValues(values)
}
