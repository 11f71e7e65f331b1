// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// wrapCall runs the hooks of an agent around its calls of tools.
func (f *feature) wrapCall(next engine.CallFunc) engine.CallFunc {
	return func(ctx context.Context, call *engine.Call) (engine.Result, error) {
		p := call.Scope.Project()
		stages := p.Hooks(p.BaseName(call.Scope.Agent().Name))
		if stages == nil {
			return next(ctx, call)
		}
		h := &hooks{feature: f, call: call, stages: stages}
		aborted, result, err := h.before(ctx)
		if aborted || err != nil {
			return result, err
		}
		if result, err = next(ctx, call); err != nil {
			return result, err
		}
		return h.after(ctx, result)
	}
}

// hooks are the hooks of one call.
type hooks struct {
	*feature
	call   *engine.Call
	stages *bundle.ScriptStages
}

// before changes the arguments of the call. With aborted the tool is not called.
func (h *hooks) before(ctx context.Context) (aborted bool, result engine.Result, err error) {
	if !h.stages.Before {
		return false, engine.Result{}, nil
	}
	params := orEmpty(h.call.Arguments)
	step, err := h.run(ctx, h.around(1, bundle.StageBefore, map[string]any{"params": params}, func(result json.RawMessage) error {
		changed, err := objectOf(result)
		if err != nil || changed == nil || h.call.Tool.Schema == nil {
			return err
		}
		return engine.CheckArguments(h.call.Tool.Schema, changed)
	}))
	if err != nil {
		return false, engine.Result{}, err
	}
	if step.Outcome == stepAborted {
		value, err := resultOf(step.Result)
		return true, engine.Result{Value: value}, err
	}
	changed, err := objectOf(step.Result)
	if changed != nil {
		h.call.Arguments = changed
	}
	return false, engine.Result{}, err
}

// after changes the result of the call.
func (h *hooks) after(ctx context.Context, result engine.Result) (engine.Result, error) {
	if !h.stages.After {
		return result, nil
	}
	args := map[string]any{"params": orEmpty(h.call.Arguments), "result": result.Response()}
	step, err := h.run(ctx, h.around(2, bundle.StageAfter, args, func(json.RawMessage) error { return nil }))
	if err != nil || string(step.Result) == "null" {
		return result, err
	}
	value, err := resultOf(step.Result)
	return engine.Result{Value: value}, err
}

// around returns a function of the hooks. number counts the functions of the call.
func (h *hooks) around(number int, function string, args map[string]any, check func(json.RawMessage) error) around {
	args["tool"] = cmp.Or(h.call.Tool.Reference, h.call.Tool.Name)
	return around{
		scope: h.call.Scope, owner: bundle.OwnerHook, step: fmt.Sprintf("%s%s:%d", engine.HookOwner, h.call.ID, number),
		file: h.stages.File, function: function, args: args, facts: map[string]any{"attempt": h.call.Scope.Attempt()}, check: check,
	}
}

// objectOf returns a map that a script returned, nil for None.
func objectOf(value json.RawMessage) (object map[string]any, err error) {
	if err := exactjson.Decode(value, &object); err != nil {
		return nil, errors.New("it must return a map with the parameters of the tool, or None")
	}
	return object, nil
}
