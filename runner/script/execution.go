// SPDX-License-Identifier: Apache-2.0

package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// execution is a call that a child executes, as the parent sees it.
type execution struct {
	pool  *Pool
	child *process
	slot  *slot
	call  *Call
	host  Host
	// requests, writes, reads and web count requests to the host.
	requests, writes, reads, web int
	result                       Result
	// hostError is the error of the host that ended the script.
	hostError error
	// own is the computing time of the script, total the time of the call. Neither includes waits for a slot.
	own, total *stopwatch
	// offers are the built-ins that the script may request.
	offers []string
	// reusable is true if the child can execute another call.
	reusable bool
	// heard is true if the child sent a message. wasDead is true if the child had ended before the call, which then had no
	// effect.
	heard, wasDead bool
}

// stopwatch ends a script that has used up its time. It can stand still.
type stopwatch struct {
	clock clock
	// expire ends the script.
	expire  func()
	mu      sync.Mutex // guards the fields below
	left    time.Duration
	since   time.Time
	stop    func() bool
	expired bool
}

// resumeTimer continues. A nil stopwatch does nothing.
func (s *stopwatch) resumeTimer() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = s.clock.now()
	s.stop = s.clock.after(s.left, func() {
		s.mu.Lock()
		s.expired = true
		s.mu.Unlock()
		s.expire()
	})
}

func (s *stopwatch) pauseTimer() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	s.left = max(s.left-s.clock.now().Sub(s.since), 0)
}

func (s *stopwatch) hasExpired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expired
}

// errUnconfined is the error of a child that cannot confine its process.
var errUnconfined = errors.New("the process of a script could not be confined")

// errTotalTime is the cause of a context whose script took too long.
var errTotalTime = errors.New("the script took too long")

// execute sends the call to the child and serves its requests.
func (e *execution) execute(ctx context.Context) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, e.child.killChild)()
	e.own = &stopwatch{clock: e.pool.clock, expire: e.child.killChild, left: e.call.Limits.OwnTime}
	if e.call.Limits.TotalTime > 0 {
		e.total = &stopwatch{clock: e.pool.clock, expire: func() { cancel(errTotalTime) }, left: e.call.Limits.TotalTime}
	}
	message, err := e.message()
	if err != nil {
		e.reusable = true // The child does not know of the call.
		return e.result, err
	}
	done, err := e.converse(ctx, message)
	if err != nil {
		e.wasDead = !e.heard && ctx.Err() == nil && !e.own.hasExpired() && !errors.Is(err, errUnsent)
		return e.result, e.explainLoss(ctx, err)
	}
	e.reusable = ctx.Err() == nil && !e.own.hasExpired()
	return e.finishCall(done)
}

// lost returns the error of a call whose child is gone.
func (e *execution) explainLoss(ctx context.Context, err error) error {
	limits := e.call.Limits
	switch {
	case e.own.hasExpired():
		return limitError("the script needs more than %s of computing time", limits.OwnTime)
	case errors.Is(context.Cause(ctx), errTotalTime):
		return limitError("the script needs more than %s", limits.TotalTime)
	case e.hostError != nil:
		return e.hostError
	case errors.Is(err, errUnconfined):
		return err
	case errors.Is(err, errTakenOver):
		return &Error{Code: runerror.ScriptError, Message: errTakenOver.Error(), Cause: err.Error()}
	case errors.Is(err, errUnsent):
		return fmt.Errorf("calling %s in %s: %w", e.call.Function, e.call.File, err)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	out := limitError("the process of the script ended; the script probably needs more than %d MiB of memory", e.pool.options.Memory>>20)
	out.Cause = err.Error()
	return out
}

// converse sends the call and serves the child until it is done.
func (e *execution) converse(ctx context.Context, message toChild) (*doneMessage, error) {
	e.own.resumeTimer()
	defer e.own.pauseTimer()
	e.total.resumeTimer()
	defer e.total.pauseTimer()
	if err := e.child.loadSources(e.call); err != nil {
		return nil, err
	}
	if err := writeMessage(e.child.in, message); err != nil {
		return nil, err
	}
	for {
		message, err := e.child.receive()
		e.heard = e.heard || err == nil
		switch {
		case err != nil:
			return nil, err
		case message.Unconfined != "":
			return nil, fmt.Errorf("%w: %s", errUnconfined, oneLine(message.Unconfined))
		case message.Done != nil:
			return message.Done, e.checkDone(message.Done)
		case message.Log != nil:
			e.keepLine(message.Log)
		case message.Request != nil && !e.canRequest(message.Request.Name):
			return nil, fmt.Errorf("%w: it asked for %s", errTakenOver, oneLine(strconv.Quote(message.Request.Name)))
		case message.Request != nil:
			answer, err := e.serveRequest(ctx, message.Request)
			if err != nil {
				return nil, err
			}
			if err := writeMessage(e.child.in, toChild{Answer: answer}); err != nil {
				return nil, err
			}
		default:
			return nil, errors.New("the child sent an unexpected message")
		}
	}
}

// requestNames are the built-ins that ask the parent. The list is computed once, because each call needs it.
var requestNames = func() (names []string) {
	for _, b := range bundle.Builtins() {
		if b.Effect != bundle.EffectNone {
			names = append(names, b.Name)
		}
	}
	return names
}()

// message returns the message of the call.
func (e *execution) message() (toChild, error) {
	c := e.call
	if size := len(c.Args) + len(c.Context) + len(c.ReadOnly); size > MaxInput {
		return toChild{}, limitError("the arguments have %d bytes, at most %d are allowed", size, MaxInput)
	}
	message := &callMessage{
		File: c.File, Function: c.Function, Args: c.Args, Context: c.Context, ReadOnly: c.ReadOnly, TakesContext: c.TakesContext,
		Payload: c.Payload, Files: c.Files, Owner: c.Owner, Limits: c.Limits, Logs: c.Logs, Now: c.Now, Seed: c.Seed[:],
	}
	for _, name := range requestNames {
		if builtins[name].IsFor(c.Owner) && c.Offers != nil && c.Offers(name) {
			message.Offers = append(message.Offers, name)
		}
	}
	e.offers = message.Offers
	return toChild{Call: message}, nil
}

// serveRequest answers a request while the script does not compute. Other scripts have its slot until the answer is there.
// A value that the runner has is no reason to wait, and the script keeps its slot. The error is the context's.
func (e *execution) serveRequest(ctx context.Context, message *requestMessage) (*answerMessage, error) {
	e.own.pauseTimer()
	defer e.own.resumeTimer()
	if effectOf(message.Name) == bundle.EffectLocal {
		return e.answerRequest(ctx, message), nil
	}
	e.pool.pauseSlot(e.slot, e.child)
	answer := e.answerRequest(ctx, message)
	e.total.pauseTimer()
	defer e.total.resumeTimer()
	return answer, e.pool.resumeSlot(ctx, e.slot)
}

// answerRequest answers a request of the script.
func (e *execution) answerRequest(ctx context.Context, message *requestMessage) *answerMessage {
	request := Request{Name: message.Name, Args: message.Args, Position: message.Position}
	if effect := effectOf(message.Name); effect != bundle.EffectLocal {
		request.Write = isWrite(effect, message.Args)
		if answer := e.countRequest(&request); answer != nil {
			return answer
		}
	}
	if e.host == nil {
		return &answerMessage{Failure: request.Name + " is not available"}
	}
	value, err := e.host.Handle(ctx, request)
	if err == nil && len(value) > MaxInput {
		err = Fail("the answer has %d bytes, at most %d are allowed", len(value), MaxInput)
	}
	failure := asFailure(err)
	switch {
	case err == nil:
		return &answerMessage{Value: value}
	case failure != nil && failure.Message != "":
		return &answerMessage{Failure: oneLine(request.Name + ": " + failure.Message)}
	}
	e.hostError = err
	return &answerMessage{Abandon: true}
}

// count counts a request, and returns an answer if there were too many.
func (e *execution) countRequest(request *Request) *answerMessage {
	e.requests++
	request.Number = e.requests
	count, limit, kind := &e.reads, e.call.Limits.Reads, "reads"
	if request.Write {
		count, limit, kind = &e.writes, e.call.Limits.Writes, "effects"
	}
	if *count++; *count > limit {
		return &answerMessage{Limit: fmt.Sprintf("the script asks for more than %d %s", limit, kind)}
	}
	if strings.HasPrefix(request.Name, "http.") {
		if e.web++; e.web > maxHTTP {
			return &answerMessage{Limit: fmt.Sprintf("the script sends more than %d HTTP requests", maxHTTP)}
		}
	}
	return nil
}

// maxHTTP limits the HTTP requests of a call.
const maxHTTP = 20

// effectOf returns the effect of a request. A signature with a sensitive key is computed by the host, and has none.
func effectOf(name string) bundle.Effect {
	if b := builtins[name]; b != nil && b.Effect != bundle.EffectNone {
		return b.Effect
	}
	return bundle.EffectLocal
}

// isWrite reports whether a request changes something outside.
func isWrite(effect bundle.Effect, args json.RawMessage) bool {
	if effect != bundle.EffectByMethod {
		return effect == bundle.EffectWrite
	}
	var request struct{ Method string }
	if err := exactjson.Decode(args, &request); err != nil {
		return true
	}
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return true
}

// finish returns the result that the child reported.
func (e *execution) finishCall(done *doneMessage) (Result, error) {
	e.result.DroppedLogs, e.result.Steps = done.DroppedLogs, done.Steps
	switch {
	case e.hostError != nil:
		return e.result, e.hostError
	case done.Error != nil:
		return e.result, done.Error
	}
	e.result.Value, e.result.Context, e.result.Stop, e.result.Abort = done.Value, done.Context, done.Stop, done.Abort
	return e.result, nil
}
