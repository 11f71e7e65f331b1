// SPDX-License-Identifier: Apache-2.0

package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// call is a call that a child executes.
type call struct {
	child   *child
	message *callMessage
	thread  *starlark.Thread
	context *contextMap
	// variables are the variables that the script asked for.
	variables map[string]starlark.Value
	// drawn counts the random numbers of the call.
	drawn   uint64
	dropped int
	// broken is the error of the pipe to the parent, which ends the child.
	broken error
}

func newCall(c *child, message *callMessage) *call {
	run := &call{child: c, message: message, variables: map[string]starlark.Value{}}
	run.thread = &starlark.Thread{Name: message.Function}
	run.thread.SetLocal(callKey, run)
	run.thread.SetMaxExecutionSteps(message.Limits.Steps)
	run.thread.OnMaxSteps = cancelForSteps
	return run
}

// execute calls the function. Its error is one of the pipe to the parent.
func (c *call) execute() (*doneMessage, error) {
	done := new(doneMessage)
	value, err := c.callFunction()
	var ended *ending
	switch {
	case errors.As(err, &ended):
		done.Stop, done.Abort, err = ended.stop, ended.abort, nil
	case err == nil:
		done.Value, err = c.encodeResult(value)
	}
	if err == nil {
		done.Context, err = c.changedContext()
	}
	if err != nil {
		done.Value, done.Stop, done.Abort, done.Error = nil, nil, nil, c.describe(err)
	}
	done.Steps, done.DroppedLogs = c.thread.Steps, c.dropped
	return done, c.broken
}

// run calls the function. A panic of the interpreter, or of a sensitive text, becomes an error.
func (c *call) callFunction() (value starlark.Value, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case misuse:
			value, err = nil, &starlark.EvalError{Msg: errSensitive.Error(), CallStack: p.stack}
		default:
			value, err = nil, fmt.Errorf("the interpreter failed: %v", p)
		}
	}()
	function, err := c.child.function(c.message.File, c.message.Function, c.message.Limits.Steps)
	if err != nil {
		return nil, &loadError{err}
	}
	kwargs, err := c.arguments()
	if err != nil {
		return nil, err
	}
	return starlark.Call(c.thread, function, nil, kwargs)
}

// loadError is an error before the function was called.
type loadError struct{ cause error }

func (e *loadError) Error() string { return "the script cannot be loaded" }
func (e *loadError) Unwrap() error { return e.cause }

func (c *call) arguments() (kwargs []starlark.Tuple, err error) {
	if len(c.message.Args) > 0 {
		value, err := decodeValue(c.message.Args)
		if err != nil {
			return nil, fmt.Errorf("the arguments: %w", err)
		}
		args, ok := value.(*starlark.Dict)
		if !ok {
			return nil, errors.New("the arguments are not an object")
		}
		kwargs = args.Items()
	}
	if !c.message.TakesContext {
		return kwargs, nil
	}
	if c.context, err = newContextMap(c.message.Context, c.message.ReadOnly); err != nil {
		return nil, err
	}
	if c.message.Payload {
		if err := c.context.addPayload(c, c.message.Files); err != nil {
			return nil, err
		}
	}
	return append(kwargs, starlark.Tuple{starlark.String("context"), c.context}), nil
}

func (c *call) encodeResult(value starlark.Value) (json.RawMessage, error) {
	limit := c.message.Limits.ResultBytes
	result, err := encodeValue(value, limit)
	switch {
	case errors.Is(err, errTooLarge):
		return nil, limitError("the result has more than %d bytes", limit)
	case err != nil:
		return nil, fmt.Errorf("the result: %w", err)
	}
	return result, nil
}

// changedContext returns the context of the run, or nil if the script did not change it.
func (c *call) changedContext() (json.RawMessage, error) {
	if c.context == nil {
		return nil, nil
	}
	after, err := c.context.encode()
	switch {
	case errors.Is(err, errTooLarge):
		return nil, limitError("the context has more than %d bytes", maxContext)
	case err != nil:
		return nil, fmt.Errorf("the context: %w", err)
	}
	before, err := newContextMap(c.message.Context, nil)
	if err != nil {
		return nil, err
	}
	hidden := &contextMap{Dict: before.Dict, readOnly: c.context.readOnly}
	unchanged, err := hidden.encode()
	if err == nil && bytes.Equal(unchanged, after) {
		return nil, nil
	}
	return after, nil
}

// canCall reports whether the script may call a built-in.
func (c *call) canCall(b *bundle.Builtin) bool {
	return b.IsFor(c.message.Owner) && (b.Effect == bundle.EffectNone || slices.Contains(c.message.Offers, b.Name))
}

// ask sends a request to the parent and waits for the answer.
func (c *call) askParent(name string, args []byte) (starlark.Value, error) {
	answer, err := c.exchange(&requestMessage{Name: name, Args: args, Position: c.position()})
	switch {
	case err != nil:
		c.broken = err
		return nil, err
	case answer.Limit != "":
		return nil, limitError("%s", answer.Limit)
	case answer.Abandon:
		return nil, errors.New("the host ended the script")
	case answer.Failure != "":
		return nil, errors.New(answer.Failure)
	}
	value, err := decodeValue(answer.Value)
	if err != nil {
		return nil, fmt.Errorf("%s: the answer: %w", name, err)
	}
	return value, nil
}

func (c *call) exchange(request *requestMessage) (*answerMessage, error) {
	if err := writeMessage(c.child.out, fromChild{Request: request}); err != nil {
		return nil, err
	}
	message, err := c.child.receive()
	if err == nil && message.Answer == nil {
		err = errors.New("the parent sent no answer")
	}
	if err != nil {
		return nil, err
	}
	return message.Answer, nil
}

// log sends a line to the parent, or counts it if the budget of the run is used up.
func (c *call) writeLog(level, text string, fields json.RawMessage) error {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = excerpt.Of(text, maxLogLine, "")
	budget := &c.message.Logs
	size := len(text) + len(fields)
	if budget.Lines < 1 || budget.Bytes < size {
		c.dropped++
		return nil
	}
	budget.Lines, budget.Bytes = budget.Lines-1, budget.Bytes-size
	err := writeMessage(c.child.out, fromChild{Log: &LogLine{level, text, fields, c.position()}})
	if err != nil {
		c.broken = err
	}
	return err
}

// position returns the place in the script that called a built-in.
func (c *call) position() bundle.Position {
	for depth := range c.thread.CallStackDepth() {
		if frame := c.thread.CallFrame(depth); isSource(frame.Pos) {
			return positionOf(frame.Pos)
		}
	}
	return bundle.Position{}
}

// isSource reports whether a position is in a script and not in a built-in.
func isSource(pos syntax.Position) bool { return pos.Line > 0 }

func positionOf(pos syntax.Position) bundle.Position {
	return bundle.Position{File: pos.Filename(), Line: int(pos.Line), Column: int(pos.Col)}
}

// describe returns the error of a script for its parent.
func (c *call) describe(err error) *Error {
	out := &Error{Code: runerror.ScriptError, Message: oneLine(err.Error())}
	var limit *Error
	if errors.As(err, &limit) {
		out.Code, out.Message = limit.Code, limit.Message
	}
	var load *loadError
	if errors.As(err, &load) {
		out.Message, out.Cause = load.Error(), oneLine(load.cause.Error())
	}
	var at *starlark.EvalError
	if errors.As(err, &at) {
		stack := at.CallStack
		for _, frame := range stack[max(len(stack)-maxFrames, 0):] {
			if isSource(frame.Pos) {
				out.Stack = append(out.Stack, Frame{frame.Name, positionOf(frame.Pos)})
			}
		}
		if strings.HasSuffix(at.Msg, reasonSteps) && errors.Unwrap(at) != nil {
			out.Code, out.Message = runerror.ScriptLimit, fmt.Sprintf("the script needs more than %d steps", c.message.Limits.Steps)
		}
	}
	return out
}

// maxFrames limits the call stack of an error to its innermost functions.
const maxFrames = 50

// oneLine returns a text for models: on one line, with at most maxErrorText bytes.
func oneLine(text string) string {
	text = excerpt.Of(text, 4*maxErrorText, "") // The text can be as large as the memory of the child.
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	return excerpt.Of(text, maxErrorText, "")
}
