// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/agentplatform/agentplatform/internal/jsonscan"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/internal/tracecontext"
)

// runCall replays the result of a call or executes the call, once per call ID over all attempts.
func runCall(ctx context.Context, call *Call) (Result, error) {
	s, tool := call.Scope, call.Tool
	tells := !tool.Idempotent && s.agent.ToolOptions.TellsInterrupted()
	return s.perform(ctx, action{
		started: toolStarted{Agent: s.path, CallID: call.ID, Tool: tool.Name, Type: tool.Type, Arguments: call.Arguments, Sends: tool.sends, Tells: tells},
		unsafe:  !tool.Idempotent && !tells, positioned: tool.sends, shown: s.savedAbove(tool),
		run: func(ctx context.Context, began startedTool) (map[string]any, error) {
			call.Position, call.Began = began.position, began.at
			return s.runTool(ctx, call)
		},
		finish: func(t *toolResult) {
			t.Context, t.Log = call.changes, s.journal.logs.takeLines(call.log)
			t.MoreLog = call.moreLog + len(call.log) - len(t.Log)
		},
	})
}

// runTool calls the tool and counts the call, also if the tool panics. Arguments and results must be JSON that the
// platform accepts elsewhere.
func (s *Scope) runTool(ctx context.Context, call *Call) (result map[string]any, err error) {
	outcome := metrics.OutcomeError
	defer func() { s.engine.cfg.Metrics.Called(outcome) }()
	if err = checkJSON("arguments", call.Arguments); err != nil {
		return nil, err
	}
	result, err = call.Tool.Run(ctx, call)
	if err == nil {
		err = checkJSON("result", result)
	}
	switch {
	case err == nil:
		outcome = metrics.OutcomeOK
	case ctx.Err() != nil:
		outcome = metrics.OutcomeCancelled
	}
	return result, err
}

// checkJSON returns an error for the model if other programs cannot read a value. A model's number
// can have any size, because exactjson keeps its digits.
func checkJSON(what string, value map[string]any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("the %s of the tool cannot be written as JSON", what)
	}
	var wrong *jsonscan.SyntaxError
	if errors.As(jsonscan.Check(text), &wrong) {
		return fmt.Errorf("the %s of the tool cannot be used as JSON: %s; numbers have at most %d characters and are below 1.8e308",
			what, wrong.Problem, jsonscan.MaxNumber)
	}
	return nil
}

// action is something that a run does to the outside world: a call of a tool, or an effect of a script.
type action struct {
	started toolStarted
	// unsafe is true if a repetition could have another effect, and an interruption fails the run.
	unsafe bool
	// read is true if only the result is recorded, because a repetition has no effect.
	read bool
	// positioned is true if the action needs the position of its entry, which later attempts must find again.
	positioned bool
	run        func(ctx context.Context, began startedTool) (map[string]any, error)
	// file is the file that run of a read saves; nil if it saves none.
	file *NewFile
	// shown limits the result as the model sees it. A result that is too large for the journal is saved as a file. It is 0 for an
	// effect, whose result the script sees as it is.
	shown int
	// finish adds to the result what happened beside it; optional.
	finish func(t *toolResult)
}

// perform replays the result of an action or does it. Its error ends the attempt. The action's own error is part of the
// result.
func (s *Scope) perform(ctx context.Context, a action) (Result, error) {
	known, recorded, err := s.journal.recordedResult(a.started)
	if err != nil {
		return Result{}, err
	} else if recorded {
		return s.conclude(known)
	}
	if s.journal.isInterrupted(a.started.CallID) {
		return s.tellInterrupted(ctx, a)
	}
	if err := s.mayGoOn(ctx); err != nil {
		return Result{}, err
	}
	if s.in.Gate != nil {
		if err := s.in.Gate(ctx); err != nil {
			return Result{}, fmt.Errorf("waiting for the claim to be confirmed: %w: %w", ErrStopped, err)
		}
	}
	limited, cancel := s.limitTime(ctx)
	defer cancel()
	if late := timedOut(limited); late != nil {
		return Result{}, late // Not begun: it had no effect.
	}
	begin := s.engine.cfg.Now()
	began, err := s.announce(ctx, a)
	if err != nil {
		return Result{}, err
	}
	if !began.at.IsZero() {
		begin = began.at
	}
	requests, reached := withContact(limited)
	position := runtrace.RequestPosition(a.started.Type, a.started.CallID)
	requests = tracecontext.WithTraceparent(requests, tracecontext.TraceparentOf(s.in.Traceparent, s.in.RunID, position))
	value, err := a.run(requests, began)
	if late := timedOut(limited); err != nil && late != nil {
		return Result{}, late
	}
	if err != nil && ctx.Err() != nil {
		return Result{}, ctx.Err() // Cancelled: its effect is unknown.
	}
	var own *failure
	switch {
	case errors.Is(err, errInterrupted):
		return s.tellInterrupted(ctx, a)
	case errors.Is(err, errUnsent):
		return Result{}, fmt.Errorf("%w: %w", ErrStopped, err)
	case errors.As(err, &own):
		return Result{}, own
	case err != nil && leavesOpen(err):
		return Result{}, err // of an effect inside
	}
	return s.recordOutcome(ctx, a, toolResult{Result: value, period: s.engine.periodSince(begin), contact: reached.current()}, err)
}

// announce records that an action begins. The entry is durable before an action that must not happen twice.
func (s *Scope) announce(ctx context.Context, a action) (began startedTool, err error) {
	if a.read {
		return startedTool{}, s.journal.flushOld(ctx)
	}
	a.started.At = s.engine.cfg.Now().UTC().Truncate(time.Millisecond)
	if began, err = s.journal.recordStart(a.started, a.unsafe); err != nil {
		return began, err
	}
	isEffect := a.started.Digest != "" // of a script, whose next attempt must find its begin and its effects so far
	if a.unsafe || a.started.Tells || a.positioned || isEffect {
		return began, s.journal.flushPending(ctx)
	}
	return began, s.journal.flushOld(ctx)
}

// recordOutcome records the result of an action, or its own error. The result of an unsafe action is appended after maxResultAge, or
// before with the begin of the next action, and in any case before the end of the run.
func (s *Scope) recordOutcome(ctx context.Context, a action, out toolResult, failed error) (Result, error) {
	out.CallID, out.Tool, out.Digest = a.started.CallID, a.started.Tool, a.started.Digest
	if a.read {
		out.Agent = a.started.Agent
	} else {
		out.At = time.Time{} // of the tool_started
	}
	if a.finish != nil {
		a.finish(&out)
	}
	var coded *ToolError
	if errors.As(failed, &coded) {
		out.Code = coded.Code
	}
	if failed != nil && !errors.As(failed, &out.Stop) {
		out.Result, out.Error = nil, failed.Error()
	}
	file := s.largeResult(a, out)
	if file != nil { // in memory until it is stored, like the file of an effect
		if err := s.engine.saves.Acquire(context.WithoutCancel(ctx), 1); err != nil {
			return Result{}, err
		}
		defer s.engine.saves.Release(1)
	}
	recorded, isSaved, err := s.record(a, file, out)
	if err != nil {
		return Result{}, err
	}
	switch {
	case isSaved:
		if err := s.journal.flushPending(context.WithoutCancel(ctx)); err != nil {
			return Result{}, err
		}
		// If the platform rejected the file, the result is another one now.
		if recorded, _, err = s.journal.recordedResult(a.started); err != nil {
			return Result{}, err
		}
	case a.unsafe || a.started.Tells:
		s.journal.flushSoon()
	}
	return s.conclude(recorded)
}

// record records the result of an action, with the file that the action saves, or that has its large result.
func (s *Scope) record(a action, large *NewFile, out toolResult) (recorded toolResult, isSaved bool, err error) {
	switch {
	case a.file != nil && out.Error == "" && out.Stop == nil:
		recorded, err = s.journal.recordFile(s.path, a.file, out)
		return recorded, true, err
	case large != nil:
		recorded, err = s.journal.recordLarge(s.path, large, out, a)
		return recorded, true, err
	}
	recorded, err = s.journal.recordResult(out, a.unsafe)
	return recorded, false, err
}

// conclude applies a recorded result to the run.
func (s *Scope) conclude(t toolResult) (Result, error) {
	if err := s.values.applyChanges(t.Context); err != nil {
		return Result{}, err
	}
	if t.Code == string(runerror.ScriptLimit) && s.scriptLimits.Add(1) >= maxScriptLimits {
		return Result{}, &failure{code: runerror.ScriptLimit, message: fmt.Sprintf(
			"scripts exceeded their limits %d times in this run, at last tool %q: %s", maxScriptLimits, t.Tool, t.Error)}
	}
	if t.Stop != nil {
		return Result{}, t.Stop
	}
	return Result{Value: t.Result, Error: t.Error, Code: t.Code}, nil
}

const (
	maxScriptLimits = 3
)
