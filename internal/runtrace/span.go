// SPDX-License-Identifier: Apache-2.0

// Package runtrace computes the spans and the log lines of a run from its journal. Nothing else is stored for them, so they
// cannot disagree with the journal and live as long as the run.
package runtrace

import (
	"encoding/json"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// Limits of a trace.
const (
	// MaxSpans limits the spans of a run, MaxLines its log lines. Spans and lines beyond them are counted.
	MaxSpans = 2000
	MaxLines = 500
	// MaxContent limits each input and output of a span, MaxContents all of them together, in bytes of JSON.
	MaxContent  = 16 << 10
	MaxContents = 1 << 20
	// MaxEvents limits the events of a span.
	MaxEvents = 50
)

// Kind is the kind of a span.
type Kind string

// Kinds of spans.
const (
	KindRun        Kind = "run"
	KindAgent      Kind = "agent"
	KindModel      Kind = "model"
	KindTool       Kind = "tool"
	KindMCP        Kind = "mcp"
	KindEffect     Kind = "effect" // of a script
	KindMiddleware Kind = "middleware"
	KindHook       Kind = "hook"
	KindGuardrail  Kind = "guardrail"
	KindStep       Kind = "step"
	KindWait       Kind = "wait"
)

// Kinds returns all kinds of spans.
func Kinds() []Kind {
	return []Kind{
		KindRun, KindAgent, KindModel, KindTool, KindMCP, KindEffect, KindMiddleware, KindHook, KindGuardrail, KindStep, KindWait,
	}
}

// Run is what a trace needs of a run besides its journal.
type Run struct {
	ID        string
	AgentName string
	// Status is the status of the run, ErrorCode and Error the reason of a failure.
	Status, ErrorCode, Error string
	Attempt                  int
	// Queued is the time of the event. Started is zero for a run that no runner has claimed, and Ended for an open run.
	Queued, Started, Ended time.Time
}

// Entry is an entry of the journal of a run.
type Entry struct {
	Sequence int64
	// Kind is a kind of dispatchapi, Data its JSON.
	Kind string
	Data json.RawMessage
	// At is the time when the store got the entry. It is used if the entry itself has no time, and for waits.
	At time.Time
}

// NewEntry returns an entry with its time, which no reader of a store may leave out.
func NewEntry(sequence int64, kind string, data json.RawMessage, at time.Time) Entry {
	return Entry{Sequence: sequence, Kind: kind, Data: data, At: at}
}

// Span is something that a run did.
type Span struct {
	// ID has 16 hexadecimal digits and is derived from the run and Position. Parent is the ID of the span around this one,
	// or "" for the run.
	ID, Parent string
	// Position is unique in the run: "" for the run itself, and the ID of a call or step for its span, or a digest of a long one.
	Position string
	Kind     Kind
	// Name is the name of OpenTelemetry's conventions for generative AI.
	Name string
	// Start is the begin. End is zero for a span that has not ended.
	Start, End time.Time
	// Sequence is the last journal entry of the span, or 0 for the run and its agents.
	Sequence int64
	// Depth is the number of spans around this one.
	Depth int
	// ErrorType is a code and Error a text for people. Both are "" for a span without an error.
	ErrorType, Error string
	// Attributes have the names of OpenTelemetry's conventions, or begin with "agentplatform.".
	Attributes map[string]any
	// Events are the failed attempts of a model request, in order.
	Events []Event
	// Input and Output are JSON, or nil. A large value is {"omitted_bytes": n}.
	Input, Output json.RawMessage
	// Usage is the usage of a model request, or nil. Cost is nil without a known price.
	Usage *dispatchapi.TokenUsage
	Cost  *dispatchapi.Cost
}

// Event is something that happened in a span.
type Event struct {
	At   time.Time
	Name string
	// Attributes are as in Span.
	Attributes map[string]any
}

// attemptEvent is the name of the event for a failed attempt of a model request, after which the request was sent again.
const attemptEvent = "agentplatform.attempt"

// HasEnded reports whether the span has ended.
func (s *Span) HasEnded() bool { return !s.End.IsZero() }

// Duration returns the duration of a span that has ended.
func (s *Span) Duration() time.Duration { return s.End.Sub(s.Start) }

// Line is a line of the log of a run.
type Line struct {
	// At is the time when the call or step that wrote the line ended.
	At time.Time
	// Level is debug, info, warning or error.
	Level string
	Text  string
	// Fields is a JSON object, or nil.
	Fields json.RawMessage
	// Position is a file with line and column, or "".
	Position string
	// SpanID is the span that wrote the line, Sequence its journal entry.
	SpanID   string
	Sequence int64
}

// Trace has the spans and log lines of a run.
type Trace struct {
	// Spans are in the order of the tree: each span follows the span around it, and siblings are in the order of their begin.
	Spans []Span
	// Lines are in the order of the journal.
	Lines []Line
	// MoreSpans and MoreLines are the numbers of spans and lines beyond the limits.
	MoreSpans, MoreLines int
}

// ComputeTrace returns the trace of a run and its journal. The error names an entry that cannot be read.
func ComputeTrace(run Run, entries []Entry) (Trace, error) {
	b := NewBuilder(run.ID)
	for i := range entries {
		if err := b.AddEntry(&entries[i]); err != nil {
			return Trace{}, err
		}
	}
	return b.BuildTrace(run), nil
}
