// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/input"
)

const (
	// maxInput limits an input, in bytes.
	maxInput = 32 << 20
	// prepareTime limits the time to fetch the data of a run.
	prepareTime = 2 * time.Minute
	// elsewhereDelay is the delay after the release of a run that this runner cannot execute.
	// Another runner may claim it; without one it is retried at this interval.
	elsewhereDelay = 5 * time.Second
)

// errPrepare is the cause for runs whose bundle, input or journal does not arrive.
var errPrepare = errors.New("the data of the run could not be fetched in time")

// execute runs a claimed run until it ends or is released, and returns the outcome for the metrics.
func (s *Server) execute(l life, c *claim) (status string) {
	log := slog.With("run", c.run.ID, "agent", c.run.AgentName, "attempt", c.run.Attempt)
	defer func() {
		if p := recover(); p != nil {
			log.Error("executing a run panicked", "panic", p, "stack", string(debug.Stack()))
			status = s.fallback(l, c, log, fmt.Errorf("panic: %v", p), "executing the run failed inside the runner")
		}
	}()
	out := s.attempt(l, c)
	if c.isLost() || errors.Is(out.Cause, dispatchapi.ErrFenced) {
		log.Info("another runner has the run", "cause", out.Cause)
		return metrics.RunLost
	}
	if out.Status == engine.Unfinished && errors.Is(out.Cause, dispatchapi.ErrRejected) {
		return s.fallback(l, c, log, out.Cause, rejection(out.Cause))
	}
	if out.Status == engine.Unfinished {
		log.Info("releasing run", "cause", out.Cause)
		return s.release(l, c, log, releaseDelay(out.Cause))
	}
	err := s.opts.Dispatch.Complete(l.reporting, c.run.ID, dispatchapi.CompleteRequest{
		Token: c.run.Token, TestName: c.testName(), Status: string(out.Status), ErrorCode: out.ErrorCode, Error: out.Error,
		Output: out.Output, FinishReason: string(out.FinishReason), Usage: out.Usage, Context: out.Context, Unpublished: out.Unpublished, Journal: out.Trailing,
	})
	switch {
	case errors.Is(err, dispatchapi.ErrFenced):
		log.Info("another runner has the run")
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

// endLevel returns the log level for an ended run. Metrics count completed runs. A log line for
// each of them would push warnings out of the log that a node keeps.
func endLevel(out engine.Outcome) slog.Level {
	if out.Status == engine.Completed && out.Cause == nil {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

const notStored = "the journal of the run could not be stored"

// rejection returns the message of a run whose data the gateway rejects.
func rejection(cause error) string {
	if errors.Is(cause, engine.ErrSavedFile) {
		return "a saved file of the run could not be read"
	}
	return notStored
}

// fallback reports a run whose journal or outcome dispatch rejects, or that crashes the runner, so
// that the run does not return forever.
func (s *Server) fallback(l life, c *claim, log *slog.Logger, cause error, message string) (status string) {
	log.Error(message, "error", cause)
	err := s.opts.Dispatch.Complete(l.reporting, c.run.ID, dispatchapi.CompleteRequest{
		Token: c.run.Token, TestName: c.testName(), Status: dispatchapi.StatusFailed, ErrorCode: runerror.Internal,
		Error: message,
	})
	if err != nil {
		log.Error("reporting a run's end", "error", err)
		return metrics.RunUnreported
	}
	return dispatchapi.StatusFailed
}

// releaseDelay returns how long a released run cannot be claimed. The same runner would fail again.
func releaseDelay(cause error) time.Duration {
	if errors.Is(cause, errUnopened) || errors.Is(cause, errPrepare) || errors.Is(cause, engine.ErrLaterJournal) {
		return elsewhereDelay
	}
	return 0
}

// release releases a run, so that another runner resumes it soon. Otherwise it is resumed when the
// lease expires.
func (s *Server) release(l life, c *claim, log *slog.Logger, delay time.Duration) (status string) {
	err := s.opts.Dispatch.Release(l.reporting, c.run.ID, dispatchapi.ReleaseRequest{Token: c.run.Token, DelaySeconds: int(delay.Seconds())})
	switch {
	case errors.Is(err, dispatchapi.ErrFenced):
		return metrics.RunLost
	case err != nil:
		log.Warn("releasing a run", "error", err)
		return metrics.RunUnreported
	}
	return metrics.RunReleased
}

// attempt waits for a slot, prepares the run and calls the engine.
func (s *Server) attempt(l life, c *claim) engine.Outcome {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-l.stop:
		return engine.Outcome{Status: engine.Unfinished, Cause: engine.ErrStopped}
	case <-c.ctx.Done():
		return engine.Outcome{Status: engine.Unfinished, Cause: context.Cause(c.ctx)}
	}
	files, release, err := s.attachFiles(c, l.stop)
	if err != nil {
		return unprepared(err)
	}
	defer release()
	in, err := s.prepare(c, files)
	if err != nil {
		return unprepared(err)
	}
	record := &journal{dispatch: s.opts.Dispatch, claim: c, life: l}
	in.Journal, in.SavedFiles = record, record
	in.Actions, in.Outbound = c.run.Actions, &outbound{dispatch: s.opts.Dispatch, claim: c}
	in.Gate, in.Stop, in.Attempt, in.Spent = c.awaitLease, l.stop, c.run.Attempt, c.runAge()
	return s.opts.Engine.Execute(c.ctx, in)
}

// prepare fetches and reads the data of a run. It returns a fault if the data does not exist.
func (s *Server) prepare(c *claim, files dispatchapi.Files) (engine.Input, error) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, prepareTime, errPrepare)
	defer cancel()
	project, err := s.bundles.getBundle(ctx, c.run.BundleDigest)
	if err != nil {
		return engine.Input{}, faultOf(ctx, runerror.BundleUnavailable, "the deployment's bundle could not be fetched", err)
	}
	prior := c.run.Journal
	if c.run.JournalElsewhere {
		if prior, err = s.opts.Dispatch.ReadJournal(ctx, c.run.ID, c.run.Token); err != nil {
			return engine.Input{}, faultOf(ctx, runerror.Internal, "the run's journal could not be read", err)
		}
	}
	raw := c.run.Input
	if c.run.InputElsewhere {
		if raw, err = s.opts.Dispatch.Input(ctx, c.run.ID, maxInput); err != nil {
			return engine.Input{}, faultOf(ctx, runerror.InputInvalid, "the run's input could not be read", err)
		}
	}
	if c.testName() == "" {
		c.executedBy(engine.Choose(project, c.run.AgentName, raw))
	}
	message, values, err := input.Read(c.run.ContentType, raw, c.run.Files, files)
	switch {
	case errors.Is(err, input.ErrTooComplex):
		return engine.Input{}, &fault{runerror.InputTooComplex, err.Error(), err}
	case err != nil:
		return engine.Input{}, &fault{runerror.InputInvalid, err.Error(), err}
	}
	attached, err := s.fetchFiles(ctx, c, files.Files)
	if err != nil {
		return engine.Input{}, err
	}
	facts := input.Facts{RunID: c.run.ID.String(), AgentName: c.run.AgentName, Headers: c.run.Headers}
	if c.run.ConnectorID != uuid.Nil {
		facts.ConnectorID = c.run.ConnectorID.String()
	}
	facts.AddTo(values)
	return engine.Input{
		RunID: c.run.ID.String(), Traceparent: c.run.Traceparent, AgentName: c.run.AgentName, TestName: c.testName(), Project: project,
		DeploymentID: c.run.DeploymentID.String(), Message: message, Files: attached, Omitted: len(files.Issues), Context: values, Prior: prior,
	}, nil
}

// fault fails a run before its agent begins.
type fault struct {
	code    runerror.Code
	message string
	cause   error
}

func (f *fault) Error() string { return f.message + ": " + f.cause.Error() }
func (f *fault) Unwrap() error { return f.cause }

// faultOf returns a fault if dispatch reports that the data does not exist. Otherwise it returns
// err, and another attempt may succeed.
func faultOf(ctx context.Context, code runerror.Code, message string, err error) error {
	switch {
	case errors.Is(err, dispatchapi.ErrRejected):
		return &fault{code, message, err}
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", message, context.Cause(ctx))
	}
	return fmt.Errorf("%s: %w", message, err)
}

// unprepared returns the outcome of a run that could not be prepared.
func unprepared(err error) engine.Outcome {
	var f *fault
	if errors.As(err, &f) {
		return engine.Outcome{Status: engine.Failed, ErrorCode: f.code, Error: f.message, Cause: err}
	}
	return engine.Outcome{Status: engine.Unfinished, Cause: err}
}

// outbound sends deliveries under a run's claim.
type outbound struct {
	dispatch Dispatch
	claim    *claim
}

// Send implements engine.Outbound.
func (o *outbound) Send(ctx context.Context, req dispatchapi.SendRequest) (dispatchapi.SendResponse, error) {
	req.Token = o.claim.run.Token
	return o.dispatch.Send(ctx, o.claim.run.ID, req)
}

// journal appends to a run's journal. After runs are cancelled it still records finished work until
// reporting ends.
type journal struct {
	dispatch Dispatch
	claim    *claim
	life     life
}

// Append implements engine.Journal.
func (j *journal) Append(_ context.Context, entries []dispatchapi.JournalEntry) error {
	return j.write(func(ctx context.Context) error {
		return j.dispatch.Journal(ctx, j.claim.run.ID, dispatchapi.JournalRequest{Token: j.claim.run.Token, Entries: entries})
	})
}

// Save implements engine.SavedFiles.
func (j *journal) Save(_ context.Context, entries []dispatchapi.JournalEntry, data []byte) error {
	err := j.write(func(ctx context.Context) error {
		return j.dispatch.Save(ctx, j.claim.run.ID, dispatchapi.SaveRequest{Token: j.claim.run.Token, Entries: entries}, data)
	})
	if rejected := (*dispatchapi.RejectedError)(nil); errors.As(err, &rejected) { // the run can continue without its file
		slog.Info("a file of the run is not saved", "run", j.claim.run.ID, "code", rejected.Code, "error", err)
	}
	return err
}

// ReadPart implements engine.SavedFiles.
func (j *journal) ReadPart(ctx context.Context, id string, offset, length int64) ([]byte, error) {
	return j.dispatch.SavedPart(ctx, j.claim.run.ID, j.claim.run.Token, id, offset, length)
}

// write calls do until reporting ends or the claim is lost.
func (j *journal) write(do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(j.life.reporting)
	defer cancel(nil)
	defer context.AfterFunc(j.claim.ctx, func() {
		if j.claim.isLost() {
			cancel(errLost)
		}
	})()
	return do(ctx)
}
