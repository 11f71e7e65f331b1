// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentplatform/agentplatform/internal/runerror"
)

// errInterrupted ends a script whose effect was interrupted in an earlier attempt, if the model learns of it.
var errInterrupted = errors.New("an effect of the script was interrupted")

// outcomeUnknown is the error in the result of a call that may have taken effect.
const outcomeUnknown = "outcome_unknown"

// isInterrupted reports whether an action began in an earlier attempt and has no result, and is not to be repeated.
func (r *recorder) isInterrupted(callID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.started[callID].tells
}

// tellInterrupted records that the outcome of a call is unknown, as its result for the model. An effect of a script ends the
// script, so that the call has this result.
func (s *Scope) tellInterrupted(ctx context.Context, a action) (Result, error) {
	if a.started.Digest != "" {
		return Result{}, errInterrupted
	}
	finish := a.finish
	a.finish = func(t *toolResult) {
		if finish != nil {
			finish(t)
		}
		t.Code = string(runerror.ToolInterrupted)
		t.Log = append(t.Log, s.journal.logs.takeLines([]LogLine{{Level: "warn", Text: fmt.Sprintf("the call of tool %q was interrupted; its outcome is unknown", t.Tool)}})...)
	}
	return s.recordOutcome(ctx, a, toolResult{period: s.engine.periodSince(s.engine.cfg.Now()), Result: map[string]any{
		"error": outcomeUnknown,
		"message": "The call was interrupted before its result was known. It may have taken effect. " +
			"Look whether it did before you call the tool again.",
	}}, nil)
}
