// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// Codes of runs that fail before their agent begins.
const (
	codeBundle     = "bundle_unavailable"
	codeInput      = "input_invalid"
	codeTooComplex = dispatchapi.CodeInputTooComplex
)

// maxInput is the most bytes of an input.
const maxInput = 32 << 20

// execute runs a claimed run to its end or until it is given back, and says how it
// left the runner.
func (s *Server) execute(l life, c *claim) (status string) {
	log := slog.With("run", c.run.ID, "agent", c.run.AgentName, "attempt", c.run.Attempt)
	defer func() {
		if p := recover(); p != nil {
			log.Error("executing a run panicked", "panic", p, "stack", string(debug.Stack()))
			status = s.fallback(l, c, log, fmt.Errorf("panic: %v", p), "executing the run failed inside the runner")
		}
	}()
	out := s.attempt(l, c)
	if c.lost() || errors.Is(out.Cause, dispatchapi.ErrFenced) {
		log.Info("run is another's", "cause", out.Cause)
		return metrics.RunLost
	}
	if out.Status == engine.Unfinished && errors.Is(out.Cause, dispatchapi.ErrRejected) {
		return s.fallback(l, c, log, out.Cause, notStored)
	}
	if out.Status == engine.Unfinished {
		log.Info("giving run back", "cause", out.Cause)
		return s.release(l, c, log)
	}
	err := s.opts.Dispatch.Complete(l.reporting, c.run.ID, dispatchapi.CompleteRequest{
		Token: c.run.Token, Status: string(out.Status), ErrorCode: out.ErrorCode, Error: out.Error,
		Output: out.Output, Usage: out.Usage, Journal: out.Trailing,
	})
	switch {
	case errors.Is(err, dispatchapi.ErrFenced):
		log.Info("run is another's")
		return metrics.RunLost
	case errors.Is(err, dispatchapi.ErrRejected):
		return s.fallback(l, c, log, err, notStored)
	case err != nil:
		log.Error("reporting a run's end", "error", err)
		return metrics.RunUnreported
	}
	log.Info("run ended", "status", out.Status, "code", out.ErrorCode, "cause", out.Cause)
	return string(out.Status)
}

const notStored = "what the run did could not be stored"

// fallback reports a run whose journal or outcome dispatch does not accept, or
// that breaks the runner, so that it does not come back for ever.
func (s *Server) fallback(l life, c *claim, log *slog.Logger, cause error, message string) (status string) {
	log.Error(message, "error", cause)
	err := s.opts.Dispatch.Complete(l.reporting, c.run.ID, dispatchapi.CompleteRequest{
		Token: c.run.Token, Status: dispatchapi.StatusFailed, ErrorCode: engine.CodeInternal,
		Error: message,
	})
	if err != nil {
		log.Error("reporting a run's end", "error", err)
		return metrics.RunUnreported
	}
	return dispatchapi.StatusFailed
}

// release gives a run back, so that another runner resumes it soon; without
// that, it is resumed when the lease ends.
func (s *Server) release(l life, c *claim, log *slog.Logger) (status string) {
	err := s.opts.Dispatch.Release(l.reporting, c.run.ID, dispatchapi.ReleaseRequest{Token: c.run.Token})
	switch {
	case errors.Is(err, dispatchapi.ErrFenced):
		return metrics.RunLost
	case err != nil:
		log.Warn("giving a run back", "error", err)
		return metrics.RunUnreported
	}
	return metrics.RunReleased
}

// attempt prepares the run and hands it to the engine.
func (s *Server) attempt(l life, c *claim) engine.Outcome {
	project, err := s.bundles.get(c.ctx, c.run.BundleDigest)
	if err != nil {
		return failed(c, codeBundle, "the deployment's bundle could not be opened by this runner", err)
	}
	raw := c.run.Input
	if c.run.InputElsewhere {
		if raw, err = s.opts.Dispatch.Input(c.ctx, c.run.ID, maxInput); err != nil {
			return failed(c, codeInput, "the run's input could not be read", err)
		}
	}
	message, values, err := readInput(c.run.ContentType, raw)
	switch {
	case errors.Is(err, errTooComplex):
		return failed(c, codeTooComplex, err.Error(), err)
	case err != nil:
		return failed(c, codeInput, err.Error(), err)
	}
	values["run_id"], values["agent_name"] = c.run.ID.String(), c.run.AgentName
	return s.opts.Engine.Execute(c.ctx, engine.Input{
		RunID: c.run.ID.String(), AgentName: c.run.AgentName, Project: project,
		Message: message, Context: values, Prior: c.run.Journal,
		Journal: &journal{dispatch: s.opts.Dispatch, claim: c, life: l}, Gate: c.gate, Stop: l.stop,
	})
}

// failed is a failure before the agent began; when the claim ended meanwhile,
// or dispatch is away, the run is unfinished instead.
func failed(c *claim, code, message string, err error) engine.Outcome {
	permanent := errors.Is(err, dispatchapi.ErrRejected) || errors.Is(err, bundle.ErrDigest) || errors.Is(err, bundle.ErrInvalid) ||
		errors.Is(err, bundle.ErrTooLarge) || errors.As(err, new(bundle.Problems)) || errors.Is(err, errInput) || errors.Is(err, errTooComplex)
	if c.ctx.Err() != nil || !permanent {
		return engine.Outcome{Status: engine.Unfinished, Cause: err}
	}
	return engine.Outcome{Status: engine.Failed, ErrorCode: code, Error: message, Cause: err}
}

// journal appends to a run's journal. Once runs are cut off it still takes what
// was done, until reporting ends.
type journal struct {
	dispatch Dispatch
	claim    *claim
	life     life
}

// Append implements engine.Journal.
func (j *journal) Append(_ context.Context, entries []dispatchapi.JournalEntry) error {
	ctx, cancel := context.WithCancelCause(j.life.reporting)
	defer cancel(nil)
	defer context.AfterFunc(j.claim.ctx, func() {
		if j.claim.lost() {
			cancel(errLost)
		}
	})()
	return j.dispatch.Journal(ctx, j.claim.run.ID, dispatchapi.JournalRequest{Token: j.claim.run.Token, Entries: entries})
}
