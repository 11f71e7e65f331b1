// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/model"
)

// maxParallelCalls limits the concurrent tool calls of one model answer.
const maxParallelCalls = 8

// llmAgent runs the loop of model answers and tool calls of an agent.
type llmAgent struct {
	*Scope
	llm    model.Model
	prompt string
	tools  []Tool
	call   CallFunc
	talk   *conversation
	turn   int // number of the last answer
	// hidden has the tools that the model did not see in its last request, because of a condition.
	hidden map[string]bool
	// rejections are the invalid calls in a row, by tool.
	rejections map[string]int
}

func (s *Scope) buildLLM(talk *conversation) (AgentFunc, error) {
	llm, err := s.buildModel()
	if err != nil {
		return nil, err
	}
	if _, err := s.namedTools(); err != nil {
		return nil, err
	}
	return (&llmAgent{Scope: s, llm: llm, call: s.engine.callFunc(), talk: talk, rejections: map[string]int{}}).converse, nil
}

// buildModel returns the agent's model with retries and fallback.
func (s *Scope) buildModel() (model.Model, error) {
	settings := model.Settings{ReasoningEffort: s.agent.ReasoningEffort, MaxOutputTokens: s.agent.MaxOutputTokens}
	first, err := s.engine.cfg.Models.Resolve(s.agent.Model, s.in.Project, settings)
	if err != nil {
		return nil, err
	}
	policy := model.Policy{
		Attempts: s.agent.Retry.Attempts, InitialDelay: s.agent.Retry.InitialDelay.Std(),
		MaxDelay: s.agent.Retry.MaxDelay.Std(), Sleep: s.engine.cfg.Sleep,
	}
	if s.agent.FallbackModel == "" {
		return model.WithRetry(policy, first), nil
	}
	fallback, err := s.engine.cfg.Models.Resolve(s.agent.FallbackModel, s.in.Project, settings)
	if err != nil {
		return nil, err
	}
	return model.WithRetry(policy, first, fallback), nil
}

// buildTools returns the tools that the agent names, and the tools that features offer to it when it begins.
func (s *Scope) buildTools(ctx context.Context) (tools []Tool, err error) {
	if tools, err = s.namedTools(); err != nil {
		return nil, err
	}
	for _, f := range s.engine.features {
		if f.OfferedTools == nil {
			continue
		}
		offered, err := f.OfferedTools(ctx, s)
		if err != nil {
			return nil, err
		}
		for _, t := range offered {
			if slices.ContainsFunc(tools, func(own Tool) bool { return own.Name == t.Name }) {
				return nil, &failure{code: runerror.ToolNameTaken, message: fmt.Sprintf(
					"agent %q has two tools with the name %q, one of them from %s; rename one of them", s.agent.Name, t.Name, f.Name)}
			}
			tools = append(tools, t)
		}
	}
	return tools, nil
}

// setTools builds the tools of the agent, with mocks in place of tools in tests of agents. It limits their number when the agent
// begins: a resumed agent needs the tools that its model has seen.
func (l *llmAgent) setTools(ctx context.Context) (err error) {
	if l.tools, err = l.buildTools(ctx); err != nil {
		return err
	}
	if slices.ContainsFunc(l.tools, func(t Tool) bool { return t.Discoverable }) {
		l.tools = append(l.tools, l.discoveryTools()...)
	}
	if n := l.countShown(); n > bundle.MaxTools && !l.HasBegun() {
		return &failure{code: runerror.TooManyTools, message: fmt.Sprintf("requests of agent %q have %d tools, with the tools of its MCP servers and links; "+
			"at most %d are allowed; name fewer tools, set \"discoverable\" of an MCP server, or remove a link", l.agent.Name, n, bundle.MaxTools)}
	}
	if l.in.SavedFiles != nil && l.findTool(bundle.ReadFile) == nil {
		l.tools = append(l.tools, l.fileReader())
	}
	if replace := l.engine.cfg.ReplaceTool; replace != nil {
		for i := range l.tools {
			l.tools[i] = replace(l.tools[i])
		}
	}
	return nil
}

// countShown returns the number of tools that requests to the model can have. It counts tools that a condition hides, so that
// the number is the same for all requests.
func (l *llmAgent) countShown() (count int) {
	for _, t := range l.tools {
		if !t.Discoverable {
			count++
		}
	}
	return count
}

// callFunc returns the function that executes calls, with the wrappers of all features.
func (e *Engine) callFunc() CallFunc {
	call := CallFunc(runCall)
	for _, f := range slices.Backward(e.features) {
		if f.WrapCall != nil {
			call = f.WrapCall(call)
		}
	}
	return call
}

// namedTools returns the tools that a reference of an agent names, none if no feature knows it.
func (e *Engine) namedTools(p *bundle.Project, reference string) []Tool {
	for _, f := range e.features {
		if f.NamedTools == nil {
			continue
		}
		if tools := f.NamedTools(p, reference); len(tools) > 0 {
			return tools
		}
	}
	return nil
}

// converse implements AgentFunc.
func (l *llmAgent) converse(ctx context.Context, in Message) (answer Message, err error) {
	if l.prompt, err = l.systemPrompt(l.agent); err != nil { // steps before this one may have changed the context
		return Message{}, l.stopAttempt(err)
	}
	if err := l.setTools(ctx); err != nil {
		return Message{}, l.stopAttempt(err)
	}
	l.talk.addMessage("", in.Author, in.Content)
	for _, failed := range l.journal.recordedFailures(l.path) {
		l.stage.countUsage(failed.Model, failed.Usage, l.journal.callCost)
	}
	for {
		if l.hidden, err = l.hideTools(ctx); err != nil {
			return Message{}, l.stopAttempt(err)
		}
		answer, err := l.nextAnswer(ctx)
		if err != nil {
			return Message{}, l.stopAttempt(err)
		}
		calls := answer.Calls()
		if len(calls) == 0 {
			return Message{Author: l.agent.Name, Content: answer}, nil
		}
		l.talk.addMessage(l.path, l.agent.Name, answer)
		results, err := l.callTools(ctx, calls)
		if err != nil {
			return Message{}, err
		}
		l.talk.addMessage(l.path, l.agent.Name, results)
	}
}

func (l *llmAgent) nextAnswer(ctx context.Context) (*model.Content, error) {
	l.turn++
	if l.turn > l.agent.MaxIterations {
		return nil, &failure{code: runerror.MaxIterationsExceeded, message: fmt.Sprintf("agent %q gave %d model answers without an end (max_iterations)", l.agent.Name, l.agent.MaxIterations)}
	}
	if known, ok := l.journal.recordedAnswer(l.path, l.turn); ok {
		l.stage.countUsage(known.Model, known.Usage, l.journal.callCost)
		return l.useAnswer(known)
	}
	if err := l.stage.admitRequest(); err != nil {
		return nil, err
	}
	if err := l.mayGoOn(ctx); err != nil {
		return nil, err
	}
	if err := l.journal.flushOld(ctx); err != nil {
		return nil, err
	}
	answer, request, err := l.askModel(ctx)
	if err != nil {
		return nil, err
	}
	recorded, err := l.journal.recordAnswer(modelAnswer{
		Agent: l.path, Turn: l.turn, Content: answer.Content, FinishReason: answer.FinishReason, modelRequest: request,
	})
	l.stage.countUsage(recorded.Model, recorded.Usage, l.journal.callCost)
	if err != nil {
		return nil, err
	}
	return l.useAnswer(recorded)
}

// useAnswer returns the content of a recorded answer, or the failure of an answer that the agent does not keep.
func (l *llmAgent) useAnswer(recorded modelAnswer) (*model.Content, error) {
	if recorded.FinishReason == model.FinishLength && l.agent.OnTruncation == bundle.TruncationFail {
		return nil, &failure{code: runerror.ModelAnswerTruncated, message: fmt.Sprintf(
			"a limit of tokens cut off answer %d of agent %q, after %d output tokens (on_truncation)", l.turn, l.agent.Name, recorded.Usage.OutputTokens)}
	}
	return recorded.Content, nil
}

// askModel requests an answer. It also returns what the journal has about the request, since the last unusable answer.
func (l *llmAgent) askModel(ctx context.Context) (*model.Answer, modelRequest, error) {
	ctx, cancel := l.limitTime(ctx)
	defer cancel()
	if late := timedOut(ctx); late != nil {
		return nil, modelRequest{}, late
	}
	failures := &requestFailures{agent: l, begin: l.engine.cfg.Now()}
	answer, err := l.llm.Generate(model.WithFailures(ctx, failures.addFailure), &model.Request{
		Instructions: l.prompt, Contents: l.talk.seenBy(l.path), Tools: l.declarations(), Temperature: l.agent.Temperature,
	})
	if late := timedOut(ctx); err != nil && late != nil {
		return nil, modelRequest{}, late
	}
	if err != nil {
		failures.endRequest(ctx, err)
		return nil, modelRequest{}, err
	}
	if answer.Content == nil {
		answer.Content = &model.Content{Role: model.RoleModel}
	}
	request := failures.describe(cmp.Or(answer.Model, l.llm.Name()), answer.Server)
	request.ResponseModel, request.Usage = answer.ResponseModel, usageOf(answer.Usage)
	return answer, request, nil
}

// callTools executes the calls of an answer, several at a time, and returns the message with all results, in the order
// of the calls.
func (l *llmAgent) callTools(ctx context.Context, calls []*model.Call) (*model.Content, error) {
	used := l.resolveCalls(calls)
	problems, err := l.checkCalls(used)
	l.showRejected(ctx, used, problems)
	if err == nil {
		err = l.stage.countCalls(len(calls))
	}
	if err != nil {
		return nil, l.stopAttempt(err)
	}
	results := make([]*model.Part, len(calls))
	scopes := l.forkScopes(len(calls))
	var group errgroup.Group
	group.SetLimit(maxParallelCalls)
	for i, c := range calls {
		group.Go(func() (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = l.stopAttempt(panicked(p))
				}
			}()
			result := Result{Error: problems[i]}
			if problems[i] == "" {
				if result, err = l.call(ctx, &Call{Scope: scopes[i], ID: c.ID, Tool: l.findTool(used[i].Name), Arguments: used[i].Args}); err != nil {
					return l.stopAttempt(err)
				}
			}
			results[i] = &model.Part{Result: &model.Result{ID: c.ID, Name: c.Name, Response: l.shownResult(used[i].Name, result)}}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, s := range scopes {
		if err := s.values.join(); err != nil {
			return nil, l.stopAttempt(err)
		}
	}
	return &model.Content{Role: model.RoleUser, Parts: results}, nil
}

// forkScopes returns a scope for each call of an answer. Each has a copy of the run's context, so that the changes of calls
// that run at the same time do not depend on their speed. They are joined in the order of the calls.
func (l *llmAgent) forkScopes(calls int) []*Scope {
	scopes := make([]*Scope, calls)
	for i := range scopes {
		fork := *l.Scope
		fork.values = l.values.fork()
		fork.values.begin()
		scopes[i] = &fork
	}
	return scopes
}

// findTool returns the tool with a name, or nil.
func (l *llmAgent) findTool(name string) *Tool {
	at := slices.IndexFunc(l.tools, func(t Tool) bool { return t.Name == name })
	if at < 0 {
		return nil
	}
	return &l.tools[at]
}

// maxToolName limits the name of an unknown tool in a message, in bytes.
const maxToolName = 64

// declarations returns the tools that the model may call now.
func (l *llmAgent) declarations() []model.ToolDeclaration {
	out := make([]model.ToolDeclaration, 0, len(l.tools))
	for _, t := range l.tools {
		if l.hidden[t.Name] || t.Discoverable || t.isNeeded != nil && !t.isNeeded() {
			continue
		}
		shown := model.ToolDeclaration{Name: t.Name, Description: t.Description}
		if t.Parameters != nil {
			shown.Parameters = t.Parameters
		}
		out = append(out, shown)
	}
	return out
}

func usageOf(u *dispatchapi.TokenUsage) dispatchapi.TokenUsage {
	if u == nil {
		return dispatchapi.TokenUsage{}
	}
	return *u
}
