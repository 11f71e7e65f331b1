// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/runner/model"
)

// modelAnswer is the data of a model_answer entry.
type modelAnswer struct {
	// Agent is the path of the agent in the tree. Turn is the number of the answer, from 1.
	Agent        string             `json:"agent"`
	Turn         int                `json:"turn"`
	Content      *model.Content     `json:"content"`
	FinishReason model.FinishReason `json:"finish_reason,omitempty"`
	modelRequest
}

// modelFailure is the data of a model_failure entry: an unusable answer, or the last failed attempt of a request without an answer.
type modelFailure struct {
	Agent string `json:"agent"`
	Turn  int    `json:"turn"`
	Error string `json:"error"`
	modelRequest
}

// modelRequest has the fields of entries about a request to a model. Only traces use the fields without a usage or a cost.
type modelRequest struct {
	// Model is the reference of the model, Server its server.
	Model  string           `json:"model"`
	Server *runtrace.Server `json:"server,omitempty"`
	// ResponseModel is the name of the model in the answer of the service.
	ResponseModel string   `json:"response_model,omitempty"`
	Temperature   *float64 `json:"temperature,omitempty"`
	// MaxOutputTokens is the limit of the answer; 0 without one.
	MaxOutputTokens int `json:"max_output_tokens,omitempty"`
	// Attempts are the failed attempts of the request that nobody paid for, at most runtrace.MaxEvents.
	Attempts []failedAttempt        `json:"attempts,omitempty"`
	Usage    dispatchapi.TokenUsage `json:"usage"`
	// Cost is nil without a known price.
	Cost *dispatchapi.Cost `json:"cost,omitempty"`
	period
}

// failedAttempt is an attempt of a request to a model, and why it failed.
type failedAttempt struct {
	Model string `json:"model"`
	Error string `json:"error"`
	period
}

// isPaid reports whether a model has used tokens.
func (r modelRequest) isPaid() bool { return r.Usage != dispatchapi.TokenUsage{} }

// period is the time of an entry. Only traces use it, so it is not the same in all attempts.
type period struct {
	// At is the begin. A tool_result has it only if no tool_started announced the action.
	At           time.Time `json:"at,omitzero"`
	Milliseconds int64     `json:"ms"`
}

// periodSince returns the time from a begin to now.
func (e *Engine) periodSince(begin time.Time) period {
	return period{At: begin.UTC().Truncate(time.Millisecond), Milliseconds: max(0, e.cfg.Now().Sub(begin).Milliseconds())}
}

// toolStarted is the data of a tool_started entry: a call of a tool, or an effect of a script.
type toolStarted struct {
	Agent  string `json:"agent"`
	CallID string `json:"call_id"`
	Tool   string `json:"tool"`
	// Type is the type of the tool in traces.
	Type      string         `json:"type,omitempty"`
	Arguments map[string]any `json:"arguments"`
	// Sends is true if the tool sends to a connector.
	Sends bool `json:"sends,omitempty"`
	// Digest is the digest of the tool and the arguments of an effect; "" for a call of a model.
	Digest string `json:"digest,omitempty"`
	// At is the time when the action began.
	At time.Time `json:"at,omitzero"`
	// Tells is true if the model learns of an interrupted action, which is neither repeated nor fails the run.
	Tells bool `json:"tells,omitempty"`
}

// toolResult is the data of a tool_result entry: a result or an error. Digest is that of toolStarted.
type toolResult struct {
	// Agent is the path of the agent, if no tool_started has it.
	Agent  string         `json:"agent,omitempty"`
	CallID string         `json:"call_id"`
	Tool   string         `json:"tool"`
	Digest string         `json:"digest,omitempty"`
	Result map[string]any `json:"result,omitempty"`
	Error  string         `json:"error,omitempty"`
	// Context are the changed values of the run's context; null for a deleted one.
	Context map[string]any `json:"context,omitempty"`
	// Code is the code of an error; "" for most.
	Code string    `json:"code,omitempty"`
	Log  []LogLine `json:"log,omitempty"`
	// MoreLog is the number of lines that did not fit into the log.
	MoreLog int `json:"more_log,omitempty"`
	// Stop is set if the tool ended the run.
	Stop *Stop `json:"stop,omitempty"`
	contact
	period
}

// stepEntry is the data of a step entry: a script or check that ended and does not run again.
type stepEntry struct {
	ID string `json:"id"`
	// Agent is the path of the agent.
	Agent string `json:"agent,omitempty"`
	Kind  string `json:"kind"`
	// At is the begin of the step, Milliseconds its duration.
	At           time.Time `json:"at"`
	Milliseconds int64     `json:"ms"`
	// Outcome is a word of the kind, such as "ended" or "blocked". With "started" the script has begun, and another entry
	// with the same ID follows when it ends.
	Outcome string `json:"outcome"`
	// Code is the error code of a script that failed.
	Code   string          `json:"code,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	// Context are the changed values of the run's context; null for a deleted one.
	Context map[string]any `json:"context,omitempty"`
	Log     []LogLine      `json:"log,omitempty"`
	// MoreLog is the number of lines that did not fit into the log.
	MoreLog int `json:"more_log,omitempty"`
	// Facts are the values of a script that has begun.
	Facts map[string]any `json:"facts,omitempty"`
	// position is the sequence of the entry.
	position int64
}

// waitEntry is the data of a wait entry: the run gave up its slot until something happens. The platform appends a
// resumed or expired entry when the wait ends.
type waitEntry struct {
	ID    string         `json:"id"`
	Kind  string         `json:"kind"`
	Until time.Time      `json:"until"`
	About map[string]any `json:"about,omitempty"`
}

// CallRecord is a tool call of a run.
type CallRecord struct {
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments"`
}

// Calls returns the tool calls of models in a journal and the sends of middleware, in order, without other effects of
// scripts.
func Calls(journal []dispatchapi.JournalEntry) (out []CallRecord, err error) {
	for _, entry := range journal {
		if entry.Kind != dispatchapi.JournalToolStarted {
			continue
		}
		var c struct {
			CallRecord
			Digest string `json:"digest"`
			Sends  bool   `json:"sends"`
		}
		if err := exactjson.Decode(entry.Data, &c); err != nil {
			return nil, fmt.Errorf("reading journal entry %d: %w", entry.Sequence, err)
		}
		if c.Digest == "" || c.Sends {
			out = append(out, c.CallRecord)
		}
	}
	return out, nil
}

// ownerPrefixes begin the IDs of effects that belong to no call of a model.
var ownerPrefixes = []string{MiddlewareOwner, stepCalls, ScriptOwner, HookOwner, "guardrail:", "session:"}

// reserved reports whether a model's call must not have this ID, because an effect could have it.
func reserved(callID string) bool {
	for _, prefix := range ownerPrefixes {
		if strings.HasPrefix(callID, prefix) {
			return true
		}
	}
	return strings.Contains(callID, effectSeparator)
}

// loadEntry reads an entry of an earlier attempt.
func (r *recorder) loadEntry(e dispatchapi.JournalEntry) (err error) {
	switch e.Kind {
	case dispatchapi.JournalModelAnswer:
		var a modelAnswer
		if err = exactjson.Decode(e.Data, &a); err == nil {
			r.answers[turnKey{a.Agent, a.Turn}] = a
			if a.Content != nil {
				r.rememberCalls(a)
			}
			r.countUsage(a.Usage)
			r.finish = a.FinishReason
		}
	case dispatchapi.JournalModelFailure:
		var f modelFailure
		if err = exactjson.Decode(e.Data, &f); err == nil {
			if f.isPaid() {
				r.failures[f.Agent] = append(r.failures[f.Agent], f)
			}
			r.countUsage(f.Usage)
		}
	case dispatchapi.JournalToolStarted:
		var s toolStarted
		if err = exactjson.Decode(e.Data, &s); err == nil {
			r.started[s.CallID] = startedTool{name: s.Tool, digest: s.Digest, unsafe: e.Unsafe, sends: s.Sends, tells: s.Tells, position: e.Sequence, at: s.At}
		}
	case dispatchapi.JournalToolResult:
		var t toolResult
		if err = exactjson.Decode(e.Data, &t); err == nil {
			r.results[t.CallID] = t
			r.logs.countLines(t.Log)
		}
	case dispatchapi.JournalFile:
		f := fileEntry{position: e.Sequence}
		if err = exactjson.Decode(e.Data, &f); err == nil {
			r.addFile(f)
		}
	case dispatchapi.JournalStep:
		s := stepEntry{position: e.Sequence}
		if err = exactjson.Decode(e.Data, &s); err == nil {
			r.steps[s.ID] = s
			r.logs.countLines(s.Log)
		}
	case dispatchapi.JournalWait:
		var w waitEntry
		if err = exactjson.Decode(e.Data, &w); err == nil {
			r.waiting = &w
		}
	case dispatchapi.JournalResumed, dispatchapi.JournalExpired:
		r.waiting = nil
	default:
		return fmt.Errorf("%w: kind %q", ErrLaterJournal, e.Kind)
	}
	return err
}

// interrupted returns an error for a tool with an unknown effect, or for an unreadable journal.
func (r *recorder) interrupted() error {
	switch {
	case errors.Is(r.broken, ErrLaterJournal):
		return r.broken
	case r.broken != nil:
		return &failure{code: runerror.Internal, message: "the run's journal cannot be read", cause: r.broken}
	case r.waiting != nil:
		return fmt.Errorf("%w: the run waits (%s)", ErrLaterJournal, r.waiting.Kind)
	}
	for id, s := range r.started {
		if _, done := r.results[id]; !done && s.unsafe {
			return &failure{code: runerror.ToolInterrupted, message: fmt.Sprintf(
				"tool %q was interrupted and may have taken effect; it is not declared idempotent, so it was not called again", s.name)}
		}
	}
	return nil
}
