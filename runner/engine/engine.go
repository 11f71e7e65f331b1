// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/model"
)

// Models resolves references, provider/model.
type Models interface {
	// Resolve returns a model. Scripts come from the project. The error is a *model.Error.
	Resolve(reference string, project *bundle.Project, settings model.Settings) (model.Model, error)
}

// Config configures an Engine.
type Config struct {
	// Models is required.
	Models Models
	// Tools are the built-in tools; nil means Builtin(time.Now).
	Tools []Tool
	// Features are the features of agents besides the built-in tools and sending.
	Features []Feature
	// ReplaceTool returns the tool that an agent gets in place of a tool, such as a mock; optional.
	ReplaceTool func(t Tool) Tool
	// Variables returns the environment's current variables for {env.NAME} in prompts; nil means
	// none. It is called for each use, so values can be replaced.
	Variables func() (runnerconfig.Variables, error)
	// Prices returns the current prices of models; nil means none. It is called for each answer, so
	// prices can be replaced. An answer without a readable price has no cost.
	Prices func() (runnerconfig.Prices, error)
	// Now is the clock for the times in journals; nil means time.Now.
	Now func() time.Time
	// Sleep waits between attempts of a model request; nil uses real time.
	Sleep func(ctx context.Context, d time.Duration) error
	// Metrics count tool calls; nil disables them.
	Metrics *metrics.Runner
}

// Engine executes agents. It is safe for concurrent use.
type Engine struct {
	cfg      Config
	features []Feature
	// saves limits the files that are requested and stored at the same time.
	saves *semaphore.Weighted
}

// maxSaves is the number of files that the runs of an engine save at the same time. Each takes three times its size in memory.
const maxSaves = 3

// New creates an engine.
func New(cfg Config) *Engine {
	if cfg.Tools == nil {
		cfg.Tools = Builtin(time.Now)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewRunner(nil, nil, nil)
	}
	return &Engine{cfg: cfg, saves: semaphore.NewWeighted(maxSaves), features: append([]Feature{builtinTools(cfg.Tools), sending()}, cfg.Features...)}
}

// Journal stores the actions of a run.
type Journal interface {
	// Append stores entries durably before it returns. An error ends the attempt.
	Append(ctx context.Context, entries []dispatchapi.JournalEntry) error
}

// File is an attachment.
type File = model.File

// Input is one attempt of a run.
type Input struct {
	RunID string
	// Traceparent is the W3C traceparent of the event; "" without one.
	Traceparent string
	AgentName   string
	// TestName is the A/B variant that executes the run, or "" for the agent itself.
	TestName string
	Project  *bundle.Project
	// DeploymentID is the ID of the deployment with the project, or "" outside the platform.
	DeploymentID string
	// Message is the input for the agent.
	Message string
	// Files are the attachments of the message.
	Files []File
	// Omitted is the number of omitted attachments.
	Omitted int
	// Context contains the values for prompts, expressions and scripts. Scripts add values to it.
	Context map[string]any
	// Actions are the tools that send to outbound connectors, and Outbound sends their payloads;
	// nil without actions. Each agent in a sequence has them.
	Actions  []dispatchapi.Action
	Outbound Outbound
	// Prior is the journal of earlier attempts in order.
	Prior []dispatchapi.JournalEntry
	// Journal receives the entries of this attempt.
	Journal Journal
	// SavedFiles stores the files that the run saves; nil if it cannot save files.
	SavedFiles SavedFiles
	// Attempt is the number of the attempt, from 1.
	Attempt int
	// Spent is the time since the run's first attempt began, because the timeout applies to all
	// attempts together.
	Spent time.Duration
	// Gate waits until the runner's claim is confirmed; optional. It is called before each tool
	// call. An error ends the attempt.
	Gate func(ctx context.Context) error
	// Stop ends the attempt before its next model request or tool call when it is closed; optional.
	// Current work is awaited.
	Stop <-chan struct{}
}

// Status is the result of an attempt.
type Status string

// Statuses of outcomes.
const (
	Completed Status = "completed"
	Failed    Status = "failed"
	// Unfinished runs can be resumed from their journal.
	Unfinished Status = "unfinished"
)

// Outcome is the outcome of an attempt.
type Outcome struct {
	Status Status
	// Output is the last agent's answer.
	Output string
	// Unpublished is true if outbound links must not send the result.
	Unpublished bool
	// ErrorCode and Error are set for a failed run. They are safe to show.
	ErrorCode runerror.Code
	Error     string
	// Context is what scripts set in the run's context, a JSON object; nil if they set nothing.
	Context json.RawMessage
	// FinishReason is the reason for the end of the last model answer, "" without one.
	FinishReason model.FinishReason
	// Usage counts the tokens of all attempts.
	Usage dispatchapi.TokenUsage
	// Trailing are entries that are not appended yet and belong to the completion. Empty if
	// unfinished.
	Trailing []dispatchapi.JournalEntry
	// Cause is the reason for an unfinished attempt or the error of a failure, for logs.
	Cause error
}

// ErrStopped is the cause of an attempt that was stopped.
var ErrStopped = errors.New("stopped")

// errStopRequested is the cause of an attempt that Input.Stop ended. Current work is awaited.
var errStopRequested = fmt.Errorf("%w on request", ErrStopped)

// failure ends a run with a code and a message that is safe to show.
type failure struct {
	code    runerror.Code
	message string
	cause   error
}

// NewFailure returns an error that ends a run with a code. The message is shown to people, so it has no secrets. cause is
// for logs and may be nil.
func NewFailure(code runerror.Code, message string, cause error) error {
	return &failure{code: code, message: message, cause: cause}
}

func (f *failure) Error() string { return string(f.code) + ": " + f.message }
func (f *failure) Unwrap() error { return f.cause }

// Execute executes an attempt. It returns every error as an outcome.
func (e *Engine) Execute(ctx context.Context, in Input) Outcome {
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &attempt{
		engine: e, in: in, cancel: cancel, begun: e.cfg.Now(), end: runDeadline(in), journal: newRecorder(in.Prior, in.Journal, in.SavedFiles),
	}
	a.values = &runContext{values: in.Context, changed: map[string]bool{}}
	if in.Context == nil {
		a.values.values = map[string]any{}
	}
	a.journal.prices = e.cfg.Prices
	a.journal.flushAged = func() {
		// An append that has begun is not given up, because it may have the result of an action that must not happen twice.
		if err := a.journal.flushPending(context.WithoutCancel(own)); err != nil && own.Err() == nil {
			_ = a.stopAttempt(err)
		}
	}
	output, stopped, err := a.runAgents(own)
	out := a.outcome(ctx, output, err)
	out.Unpublished = out.Status == Completed && stopped != nil && stopped.Unpublished
	a.journal.takePending() // of an unfinished attempt; none otherwise
	return out
}

// attempt is the state of one Execute.
type attempt struct {
	engine  *Engine
	in      Input
	cancel  context.CancelCauseFunc
	begun   time.Time
	end     deadline // of the run
	journal *recorder
	values  *runContext
	// scriptLimits counts scripts that exceeded a limit.
	scriptLimits atomic.Int32
}

// runAgents returns the text of the last agent, or the output of a script that stopped the run.
func (a *attempt) runAgents(ctx context.Context) (output string, stopped *Stop, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	if f := a.journal.interrupted(); f != nil {
		return "", nil, f
	}
	input := model.TextContent(model.RoleUser, a.in.Message)
	for i := range a.in.Files {
		input.Parts = append(input.Parts, &model.Part{File: &a.in.Files[i]})
	}
	answer, err := a.runTree(ctx, Message{Content: input})
	if errors.As(cmp.Or(a.journal.failure(), err), &stopped) {
		return stopped.Output, stopped, nil
	}
	if err != nil {
		return "", nil, err
	}
	return answer.Content.Text(), nil, nil
}

// outcome classifies the end of the attempt. ctx is the caller's context, which the attempt does
// not cancel.
func (a *attempt) outcome(ctx context.Context, output string, err error) Outcome {
	var stop *Stop
	if first := a.journal.failure(); first != nil && !errors.As(first, &stop) {
		err = first // Later errors are consequences of the first one.
	}
	values, unencoded := a.values.encodeChanged()
	if err == nil {
		err = cmp.Or(checkOutput(output), unencoded)
	}
	if late := a.journal.flushBeforeEnd(context.WithoutCancel(ctx)); late != nil {
		err = late
	}
	out := Outcome{Status: Completed, Output: output, Context: values, Usage: a.journal.totalUsage(), FinishReason: a.journal.lastFinish(), Cause: err}
	if err == nil {
		out.Trailing = a.journal.takePending()
		return out
	}
	var f *failure
	if isFailure := errors.As(err, &f); !isFailure || errors.Is(err, ErrStopped) {
		if ctx.Err() != nil || leavesOpen(err) {
			return a.unfinished(ctx, out)
		}
		if m, ok := model.AsError(err); ok {
			f = &failure{code: m.Code, message: m.Message, cause: err}
		} else {
			f = &failure{code: runerror.Internal, message: "the agent could not be run", cause: err}
		}
	}
	out.Status, out.Output = Failed, ""
	out.ErrorCode, out.Error = f.code, truncateText(f.message, dispatchapi.MaxError)
	out.Trailing = a.journal.takePending()
	return out
}

// leavesOpen reports whether an error is not the run's fault, so another attempt can continue.
func leavesOpen(err error) bool {
	return errors.Is(err, ErrStopped) || errors.Is(err, errJournal) || errors.Is(err, ErrLaterJournal)
}

// unfinished appends the last entries, so that nothing is repeated.
func (a *attempt) unfinished(ctx context.Context, out Outcome) Outcome {
	out.Status, out.Output, out.Context = Unfinished, "", nil
	if !errors.Is(out.Cause, errJournal) {
		if err := a.journal.flushPending(context.WithoutCancel(ctx)); err != nil {
			out.Cause = errors.Join(out.Cause, err)
		}
	}
	return out
}

// stopAttempt ends the attempt with its first cause. It cancels current work unless a stop was requested or a script has stopped
// the run as completed: then a write in progress gets its result.
func (a *attempt) stopAttempt(err error) error {
	first := a.journal.endWith(err)
	var stop *Stop
	if !errors.Is(first, errStopRequested) && !errors.As(first, &stop) {
		a.cancel(err)
	}
	return err
}

// mayGoOn returns an error if the next effect must not happen.
func (a *attempt) mayGoOn(ctx context.Context) error {
	if err := a.journal.failure(); err != nil {
		return err
	}
	select {
	case <-a.in.Stop:
		return a.stopAttempt(errStopRequested)
	default:
	}
	return ctx.Err()
}

func panicked(p any) error {
	return &failure{code: runerror.Internal, message: "the agent could not be run", cause: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
}
