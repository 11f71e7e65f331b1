// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// runTree runs the agent of the run with the run's input, and returns its answer.
func (a *attempt) runTree(ctx context.Context, in Message) (Message, error) {
	root, err := a.in.executingAgent()
	if err != nil {
		return Message{}, err
	}
	if root.FilesRequired && (len(a.in.Files) == 0 || a.in.Omitted > 0) {
		return Message{}, &failure{code: runerror.FilesRequired, message: fmt.Sprintf("agent %q requires files: %d were accepted, and %d were omitted",
			root.Name, len(a.in.Files), a.in.Omitted)}
	}
	run, err := a.buildAgent(&Scope{attempt: a, agent: root, path: root.Name, stage: &stage{agent: root}, values: a.values}, &conversation{})
	if err != nil {
		return Message{}, err
	}
	return run(ctx, in)
}

// buildAgent returns the function that runs an agent of the tree in a conversation. It finds missing agents, models and tools
// of the repository before the first step begins. It contacts no server, because the agent may be skipped, or may need
// values of the run's context that an earlier step sets.
func (a *attempt) buildAgent(at *Scope, talk *conversation) (run AgentFunc, err error) {
	switch at.agent.Type {
	case bundle.AgentLLM:
		run, err = at.buildLLM(talk)
	case bundle.AgentSequential:
		run, err = at.buildSequence(talk)
	case bundle.AgentTool:
		run, err = at.buildToolAgent(talk)
	default:
		return nil, &failure{code: runerror.NotSupported, message: fmt.Sprintf("agent %q has type %q, which this release does not support", at.agent.Name, at.agent.Type)}
	}
	if err != nil {
		return nil, err
	}
	for _, f := range slices.Backward(a.engine.features) {
		if f.WrapAgent != nil {
			run = f.WrapAgent(at, run)
		}
	}
	return run, nil
}
