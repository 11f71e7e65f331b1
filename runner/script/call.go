// SPDX-License-Identifier: Apache-2.0

package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

const (
	// MaxInput limits the arguments of a call, and the response of a host, as JSON in bytes.
	MaxInput = 1 << 20
	// MaxResponse limits the response of an HTTP request as JSON, in bytes. The rest of its journal entry is for the call and its
	// time.
	MaxResponse = dispatchapi.MaxToolResult - 4<<10
	// maxErrorText limits the text of an error for models.
	maxErrorText = 2 << 10
)

// Limits are the limits of a call.
type Limits struct {
	// Steps limits the interpreter.
	Steps uint64 `json:"steps"`
	// OwnTime limits the time of the script without its waits for the host. TotalTime includes the waits; 0 means that only the context limits it.
	OwnTime   time.Duration `json:"-"`
	TotalTime time.Duration `json:"-"`
	// Writes and Reads limit requests to the host.
	Writes int `json:"-"`
	Reads  int `json:"-"`
	// ResultBytes limits the result as JSON.
	ResultBytes int `json:"result_bytes"`
}

// limits are the limits of each owner.
var limits = map[bundle.ScriptOwner]Limits{
	bundle.OwnerTool:       {Steps: 50e6, OwnTime: 10 * time.Second, Writes: 100, Reads: 100, ResultBytes: 256 << 10},
	bundle.OwnerMiddleware: {Steps: 20e6, OwnTime: 5 * time.Second, TotalTime: time.Minute, Writes: 50, Reads: 50, ResultBytes: 1 << 20},
	bundle.OwnerHook:       {Steps: 5e6, OwnTime: 2 * time.Second, TotalTime: 10 * time.Second, Writes: 10, Reads: 10, ResultBytes: 256 << 10},
	bundle.OwnerGuardrail:  {Steps: 5e6, OwnTime: 2 * time.Second, TotalTime: 5 * time.Second, Writes: 0, Reads: 5, ResultBytes: 64 << 10},
}

// LimitsOf returns the limits of scripts of an owner.
func LimitsOf(owner bundle.ScriptOwner) Limits { return limits[owner] }

// LogBudget is what a run may still log. A call subtracts what it logs.
type LogBudget struct {
	Lines int `json:"lines"`
	Bytes int `json:"bytes"`
}

// MaxLogs is the budget of a run. A line has at most maxLogLine bytes.
var MaxLogs = LogBudget{Lines: 500, Bytes: 1 << 20}

const maxLogLine = 4 << 10

// Call is a call of a function of a script.
type Call struct {
	// Run is the run of the script. Runs share the slots of a pool fairly.
	Run string
	// Digest identifies the sources. A child that has the sources of the digest is not sent them again.
	Digest string
	// Sources returns all scripts of the bundle, by path.
	Sources func() map[string]string
	// File and Function name the function. All arguments are passed by name.
	File, Function string
	// Args are the arguments, a JSON object.
	Args json.RawMessage
	// Context is the part of the run's context that the script can change, ReadOnly the part that it cannot. Both are
	// JSON objects. The function gets one map as the argument context if TakesContext is true.
	Context, ReadOnly json.RawMessage
	TakesContext      bool
	// Payload adds the input of the run to the context under the key payload. Its list files has the data of the Files
	// attachments, which the script requests from the host by FileData when it reads them.
	Payload bool
	Files   int

	Owner bundle.ScriptOwner
	// Limits are the limits of the owner if they are zero.
	Limits Limits
	Logs   LogBudget
	// Offers reports whether the host offers a built-in with an effect. Other built-ins are always offered, if they are
	// for the owner. nil offers none.
	Offers func(name string) bool
	// Now is the time that the script sees. Random numbers and UUIDs are computed from Seed.
	Now  time.Time
	Seed [32]byte
}

// Host answers the requests of a script. Handle returns a JSON value. If its error is a *Failure, the script ends with
// that error. Any other error ends the script, and Pool.Run returns the error.
type Host interface {
	Handle(ctx context.Context, request Request) (json.RawMessage, error)
}

// FileData is the name of a request for a part of an attachment: the arguments are its index and an offset in bytes. The
// answer has data in base64, and more if there is another part.
const FileData = "file.data"

// Request is a request of a script to its host.
type Request struct {
	// Name is the name of the built-in. Requests of http.get, http.post and so on have the name http.request.
	Name string
	// Args are the arguments by name, with defaults. Headers of HTTP requests are Texts.
	Args json.RawMessage
	// Number counts the requests of a call, from 1, without env and hmac.sha256, which have 0.
	Number int
	// Write is true if the request changes something outside.
	Write bool
	// Position is the place in the script.
	Position bundle.Position
}

// Failure is an error that a script sees.
type Failure struct{ Message string }

func (f *Failure) Error() string { return f.Message }

// Fail returns a Failure.
func Fail(format string, args ...any) error { return &Failure{fmt.Sprintf(format, args...)} }

// LogLine is a line that a script logged.
type LogLine struct {
	Level    string          `json:"level"`
	Text     string          `json:"text"`
	Fields   json.RawMessage `json:"fields,omitempty"`
	Position bundle.Position `json:"position"`
}

// Stop ends the run with an output.
type Stop struct {
	Message         string `json:"message"`
	PublishOutbound bool   `json:"publish_outbound"`
}

// Result is the outcome of a call. Logs, DroppedLogs and Steps are also set if the call failed.
type Result struct {
	// Value is the result as JSON. It is nil if the script stopped or aborted.
	Value json.RawMessage
	// Context is the changed part of the run's context, nil if the script did not change it.
	Context json.RawMessage
	// Stop is set if the script called stop, Abort if it called abort.
	Stop  *Stop
	Abort json.RawMessage

	Logs []LogLine
	// DroppedLogs counts lines beyond the budget.
	DroppedLogs int
	Steps       uint64
}

// Frame is a function on the call stack of an error.
type Frame struct {
	Function string          `json:"function"`
	Position bundle.Position `json:"position"`
}

// Error is the error of a script.
type Error struct {
	Code runerror.Code `json:"code"`
	// Message is for models: one line without paths, at most 2 KiB.
	Message string `json:"message"`
	// Stack is the call stack, outermost first. It is empty if the process of the script died.
	Stack []Frame `json:"stack,omitempty"`
	// Cause is more of the error for logs, such as the file that a load failed in.
	Cause string `json:"cause,omitempty"`
}

// Error returns the code and the message.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Position returns the position of the error, with no file if it is unknown.
func (e *Error) Position() bundle.Position {
	if len(e.Stack) == 0 {
		return bundle.Position{}
	}
	return e.Stack[len(e.Stack)-1].Position
}

// Detail returns the error for logs, with its position and call stack.
func (e *Error) Detail() string {
	text := e.Message
	if e.Cause != "" {
		text += ": " + e.Cause
	}
	if len(e.Stack) == 0 {
		return text
	}
	text = e.Position().String() + ": " + text
	for i := len(e.Stack) - 1; i >= 0; i-- {
		text += fmt.Sprintf("\n  in %s at %s", e.Stack[i].Function, e.Stack[i].Position)
	}
	return text
}

// limitError returns an error with the code script_limit.
func limitError(format string, args ...any) *Error {
	return &Error{Code: runerror.ScriptLimit, Message: fmt.Sprintf(format, args...)}
}

// asFailure returns the Failure in an error, or nil.
func asFailure(err error) *Failure {
	var failure *Failure
	if errors.As(err, &failure) {
		return failure
	}
	return nil
}
