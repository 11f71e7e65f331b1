// SPDX-License-Identifier: Apache-2.0

package localrun

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// observer sees what happens in a run: agents and tools as a feature, models and HTTP requests as a wrapper.
type observer struct {
	now       func() time.Time
	began     time.Time
	show      func(Step)
	prices    runnerconfig.Prices
	variables runnerconfig.Variables
	mask      *mask

	mu        sync.Mutex // guards the fields below, and calls of show
	steps     []Step
	costs     []dispatchapi.Cost
	answers   []modelAnswer
	exchanges []exchange
	results   []toolResult
}

// toolResult is the result of an executed call, as the tool returned it.
type toolResult struct {
	tool      *engine.Tool
	agent     *bundle.Agent
	arguments map[string]any
	result    engine.Result
}

func newObserver(opts Options) *observer {
	o := &observer{
		now: opts.Now, began: opts.Now(), show: opts.Show, prices: opts.Prices, variables: opts.Variables, mask: &mask{},
	}
	for _, secret := range opts.Secrets {
		o.mask.addSecret(secret)
	}
	for _, v := range opts.Variables.Variables {
		if v.Sensitive {
			o.mask.addSecret(v.Value)
		}
	}
	return o
}

// pathKey is the key of an agent's position in a context.
type pathKey struct{}

// pathOf returns the position of the agent in the tree.
func pathOf(ctx context.Context) string {
	path, _ := ctx.Value(pathKey{}).(string)
	return path
}

// feature shows agents and calls of tools.
func (o *observer) feature() engine.Feature {
	return engine.Feature{
		Name: "the observer of a local run",
		WrapAgent: func(at *engine.Scope, next engine.AgentFunc) engine.AgentFunc {
			return func(ctx context.Context, in engine.Message) (engine.Message, error) {
				o.addStep(Step{Kind: AgentStarted, Agent: at.Path(), Model: at.Agent().Model})
				return next(context.WithValue(ctx, pathKey{}, at.Path()), in)
			}
		},
		WrapCall: func(next engine.CallFunc) engine.CallFunc {
			return func(ctx context.Context, call *engine.Call) (engine.Result, error) {
				return o.watchCall(ctx, call, next)
			}
		},
		WatchStep: o.watchStep,
		WatchRejected: func(_ context.Context, at *engine.Scope, call *model.Call, problem string) {
			o.addStep(Step{Kind: ToolRejected, Agent: at.Path(), CallID: call.ID, Tool: call.Name, Error: problem})
		},
	}
}

// watchStep shows the log of a script or check, and the outcome of a script.
func (o *observer) watchStep(_ context.Context, at *engine.Scope, ended engine.EndedStep) {
	owner, rest, _ := strings.Cut(ended.ID, ":")
	s := Step{Kind: ScriptEnded, Agent: at.Path(), Script: ended.Kind, MS: ended.Milliseconds, Outcome: ended.Outcome, Value: ended.Result}
	isScript := true
	switch owner + ":" {
	case engine.ScriptOwner:
		s.Script = rest[strings.LastIndexByte(rest, ':')+1:]
	case engine.HookOwner:
		s.CallID = rest[:max(strings.LastIndexByte(rest, ':'), 0)]
	case engine.MiddlewareOwner:
	default:
		isScript = false
	}
	for _, line := range ended.Log {
		o.addStep(Step{Kind: Log, Agent: s.Agent, CallID: s.CallID, Script: s.Script, Line: &line})
	}
	if !isScript {
		return
	}
	if ended.Code != "" && exactjson.Decode(ended.Result, &s.Error) == nil {
		s.Value = nil
	}
	o.addStep(s)
}

// watchCall executes a call and shows it.
func (o *observer) watchCall(ctx context.Context, call *engine.Call, next engine.CallFunc) (engine.Result, error) {
	path := call.Scope.Path()
	o.addStep(Step{Kind: ToolStarted, Agent: path, CallID: call.ID, Tool: call.Tool.Name, Arguments: call.Arguments})
	begin := o.now()
	result, err := next(context.WithValue(ctx, pathKey{}, path), call)
	for _, line := range call.Logged() {
		o.addStep(Step{Kind: Log, Agent: path, CallID: call.ID, Tool: call.Tool.Name, Line: &line})
	}
	s := Step{Kind: ToolResult, Agent: path, CallID: call.ID, Tool: call.Tool.Name, MS: o.elapsedSince(begin), Result: result.Value, Error: result.Error}
	var stop *engine.Stop
	switch {
	case errors.As(err, &stop):
		s.Result = map[string]any{"stop": stop.Output}
	case err != nil:
		s.Error = err.Error()
	}
	o.addStep(s)
	return result, err
}

// recorder keeps the results of tools for mocks. It is the last feature, so it sees each call as the tool gets it: after a hook
// "before", and without the changes of a hook "after". A replay executes these hooks again.
func (o *observer) recorder() engine.Feature {
	return engine.Feature{
		Name: "the recorder of a local run",
		WrapCall: func(next engine.CallFunc) engine.CallFunc {
			return func(ctx context.Context, call *engine.Call) (engine.Result, error) {
				result, err := next(ctx, call)
				if err == nil {
					o.mu.Lock()
					o.results = append(o.results, toolResult{call.Tool, call.Scope.Agent(), call.Arguments, result})
					o.mu.Unlock()
				}
				return result, err
			}
		},
	}
}

// models are the models of a run.
type models struct {
	next     engine.Models
	observer *observer
}

// Resolve implements engine.Models.
func (m *models) Resolve(reference string, project *bundle.Project, settings model.Settings) (model.Model, error) {
	found, err := m.next.Resolve(reference, project, settings)
	if err != nil {
		return nil, err
	}
	return &observedModel{Model: found, reference: reference, observer: m.observer}, nil
}

// observedModel is a model whose requests are shown and kept.
type observedModel struct {
	model.Model
	reference string // in the repository
	observer  *observer
}

// modelAnswer is a request of an agent with the answer or the error of its model.
type modelAnswer struct {
	reference, agent, conversation string
	turn                           int
	answer                         *model.Answer
	failure                        *model.Error
}

// Generate implements model.Model.
func (m *observedModel) Generate(ctx context.Context, req *model.Request) (*model.Answer, error) {
	o := m.observer
	turn, conversation := model.ReadConversation(req.Contents)
	begin := o.now()
	answer, err := m.Model.Generate(ctx, req)
	s := Step{Kind: ModelAnswer, Agent: pathOf(ctx), Turn: turn, Model: m.Name(), MS: o.elapsedSince(begin)}
	kept := modelAnswer{reference: m.reference, agent: pathOf(ctx), conversation: conversation, turn: turn, answer: answer}
	if err != nil {
		failed, isModel := model.AsError(err)
		if s.Kind, s.Error = ModelFailure, err.Error(); isModel {
			s.Usage, kept.failure = failed.Usage, failed
		}
	} else {
		s.Usage, s.Text, s.FinishReason = answer.Usage, answer.Content.Text(), answer.FinishReason
		if answer.Content != nil {
			for _, c := range answer.Content.Calls() {
				s.Calls = append(s.Calls, engine.CallRecord{Tool: c.Name, Arguments: c.Args})
			}
		}
	}
	if price, known := o.prices.Prices[s.Model]; known && s.Usage != nil {
		s.Cost = &dispatchapi.Cost{Currency: price.Currency, Nanos: price.Nanos(runnerconfig.Tokens{
			Input: s.Usage.InputTokens, CachedInput: s.Usage.CachedInputTokens, Output: s.Usage.OutputTokens, Thinking: s.Usage.ThinkingTokens,
		})}
	}
	if err == nil || kept.failure != nil {
		o.mu.Lock()
		o.answers = append(o.answers, kept)
		o.mu.Unlock()
	}
	o.addStep(s)
	return answer, err
}
