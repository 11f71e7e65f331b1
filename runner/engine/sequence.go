// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/model"
)

// buildSequence returns the function that runs a sequential agent.
func (s *Scope) buildSequence(talk *conversation) (AgentFunc, error) {
	if len(s.agent.Steps) > 0 {
		return s.buildSteps(talk)
	}
	steps := make([]AgentFunc, 0, len(s.agent.Agents))
	for i, name := range s.agent.Agents {
		step, err := s.buildNamedAgent(name, fmt.Sprintf("%s/%d:%s", s.path, i, name), s.values, talk)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	// Each step answers the answer of the step before it, and sees the whole conversation.
	return func(ctx context.Context, in Message) (Message, error) {
		for _, step := range steps {
			var err error
			if in, err = step(ctx, in); err != nil {
				return Message{}, err
			}
		}
		return in, nil
	}, nil
}

// buildNamedAgent returns the function that runs another agent as a step of the agent.
func (s *Scope) buildNamedAgent(name, path string, values *runContext, talk *conversation) (AgentFunc, error) {
	agent := s.in.Project.Agent(name)
	if agent == nil {
		return nil, &failure{code: runerror.AgentNotFound, message: fmt.Sprintf("the deployment has no agent %q, which %q runs", name, s.agent.Name)}
	}
	child := s.childScope(agent, path)
	child.values = values
	return s.buildAgent(child, talk)
}

// buildSteps returns the function that runs the steps of the agent.
func (s *Scope) buildSteps(talk *conversation) (AgentFunc, error) {
	run := &sequence{Scope: s, outer: talk, shared: &conversation{}, results: map[string]result{}}
	for i := range s.agent.Steps {
		step := &s.agent.Steps[i]
		key, position := fmt.Sprintf("steps[%d]", i), fmt.Sprintf("%s/%d", s.path, i)
		if len(step.Parallel) == 0 {
			one, err := run.buildAction(&step.StepAction, key, position, s.values, step.ShareHistory)
			if err != nil {
				return nil, err
			}
			run.steps = append(run.steps, []*stepAction{one})
			continue
		}
		var members []*stepAction
		for j := range step.Parallel {
			member, err := run.buildAction(&step.Parallel[j], fmt.Sprintf("%s.parallel[%d]", key, j), fmt.Sprintf("%s.%d", position, j), s.values.fork(), false)
			if err != nil {
				return nil, err
			}
			member.isForked = true
			members = append(members, member)
		}
		run.steps = append(run.steps, members)
	}
	return run.run, nil
}

// stepAction is an action of a step that can run.
type stepAction struct {
	*bundle.StepAction
	// key is the position in the agent's file, such as steps[0].
	key    string
	values *runContext
	// isForked is true if values are a copy for this action alone.
	isForked bool
	// agent runs the action of an agent. shares is true if it shares the conversation of the sequence.
	agent  AgentFunc
	shares bool
	// tool is the tool of an action without agent.
	tool *toolAction
	// script is the script of an action without agent and tool.
	script *scriptAction
}

// buildAction returns an action. position is the beginning of its path.
func (q *sequence) buildAction(action *bundle.StepAction, key, position string, values *runContext, shares bool) (a *stepAction, err error) {
	a = &stepAction{StepAction: action, key: key, values: values, shares: shares}
	if action.Tool != "" {
		a.tool, err = q.buildTool(action.Tool, position+":"+action.Tool, values)
		return a, err
	}
	if action.Script != "" {
		a.script, err = q.buildScript(action.Script, position+":"+action.Script, values)
		return a, err
	}
	talk := &conversation{}
	if shares {
		talk = q.shared
	}
	a.agent, err = q.buildNamedAgent(action.Agent, position+":"+action.Agent, values, talk)
	return a, err
}

// textMessage returns a message of an agent, or of the user if author is "".
func textMessage(author, text string) Message {
	role := model.RoleModel
	if author == "" {
		role = model.RoleUser
	}
	return Message{Author: author, Content: model.TextContent(role, text)}
}
