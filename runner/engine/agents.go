// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"

	adkagent "google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/agent/workflowagents/sequentialagent"
	adkmodel "google.golang.org/adk/v2/model"
	adktool "google.golang.org/adk/v2/tool"
	"google.golang.org/genai"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/runner/model"
)

// tree builds the framework's agents. The root is always a sequence, so that
// one agent and many take the same way through the framework.
func (a *attempt) tree() (adkagent.Agent, error) {
	root, err := a.in.agent()
	if err != nil {
		return nil, err
	}
	if root.FilesRequired && (len(a.in.Files) == 0 || a.in.Omitted > 0) {
		return nil, &failure{code: CodeFilesRequired, message: fmt.Sprintf("agent %q requires files: %d came, and %d were omitted",
			root.Name, len(a.in.Files), a.in.Omitted)}
	}
	b := builder{attempt: a, names: map[string]int{"user": 1}}
	child, err := b.build(root, root.Name, nil)
	if err != nil {
		return nil, err
	}
	return b.sequence("run", "", []adkagent.Agent{child})
}

type builder struct {
	*attempt
	names map[string]int // how often each name is used
}

// build makes the framework's agent of one in the repository. The path tells
// places in the tree apart and is the same in every attempt.
func (b *builder) build(agent *bundle.Agent, path string, within *stage) (adkagent.Agent, error) {
	own := &stage{agent: agent, within: within}
	switch agent.Type {
	case bundle.AgentLLM:
		return b.llm(agent, path, own)
	case bundle.AgentSequential:
		steps := make([]adkagent.Agent, 0, len(agent.Agents))
		for i, name := range agent.Agents {
			step := b.in.Project.Agent(name)
			if step == nil {
				return nil, &failure{code: CodeAgentNotFound, message: fmt.Sprintf("the deployment has no agent %q, which %q runs", name, agent.Name)}
			}
			child, err := b.build(step, fmt.Sprintf("%s/%d:%s", path, i, name), own)
			if err != nil {
				return nil, err
			}
			steps = append(steps, child)
		}
		return b.sequence(agent.Name, agent.Description, steps)
	default:
		return nil, &failure{code: CodeUnsupported, message: fmt.Sprintf("agent %q has type %q, which this release does not run", agent.Name, agent.Type)}
	}
}

func (b *builder) sequence(name, description string, steps []adkagent.Agent) (adkagent.Agent, error) {
	sequence, err := sequentialagent.New(sequentialagent.Config{AgentConfig: adkagent.Config{
		Name: b.unique(name), Description: description, SubAgents: steps,
	}})
	if err != nil {
		return nil, fmt.Errorf("making sequence %q: %w", name, err)
	}
	return sequence, nil
}

func (b *builder) llm(agent *bundle.Agent, path string, at *stage) (adkagent.Agent, error) {
	llm, err := b.model(agent)
	if err != nil {
		return nil, err
	}
	prompt, err := b.prompt(agent)
	if err != nil {
		return nil, err
	}
	scope := &scope{attempt: b.attempt, agent: agent, path: path, stage: at}
	tools := make([]adktool.Tool, 0, len(agent.Tools))
	for _, t := range agent.Tools {
		known, ok := b.engine.tools[t.Reference]
		if !ok {
			return nil, &failure{code: CodeUnsupported, message: fmt.Sprintf("agent %q has tool %q, which this release does not know", agent.Name, t.Reference)}
		}
		tools = append(tools, &journaledTool{scope: scope, tool: known})
	}
	own := make([]string, 0, len(agent.Tools))
	for _, t := range agent.Tools {
		own = append(own, t.Reference)
	}
	sends, err := scope.sendTools(own)
	if err != nil {
		return nil, err
	}
	config := &genai.GenerateContentConfig{}
	if agent.Temperature != nil {
		config.Temperature = genai.Ptr(float32(*agent.Temperature))
	}
	made, err := llmagent.New(llmagent.Config{
		Name: b.unique(agent.Name), Description: agent.Description,
		Model: &journaledModel{scope: scope, llm: llm, prompt: prompt},
		Tools: append(tools, sends...), GenerateContentConfig: config,
		// Agents are composed by the repository, not by the model.
		DisallowTransferToParent: true, DisallowTransferToPeers: true,
	})
	if err != nil {
		return nil, fmt.Errorf("making agent %q: %w", agent.Name, err)
	}
	return made, nil
}

// model is the agent's model with its retries and its fallback.
func (b *builder) model(agent *bundle.Agent) (adkmodel.LLM, error) {
	settings := model.Settings{ReasoningEffort: agent.ReasoningEffort}
	first, err := b.engine.cfg.Models.Resolve(agent.Model, b.in.Project, settings)
	if err != nil {
		return nil, err
	}
	policy := model.Policy{
		Attempts: agent.Retry.Attempts, InitialDelay: agent.Retry.InitialDelay.Std(),
		MaxDelay: agent.Retry.MaxDelay.Std(), Sleep: b.engine.cfg.Sleep,
	}
	if agent.FallbackModel == "" {
		return model.WithRetry(policy, first), nil
	}
	fallback, err := b.engine.cfg.Models.Resolve(agent.FallbackModel, b.in.Project, settings)
	if err != nil {
		return nil, err
	}
	return model.WithRetry(policy, first, fallback), nil
}

// unique makes names that the framework accepts: each once in a tree, none "user".
func (b *builder) unique(name string) string {
	b.names[name]++
	if n := b.names[name]; n > 1 {
		return b.unique(fmt.Sprintf("%s_%d", name, n))
	}
	return name
}
