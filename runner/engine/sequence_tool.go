// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/agentplatform/agentplatform/internal/runerror"
)

// stepCalls begins the IDs of calls of steps. No call of a model has this prefix.
const stepCalls = "step:"

// toolAction calls a tool without a model.
type toolAction struct {
	scope *Scope
	tool  Tool
	call  CallFunc
}

// buildTool returns the action that calls a tool, with a path of its own and the timeouts of the sequence.
func (q *sequence) buildTool(reference, path string, values *runContext) (*toolAction, error) {
	named := q.engine.namedTools(q.in.Project, reference)
	if len(named) != 1 {
		return nil, &failure{code: runerror.NotSupported, message: fmt.Sprintf("agent %q has a step with tool %q, which this release does not support", q.agent.Name, reference)}
	}
	tool := named[0]
	if replace := q.engine.cfg.ReplaceTool; replace != nil {
		tool = replace(tool)
	}
	scope := &Scope{attempt: q.attempt, agent: q.agent, path: path, stage: q.stage, values: values}
	return &toolAction{scope: scope, tool: tool, call: q.engine.callFunc()}, nil
}

// callTool calls the tool of an action once over all attempts. An error of the tool fails the run.
func (q *sequence) callTool(ctx context.Context, p *prepared) (Message, result, error) {
	t := p.tool
	if t.tool.Schema != nil {
		if err := CheckArguments(t.tool.Schema, p.arguments); err != nil {
			return Message{}, result{}, &failure{code: runerror.ToolArgumentsInvalid, message: fmt.Sprintf("%q of agent %q: %v", p.key, q.agent.Name, err)}
		}
	}
	if err := q.stage.countCalls(1); err != nil {
		return Message{}, result{}, err
	}
	got, err := t.call(ctx, &Call{Scope: t.scope, ID: stepCalls + t.scope.path, Tool: &t.tool, Arguments: p.arguments})
	switch {
	case err != nil:
		return Message{}, result{}, err
	case got.Error != "":
		return Message{}, result{}, &failure{code: runerror.ToolFailed, message: fmt.Sprintf("%q of agent %q: tool %q failed: %s", p.key, q.agent.Name, t.tool.Name, got.Error)}
	}
	answer, err := q.jsonAnswer(got)
	if err != nil {
		return Message{}, result{}, err
	}
	return answer, result{text: answer.Content.Text()}, nil
}

// jsonAnswer returns the result of a tool as the answer of the agent.
func (s *Scope) jsonAnswer(got Result) (Message, error) {
	text, err := json.Marshal(got.Response())
	if err != nil {
		return Message{}, fmt.Errorf("encoding the result of a tool: %w", err)
	}
	return textMessage(s.agent.Name, string(text)), nil
}
