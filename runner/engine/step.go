// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// stepStarted is the outcome of a script that has begun.
const stepStarted = "started"

// Step is the result of a script or check that runs once over all attempts.
type Step struct {
	// Outcome is a word for people, such as "ended" or "blocked".
	Outcome string
	// Code is the error code of a script that failed.
	Code string
	// Result is JSON, or nil.
	Result json.RawMessage
	// Context are the changed values of the run's context; nil for a deleted one.
	Context map[string]any
	// Log are the lines that the step adds to the run's log.
	Log []LogLine
	// MoreLog is the number of lines that did not fit into the log.
	MoreLog int
}

// Step runs a script or check once over all attempts. A later attempt gets the recorded step. id is unique in the run
// and begins with the kind of its owner, such as "middleware:". The error of run ends the attempt.
func (s *Scope) Step(ctx context.Context, id, kind string, run func(ctx context.Context) (Step, error)) (Step, error) {
	return s.runStep(ctx, id, kind, func(ctx context.Context) (stepEntry, error) {
		begin := s.engine.cfg.Now()
		step, err := run(ctx)
		took := s.engine.periodSince(begin)
		log, more := s.stepLog(step)
		return stepEntry{
			At: took.At, Milliseconds: took.Milliseconds, Outcome: step.Outcome, Code: step.Code, Result: step.Result, Context: step.Context,
			Log: log, MoreLog: more,
		}, err
	})
}

// stepLog returns the lines of a step that fit into the run's log, and the number of the other lines.
func (s *Scope) stepLog(step Step) (log []LogLine, more int) {
	log = s.journal.logs.takeLines(step.Log)
	return log, step.MoreLog + len(step.Log) - len(log)
}

// ScriptRun is an execution of a script that is no tool.
type ScriptRun struct {
	// Began is the time when the script began in its first attempt. Facts are the values that it had then.
	Began time.Time
	Facts map[string]any
	// Effects are the effects of the script.
	Effects *Effects
}

// RunScript runs a script that is no tool, once over all attempts, like Step. The ID of the step is also the owner of the
// script's effects. facts are values that the script sees and that another attempt could not compute again. They are
// recorded before the script begins.
func (s *Scope) RunScript(
	ctx context.Context, owner, kind string, facts map[string]any, run func(ctx context.Context, script *ScriptRun) (Step, error),
) (Step, error) {
	return s.runStep(ctx, owner, kind, func(ctx context.Context) (stepEntry, error) {
		began, err := s.beginScript(ctx, owner, kind, facts)
		if err != nil {
			return stepEntry{}, err
		}
		begin := s.engine.cfg.Now()
		step, err := run(ctx, &ScriptRun{Began: began.At, Facts: began.Facts, Effects: &Effects{scope: s, owner: owner, began: began.position}})
		log, more := s.stepLog(step)
		return stepEntry{
			At: began.At, Milliseconds: s.engine.periodSince(begin).Milliseconds, Outcome: step.Outcome, Code: step.Code, Result: step.Result,
			Context: step.Context, Log: log, MoreLog: more,
		}, err
	})
}

// beginScript records once that a script has begun, and returns what a later attempt will read.
func (s *Scope) beginScript(ctx context.Context, owner, kind string, facts map[string]any) (stepEntry, error) {
	if began, ok := s.journal.recordedStep(owner); ok {
		return began, nil
	}
	began, err := s.journal.recordStep(stepEntry{
		ID: owner, Agent: s.path, Kind: kind, At: s.engine.cfg.Now().UTC().Truncate(time.Millisecond), Outcome: stepStarted, Facts: facts,
	})
	if err != nil {
		return stepEntry{}, err
	}
	return began, s.journal.flushOld(ctx)
}

// runStep returns a recorded step that has ended, or runs it and records it.
func (s *Scope) runStep(ctx context.Context, id, kind string, run func(ctx context.Context) (stepEntry, error)) (Step, error) {
	if known, ok := s.journal.recordedStep(id); ok && known.Outcome != stepStarted {
		return s.concludeStep(known)
	}
	if err := s.mayGoOn(ctx); err != nil {
		return Step{}, err
	}
	limited, cancel := s.limitTime(ctx)
	defer cancel()
	if late := timedOut(limited); late != nil {
		return Step{}, late
	}
	entry, err := run(limited)
	if late := timedOut(limited); late != nil && err != nil {
		return Step{}, late
	}
	if err != nil {
		return Step{}, err
	}
	entry.ID, entry.Agent, entry.Kind = id, s.path, kind
	recorded, err := s.journal.recordStep(entry)
	if err != nil {
		return Step{}, err
	}
	step, err := s.concludeStep(recorded)
	for _, f := range s.engine.features {
		if f.WatchStep != nil {
			f.WatchStep(ctx, s, EndedStep{Step: step, ID: id, Kind: kind, Milliseconds: recorded.Milliseconds})
		}
	}
	return step, err
}

// concludeStep applies a recorded step to the run.
func (s *Scope) concludeStep(recorded stepEntry) (Step, error) {
	err := s.values.applyChanges(recorded.Context)
	return Step{Outcome: recorded.Outcome, Code: recorded.Code, Result: recorded.Result, Context: recorded.Context, Log: recorded.Log}, err
}

// HasStep reports whether a step is recorded.
func (s *Scope) HasStep(id string) bool {
	_, ok := s.journal.recordedStep(id)
	return ok
}

// recordedStep returns a recorded step.
func (r *recorder) recordedStep(id string) (stepEntry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.steps[id]
	return s, ok
}

// recordStep records a step and returns the value that a later attempt will read.
func (r *recorder) recordStep(s stepEntry) (same stepEntry, err error) {
	data, err := json.Marshal(s)
	if err != nil {
		return s, fmt.Errorf("encoding a step: %w", err)
	}
	if len(data) > maxStep {
		return s, &failure{code: runerror.StepTooLarge, message: fmt.Sprintf(
			"the step %q has %d bytes with its result, its changes of the context and its log, the limit is %d", s.Kind, len(data), maxStep)}
	}
	if err := exactjson.Decode(data, &same); err != nil {
		return s, fmt.Errorf("decoding a step: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	same.position = r.next
	r.steps[s.ID] = same
	return same, r.addEntry(dispatchapi.JournalEntry{Kind: dispatchapi.JournalStep, Data: data})
}

// maxStep limits the data of a step.
const maxStep = dispatchapi.MaxModelAnswer
