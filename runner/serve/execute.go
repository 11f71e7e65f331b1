// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/input"
)

// Codes of runs that fail before their agent begins.
const (
	codeBundle     = "bundle_unavailable"
	codeInput      = "input_invalid"
	codeTooComplex = dispatchapi.CodeInputTooComplex
)

const (
	// maxInput is the most bytes of an input.
	maxInput = 32 << 20
	// prepareTime bounds fetching what a run needs.
	prepareTime = 2 * time.Minute
	// elsewhereDelay is how long a run that this runner cannot execute is left alone
	// when it is given back: another runner may, and without one it waits like that.
	elsewhereDelay = 5 * time.Second
)

// errPrepare is the cause of runs whose bundle, input or journal does not come.
var errPrepare = errors.New("what the run needs could not be fetched in time")

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
		return s.release(l, c, log, releaseDelay(out.Cause))
	}
	err := s.opts.Dispatch.Complete(l.reporting, c.run.ID, dispatchapi.CompleteRequest{
		Token: c.run.Token, TestName: c.testName(), Status: string(out.Status), ErrorCode: out.ErrorCode, Error: out.Error,
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
	log.Log(l.reporting, endLevel(out), "run ended", "status", out.Status, "code", out.ErrorCode, "cause", out.Cause)
	return string(out.Status)
}

// endLevel is that of the line about a run that ended. Runs that completed are counted by metrics: a line for
// each would push warnings out of what a node keeps of a container's log.
func endLevel(out engine.Outcome) slog.Level {
	if out.Status == engine.Completed && out.Cause == nil {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

const notStored = "what the run did could not be stored"

// fallback reports a run whose journal or outcome dispatch does not accept, or
// that breaks the runner, so that it does not come back for ever.
func (s *Server) fallback(l life, c *claim, log *slog.Logger, cause error, message string) (status string) {
	log.Error(message, "error", cause)
	err := s.opts.Dispatch.Complete(l.reporting, c.run.ID, dispatchapi.CompleteRequest{
		Token: c.run.Token, TestName: c.testName(), Status: dispatchapi.StatusFailed, ErrorCode: engine.CodeInternal,
		Error: message,
	})
	if err != nil {
		log.Error("reporting a run's end", "error", err)
		return metrics.RunUnreported
	}
	return dispatchapi.StatusFailed
}

// releaseDelay is how long a run is handed to nobody once it is given back: the same
// runner could do nothing else with it.
func releaseDelay(cause error) time.Duration {
	if errors.Is(cause, errUnopened) || errors.Is(cause, errPrepare) || errors.Is(cause, engine.ErrLaterJournal) {
		return elsewhereDelay
	}
	return 0
}

// release gives a run back, so that another runner resumes it soon; without
// that, it is resumed when the lease ends.
func (s *Server) release(l life, c *claim, log *slog.Logger, delay time.Duration) (status string) {
	err := s.opts.Dispatch.Release(l.reporting, c.run.ID, dispatchapi.ReleaseRequest{Token: c.run.Token, DelaySeconds: int(delay.Seconds())})
	switch {
	case errors.Is(err, dispatchapi.ErrFenced):
		return metrics.RunLost
	case err != nil:
		log.Warn("giving a run back", "error", err)
		return metrics.RunUnreported
	}
	return metrics.RunReleased
}

// attempt waits for a place, prepares the run and hands it to the engine.
func (s *Server) attempt(l life, c *claim) engine.Outcome {
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-l.stop:
		return engine.Outcome{Status: engine.Unfinished, Cause: engine.ErrStopped}
	case <-c.ctx.Done():
		return engine.Outcome{Status: engine.Unfinished, Cause: context.Cause(c.ctx)}
	}
	files, release, err := s.attach(c, l.stop)
	if err != nil {
		return unprepared(err)
	}
	defer release()
	in, err := s.prepare(c, files)
	if err != nil {
		return unprepared(err)
	}
	in.Journal = &journal{dispatch: s.opts.Dispatch, claim: c, life: l}
	in.Actions, in.Outbound = c.run.Actions, &outbound{dispatch: s.opts.Dispatch, claim: c}
	in.Gate, in.Stop, in.Spent = c.gate, l.stop, c.age()
	return s.opts.Engine.Execute(c.ctx, in)
}

// prepare fetches and reads what a run needs; a fault where it cannot be had.
func (s *Server) prepare(c *claim, files dispatchapi.Files) (engine.Input, error) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, prepareTime, errPrepare)
	defer cancel()
	project, err := s.bundles.get(ctx, c.run.BundleDigest)
	if err != nil {
		return engine.Input{}, faultOf(ctx, codeBundle, "the deployment's bundle could not be fetched", err)
	}
	prior := c.run.Journal
	if c.run.JournalElsewhere {
		if prior, err = s.opts.Dispatch.ReadJournal(ctx, c.run.ID, c.run.Token); err != nil {
			return engine.Input{}, faultOf(ctx, engine.CodeInternal, "the run's journal could not be read", err)
		}
	}
	raw := c.run.Input
	if c.run.InputElsewhere {
		if raw, err = s.opts.Dispatch.Input(ctx, c.run.ID, maxInput); err != nil {
			return engine.Input{}, faultOf(ctx, codeInput, "the run's input could not be read", err)
		}
	}
	if c.testName() == "" {
		c.executedBy(engine.Choose(project, c.run.AgentName, raw))
	}
	message, values, err := input.Read(c.run.ContentType, raw, c.run.Files, files)
	switch {
	case errors.Is(err, input.ErrTooComplex):
		return engine.Input{}, &fault{codeTooComplex, err.Error(), err}
	case err != nil:
		return engine.Input{}, &fault{codeInput, err.Error(), err}
	}
	attached, err := s.fetchFiles(ctx, c, files.Files)
	if err != nil {
		return engine.Input{}, err
	}
	input.About(values, c.run.ID.String(), c.run.AgentName, c.run.Headers)
	return engine.Input{
		RunID: c.run.ID.String(), AgentName: c.run.AgentName, TestName: c.testName(), Project: project,
		Message: message, Files: attached, Omitted: len(files.Issues), Context: values, Prior: prior,
	}, nil
}

// fault fails a run before its agent began.
type fault struct {
	code, message string
	cause         error
}

func (f *fault) Error() string { return f.message + ": " + f.cause.Error() }
func (f *fault) Unwrap() error { return f.cause }

// faultOf is a fault where dispatch says that there is nothing to be had. Otherwise
// another attempt may do better, and err says why this one did not.
func faultOf(ctx context.Context, code, message string, err error) error {
	switch {
	case errors.Is(err, dispatchapi.ErrRejected):
		return &fault{code, message, err}
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", message, context.Cause(ctx))
	}
	return fmt.Errorf("%s: %w", message, err)
}

// unprepared is what becomes of a run that could not be prepared.
func unprepared(err error) engine.Outcome {
	var f *fault
	if errors.As(err, &f) {
		return engine.Outcome{Status: engine.Failed, ErrorCode: f.code, Error: f.message, Cause: err}
	}
	return engine.Outcome{Status: engine.Unfinished, Cause: err}
}

// outbound sends under a run's claim.
type outbound struct {
	dispatch Dispatch
	claim    *claim
}

// Send implements engine.Outbound.
func (o *outbound) Send(ctx context.Context, req dispatchapi.SendRequest) (dispatchapi.SendResponse, error) {
	req.Token = o.claim.run.Token
	return o.dispatch.Send(ctx, o.claim.run.ID, req)
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
