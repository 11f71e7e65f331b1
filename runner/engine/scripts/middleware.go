// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/script"
)

// Outcomes of the steps of middleware and hooks.
const (
	stepEnded   = "ended"
	stepStopped = "stopped"
	stepAborted = "aborted"
	stepFailed  = "failed"
)

// around is a function that runs before or after an agent or a call.
type around struct {
	scope *engine.Scope
	owner bundle.ScriptOwner
	// step is the ID of the step, number the part of it that counts the functions.
	step, file, function string
	args                 map[string]any
	facts                map[string]any
	// hidesContext is true if the function does not take the context.
	hidesContext bool
	// check returns what is wrong with the result of the function.
	check func(result json.RawMessage) error
}

// run runs the function once over all attempts and returns its step. Its error is a failure of the function, or its stop.
func (f *feature) run(ctx context.Context, a around) (engine.Step, error) {
	kind := string(a.owner)
	if a.owner == bundle.OwnerTool { // a step
		kind = "script"
	}
	step, err := a.scope.RunScript(ctx, a.step, kind+"."+a.function, a.facts, func(ctx context.Context, s *engine.ScriptRun) (engine.Step, error) {
		out, err := f.invoke(ctx, invocation{
			scope: a.scope, owner: a.owner, file: a.file, function: a.function, id: a.step, args: a.args, facts: s.Facts, takesContext: !a.hidesContext,
			began: s.Began, effects: s.Effects,
		})
		if err != nil {
			return engine.Step{}, err
		}
		return a.stepOf(out)
	})
	if err != nil {
		return step, err
	}
	switch step.Outcome {
	case stepFailed:
		var message string
		if err := exactjson.Decode(step.Result, &message); err != nil {
			return step, fmt.Errorf("reading a step: %w", err)
		}
		return step, engine.NewFailure(a.errorCode(step), fmt.Sprintf("%s of %s failed: %s", a.function, a.file, message), nil)
	case stepStopped:
		stop := new(engine.Stop)
		if err := exactjson.Decode(step.Result, stop); err != nil {
			return step, fmt.Errorf("reading a step: %w", err)
		}
		return step, stop
	}
	return step, nil
}

// errorCode returns the error code of a run whose function failed. Middleware and hooks have one code each, steps the code of the
// script. Steps that earlier releases recorded have no code.
func (a around) errorCode(failed engine.Step) runerror.Code {
	switch a.owner {
	case bundle.OwnerHook:
		return runerror.HookFailed
	case bundle.OwnerMiddleware:
		return runerror.MiddlewareFailed
	}
	return cmp.Or(runerror.Code(failed.Code), runerror.ScriptError)
}

// stepOf returns the step of a function that ran. A failed function changes nothing in the context.
func (a around) stepOf(out outcome) (engine.Step, error) {
	if out.failed == nil && out.stop == nil && out.abort == nil {
		if err := a.check(out.value); err != nil {
			out.failed = &script.Error{Code: runerror.ScriptError, Message: err.Error()}
			out.log = append(out.log, engine.LogLine{Level: "error", Text: a.function + ": " + err.Error(), Position: a.file})
		}
	}
	step := engine.Step{Log: out.log, MoreLog: out.moreLog, Context: out.changes}
	var result any
	switch {
	case out.failed != nil:
		step.Outcome, step.Code, step.Context, result = stepFailed, string(out.failed.Code), nil, out.failed.Message
	case out.stop != nil:
		step.Outcome, result = stepStopped, out.stop
	case out.abort != nil:
		step.Outcome, result = stepAborted, out.abort
	default:
		step.Outcome, result = stepEnded, out.value
	}
	var err error
	step.Result, err = json.Marshal(result)
	return step, err
}

// wrapAgent runs the middleware of an agent around it.
func (f *feature) wrapAgent(at *engine.Scope, next engine.AgentFunc) engine.AgentFunc {
	p := at.Project()
	stages := p.Middleware(p.BaseName(at.Agent().Name))
	if stages == nil {
		return next
	}
	m := &middleware{feature: f, scope: at, stages: stages}
	return func(ctx context.Context, in engine.Message) (engine.Message, error) {
		in, err := m.before(ctx, in)
		if err != nil {
			return engine.Message{}, err
		}
		out, err := next(ctx, in)
		if err != nil {
			return engine.Message{}, err
		}
		return m.after(ctx, out)
	}
}

// middleware is the middleware of an agent at one position of the tree.
type middleware struct {
	*feature
	scope  *engine.Scope
	stages *bundle.ScriptStages
}

func (m *middleware) before(ctx context.Context, in engine.Message) (engine.Message, error) {
	if !m.stages.Before {
		return in, nil
	}
	return m.convert(ctx, 1, bundle.StageBefore, "content", in, map[string]any{"attempt": m.scope.Attempt()})
}

func (m *middleware) after(ctx context.Context, out engine.Message) (engine.Message, error) {
	if !m.stages.After {
		return out, nil
	}
	return m.convert(ctx, 2, bundle.StageAfter, "response", out, map[string]any{
		"attempt": m.scope.Attempt(), "token_usage": m.scope.TokenUsage(), "duration_ms": m.scope.Duration().Milliseconds(),
	})
}

// convert passes a message to a function and returns its result.
func (m *middleware) convert(ctx context.Context, number int, function, parameter string, in engine.Message, facts map[string]any) (engine.Message, error) {
	files := m.scope.Files()
	step, err := m.run(ctx, around{
		scope: m.scope, owner: bundle.OwnerMiddleware, step: fmt.Sprintf("%s%s:%d", engine.MiddlewareOwner, m.scope.Path(), number),
		file: m.stages.File, function: function, args: map[string]any{parameter: contentOf(in.Content, files)}, facts: facts,
		check: func(result json.RawMessage) error {
			_, err := parseContent(result, in.Content.Role, files)
			return err
		},
	})
	if err != nil {
		return engine.Message{}, err
	}
	content, err := parseContent(step.Result, in.Content.Role, files)
	if err != nil {
		return engine.Message{}, fmt.Errorf("reading a step: %w", err)
	}
	return engine.Message{Author: in.Author, Content: content}, nil
}
