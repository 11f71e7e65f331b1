// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	adkagent "google.golang.org/adk/v2/agent"
	adkmodel "google.golang.org/adk/v2/model"
	adkrunner "google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/model"
)

// Codes of failed runs, beside those of models.
const (
	CodeAgentNotFound   = "agent_not_found"
	CodeToolInterrupted = "tool_interrupted"
	CodeMaxIterations   = "max_iterations_exceeded"
	CodeTimeout         = "timeout"
	CodeFilesRequired   = "files_required"
	CodeUnsupported     = "not_supported"
	CodeVariable        = "variable_unavailable"
	CodeInternal        = "internal_error"
	CodeOutputTooLarge  = dispatchapi.CodeOutputTooLarge
	CodeAnswerTooLarge  = dispatchapi.CodeAnswerTooLarge
	CodeJournalTooLarge = dispatchapi.CodeJournalTooLarge
)

// Models finds models by reference, provider/model.
type Models interface {
	// Resolve returns a model; scripts are of the project. The error is a *model.Error.
	Resolve(reference string, project *bundle.Project, settings model.Settings) (adkmodel.LLM, error)
}

// Config configures an Engine.
type Config struct {
	// Models is required.
	Models Models
	// Tools are the built-in tools; nil means Builtin(time.Now).
	Tools []Tool
	// Variables returns the environment's variables of now, for {env.NAME} in prompts; nil means that there
	// are none. It is called for each, so that values may be replaced.
	Variables func() (runnerconfig.Variables, error)
	// Prices returns the prices of models of now; nil means that none is known. It is called for each
	// answer, so that they may be replaced. An answer whose price cannot be read has none.
	Prices func() (runnerconfig.Prices, error)
	// Sleep waits between attempts of a model request; nil means real time.
	Sleep func(ctx context.Context, d time.Duration) error
	// Metrics count the calls of tools; nil counts nowhere.
	Metrics *metrics.Runner
}

// Engine runs agents. It is safe for concurrent use.
type Engine struct {
	cfg   Config
	tools map[string]Tool
}

// New makes an engine.
func New(cfg Config) *Engine {
	if cfg.Tools == nil {
		cfg.Tools = Builtin(time.Now)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewRunner(nil, nil, nil)
	}
	e := &Engine{cfg: cfg, tools: make(map[string]Tool, len(cfg.Tools))}
	for _, t := range cfg.Tools {
		e.tools[t.Name] = t
	}
	return e
}

// Journal keeps what a run did.
type Journal interface {
	// Append makes entries durable before it returns. An error ends the attempt.
	Append(ctx context.Context, entries []dispatchapi.JournalEntry) error
}

// File is an attachment.
type File struct {
	// Name is for the model to see, MIMEType says how it is to read Data.
	Name, MIMEType string
	Data           []byte
}

// Input is one attempt of a run.
type Input struct {
	RunID     string
	AgentName string
	// TestName is the A/B variant of the agent that executes the run; "" for the agent itself.
	TestName string
	Project  *bundle.Project
	// Message is what the agent is asked.
	Message string
	// Files are attachments, which stand beside the message.
	Files []File
	// Omitted is how many attachments there were beside them.
	Omitted int
	// Context holds the values of {var} in prompts.
	Context map[string]any
	// Actions are the tools by which the agent sends to outbound connectors, Outbound what
	// they send by; nil without any. Each agent in a sequence has them.
	Actions  []dispatchapi.Action
	Outbound Outbound
	// Prior is the journal of the attempts before, in order.
	Prior []dispatchapi.JournalEntry
	// Journal takes what this attempt adds.
	Journal Journal
	// Spent is how long ago the run's first attempt began: the timeout is of all
	// attempts together.
	Spent time.Duration
	// Gate, when set, waits until the runner's claim is confirmed; it is called
	// before each tool call. An error ends the attempt.
	Gate func(ctx context.Context) error
	// Stop, when closed, ends the attempt before its next model request or tool
	// call; what is under way is awaited.
	Stop <-chan struct{}
}

// Status says how an attempt ended.
type Status string

// Statuses of outcomes.
const (
	Completed Status = "completed"
	Failed    Status = "failed"
	// Unfinished runs may be resumed from their journal.
	Unfinished Status = "unfinished"
)

// Outcome is what became of an attempt.
type Outcome struct {
	Status Status
	// Output is the last agent's answer.
	Output string
	// ErrorCode and Error are set when the run failed; safe to show.
	ErrorCode, Error string
	// Usage counts the tokens of all attempts.
	Usage dispatchapi.TokenUsage
	// Trailing are entries that are not appended yet; they belong into the
	// completion. Empty when unfinished.
	Trailing []dispatchapi.JournalEntry
	// Cause is why the attempt is unfinished, or what a failure wraps; for logs.
	Cause error
}

// ErrStopped is the cause of an attempt that was told to stop.
var ErrStopped = errors.New("told to stop")

// failure ends a run with a code and a message safe to show.
type failure struct {
	code, message string
	cause         error
}

func (f *failure) Error() string { return f.code + ": " + f.message }
func (f *failure) Unwrap() error { return f.cause }

// Execute runs an attempt to its end. It does not return an error: whatever
// happens is the outcome.
func (e *Engine) Execute(ctx context.Context, in Input) Outcome {
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &attempt{engine: e, in: in, cancel: cancel, end: endOf(in), journal: newRecorder(in.Prior, in.Journal)}
	a.journal.prices = e.cfg.Prices
	output, err := a.run(own)
	return a.outcome(ctx, output, err)
}

// attempt is the state of one Execute.
type attempt struct {
	engine  *Engine
	in      Input
	cancel  context.CancelCauseFunc
	end     deadline // of the run
	journal *recorder
}

// run answers the last agent's text.
func (a *attempt) run(ctx context.Context) (output string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	if f := a.journal.interrupted(); f != nil {
		return "", f
	}
	root, err := a.tree()
	if err != nil {
		return "", err
	}
	runner, err := adkrunner.New(adkrunner.Config{
		AppName: "run", Agent: root, SessionService: session.InMemoryService(), AutoCreateSession: true,
	})
	if err != nil {
		return "", fmt.Errorf("making the runner: %w", err)
	}
	message := genai.NewContentFromText(a.in.Message, genai.RoleUser)
	message.Parts = append(message.Parts, standIns(a.in.Files)...)
	for event, err := range runner.Run(ctx, "user", a.in.RunID, message, adkagent.RunConfig{}) {
		if err != nil {
			return "", err
		}
		if event.IsFinalResponse() && event.LLMResponse.Content != nil {
			output = answerText(event.LLMResponse.Content)
		}
	}
	return output, a.journal.failed()
}

// outcome classifies how the attempt ended; ctx is the caller's, which the
// attempt itself does not cancel.
func (a *attempt) outcome(ctx context.Context, output string, err error) Outcome {
	if first := a.journal.failed(); first != nil {
		err = first // What the framework reports afterwards only follows from it.
	}
	if err == nil {
		err = checkOutput(output)
	}
	if late := a.journal.shorten(context.WithoutCancel(ctx)); late != nil {
		err = late
	}
	out := Outcome{Status: Completed, Output: output, Usage: a.journal.usage(), Cause: err}
	if err == nil {
		out.Trailing = a.journal.take()
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
			f = &failure{code: CodeInternal, message: "the agent could not be run", cause: err}
		}
	}
	out.Status, out.Output = Failed, ""
	out.ErrorCode, out.Error = f.code, cut(f.message, dispatchapi.MaxError)
	out.Trailing = a.journal.take()
	return out
}

// leavesOpen says that an error is none of the run's: another attempt may go on.
func leavesOpen(err error) bool {
	return errors.Is(err, ErrStopped) || errors.Is(err, errJournal) || errors.Is(err, ErrLaterJournal)
}

// unfinished appends what the attempt did last, so that nothing is asked again.
func (a *attempt) unfinished(ctx context.Context, out Outcome) Outcome {
	out.Status, out.Output = Unfinished, ""
	if !errors.Is(out.Cause, errJournal) {
		if err := a.journal.flush(context.WithoutCancel(ctx)); err != nil {
			out.Cause = errors.Join(out.Cause, err)
		}
	}
	return out
}

// stop ends the attempt with its first cause.
func (a *attempt) stop(err error) error {
	a.journal.fail(err)
	a.cancel(err)
	return err
}

// mayGoOn says whether the next effect may happen.
func (a *attempt) mayGoOn(ctx context.Context) error {
	if err := a.journal.failed(); err != nil {
		return err
	}
	select {
	case <-a.in.Stop:
		return a.stop(ErrStopped)
	default:
	}
	return ctx.Err()
}

func panicked(p any) error {
	return &failure{code: CodeInternal, message: "the agent could not be run", cause: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
}
