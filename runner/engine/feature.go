// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/jsonschema"
	"github.com/agentplatform/agentplatform/runner/model"
)

// Feature adds a capability to agents. The engine knows its features only by this type. Each function is optional, and
// safe for concurrent use.
type Feature struct {
	// Name identifies the feature in logs.
	Name string
	// Check returns the problems of a repository that uses the feature wrongly. A build fails for them.
	Check func(p *bundle.Project) bundle.Problems
	// References describes the references that NamedTools understands, such as "folder.file.function", for messages.
	References string
	// NamedTools returns the tools that a reference in an agent's "tools" names, in the same order in each attempt. It
	// returns none if the reference is not one of the feature.
	NamedTools func(p *bundle.Project, reference string) []Tool
	// OfferedTools returns tools that an agent has without a reference. The engine calls it when the agent begins, so it can
	// contact a server. Each attempt of a run needs the same tools, because the model has seen them. The error ends the attempt.
	OfferedTools func(ctx context.Context, at *Scope) ([]Tool, error)
	// WrapCall wraps each call that a model makes. The first feature is outermost. A wrapper runs in every attempt, also
	// if the result of the call is recorded, so it keeps what it must not do twice in Scope.Step.
	WrapCall func(next CallFunc) CallFunc
	// WrapAgent wraps an agent of the tree. The first feature is outermost. It runs in every attempt like WrapCall.
	WrapAgent func(at *Scope, next AgentFunc) AgentFunc
	// RunStep runs a script that is a step of a sequential agent, once over all attempts, and returns its JSON value. One
	// feature has it.
	RunStep func(ctx context.Context, at *Scope, step StepScript) (json.RawMessage, error)
	// WatchStep sees each script and check of Scope.Step and Scope.RunScript that ended in this attempt.
	WatchStep func(ctx context.Context, at *Scope, ended EndedStep)
	// WatchRejected sees each call of a model that is not executed, with the problem that the model gets.
	WatchRejected func(ctx context.Context, at *Scope, call *model.Call, problem string)
}

// EndedStep is a script or check that ended, with the ID and the kind that Scope.Step got.
type EndedStep struct {
	Step

	ID, Kind     string
	Milliseconds int64
}

// StepScript is a script that is a step of a sequential agent.
type StepScript struct {
	// Owner is the ID of the step and the owner of its effects.
	Owner string
	// Reference is the reference in the repository, such as steps.enrich.run.
	Reference string
	// Input is the input of the script, Results the results so far.
	Input   json.RawMessage
	Results map[string]json.RawMessage
}

// CallFunc executes a call of a tool. Its error ends the attempt; an error for the model is part of the result.
type CallFunc func(ctx context.Context, call *Call) (Result, error)

// AgentFunc executes an agent: it returns the agent's answer to a message.
type AgentFunc func(ctx context.Context, in Message) (Message, error)

// Message is a message to an agent, or its answer.
type Message struct {
	// Author is the name of the agent that wrote it, or "" for the input of the run.
	Author  string
	Content *model.Content
}

// Tool is a function that models can call.
type Tool struct {
	// Name is the name for models: letters, digits, - and _, at most 64.
	Name string
	// Type is the type of the tool in traces, such as runtrace.TypeMCP; "" for a function.
	Type string
	// Reference is the reference in the repository, such as folder.file.function; "" for a tool that no file names.
	Reference   string
	Description string
	// Parameters is the JSON Schema of the arguments, as the model sees it.
	Parameters map[string]any
	// Schema checks the arguments before anything happens; nil checks nothing.
	Schema *jsonschema.Schema
	// Idempotent is true if a repeated call has no other effect than one call. An interrupted call
	// is then repeated. Otherwise the run fails.
	Idempotent bool
	// Conditions hide the tool from the model while one of them is false.
	Conditions []*bundle.Tool
	// Repeatable is true if the whole call can be made again after an error, as a call of its own. A script is idempotent
	// without it, because an interrupted call continues after its recorded effects.
	Repeatable bool
	// Discoverable is true for a tool that is not part of requests to the model, which finds it with search_tools.
	Discoverable bool
	// MaxResult limits a result as the model sees it, in bytes of JSON; 0 means the limit of the agent.
	MaxResult int
	// Run executes a call. The model sees the text of an error and can continue.
	Run func(ctx context.Context, call *Call) (map[string]any, error)
	// isNeeded reports whether requests to the model have the tool now; nil means always.
	isNeeded func() bool
	// sends is true for tools that send to a connector. Their calls need the position of their journal entry.
	sends bool
}

// Call is a call of a tool.
type Call struct {
	// Scope is the position of the agent that calls.
	Scope *Scope
	// ID is unique in the run.
	ID string
	// RepetitionOf is the ID of the first of several calls that repeat one another until one succeeds; "" for a call that
	// repeats none.
	RepetitionOf string
	Tool         *Tool
	Arguments    map[string]any
	// Position is the journal entry that announces the call. Began is the time when the call began in its first attempt.
	// Both are set when the tool runs.
	Position int64
	Began    time.Time
	// changes are changes of the run's context.
	changes map[string]any
	log     []LogLine
	moreLog int
}

// LogLine is a line of the run's log. It is part of the journal.
type LogLine struct {
	// Level is debug, info, warn or error.
	Level string `json:"level"`
	Text  string `json:"text"`
	// Fields is a JSON object, or nil.
	Fields json.RawMessage `json:"fields,omitempty"`
	// Position is a file with line and column, or "".
	Position string `json:"position,omitempty"`
}

// IdempotencyKey identifies the call for services. It is the same in all attempts of the run and in repetitions of the call.
func (c *Call) IdempotencyKey() string {
	return c.Scope.in.RunID + effectSeparator + cmp.Or(c.RepetitionOf, c.ID)
}

// Log adds a line to the run's log.
func (c *Call) Log(line LogLine) { c.log = append(c.log, line) }

// CountDroppedLines counts lines that the call wrote beyond the limits of the run's log.
func (c *Call) CountDroppedLines(lines int) { c.moreLog += lines }

// Logged returns the lines that this attempt added to the run's log.
func (c *Call) Logged() []LogLine { return c.log }

// CodeToolUnavailable is the code of a call that failed because a service could not be reached, did not respond or was
// overloaded. The same call may succeed later.
const CodeToolUnavailable = "tool_unavailable"

// ToolError is an error of a tool with a code. The model sees the message.
type ToolError struct{ Code, Message string }

func (e *ToolError) Error() string { return e.Message }

// ChangeContext changes values of the run's context when the call ends; a nil deletes one.
func (c *Call) ChangeContext(changes map[string]any) { c.changes = changes }

// Stop is the error of a tool or wrapper that ends the run as completed.
type Stop struct {
	// Output is the output of the run.
	Output string `json:"output"`
	// Unpublished is true if outbound links must not send the result of the run.
	Unpublished bool `json:"unpublished,omitempty"`
}

func (s *Stop) Error() string { return "the run was stopped by a script" }

// The beginnings of owners of effects and steps that belong to no call of a model.
const (
	// MiddlewareOwner is followed by the path of an agent, a colon and a number.
	MiddlewareOwner = "middleware:"
	// ScriptOwner is followed by the path of a step.
	ScriptOwner = "script:"
	// HookOwner is followed by the ID of a call, a colon and a number.
	HookOwner = "hook:"
)

// Result is the result of a call: an object, or an error for the model.
type Result struct {
	Value map[string]any
	// Error is a text without secrets, addresses and stacks; "" for a result. Code is its code, "" for most errors.
	Error, Code string
}

// Response returns the result as the model sees it.
func (r Result) Response() map[string]any {
	switch {
	case r.Error != "":
		return map[string]any{"error": r.Error}
	case r.Value == nil:
		return map[string]any{}
	}
	return r.Value
}
