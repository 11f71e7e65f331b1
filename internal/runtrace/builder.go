// SPDX-License-Identifier: Apache-2.0

package runtrace

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/tracecontext"
)

// Builder computes a trace from a journal that is read in pages.
type Builder struct {
	// Version is the digest of the bundle that executes the run; "" if it is not known. It is set before the first entry.
	Version string

	run     string
	spans   []*Span
	at      map[string]*Span // spans by position
	parents map[*Span]around
	beyond  map[string]bool // IDs of spans beyond MaxSpans
	waiting *Span
	// changed are the spans that the last entry began, changed or ended.
	changed  []*Span
	lines    []Line
	logged   int // lines of all entries, lineSize their bytes
	lineSize int
	contents int
	moreLine int
}

// around is the position of the span around a span, and its ID.
type around struct{ position, id string }

// NewBuilder returns a builder for the journal of a run.
func NewBuilder(run string) *Builder {
	return &Builder{run: run, at: map[string]*Span{}, parents: map[*Span]around{}, beyond: map[string]bool{}}
}

// Positions of spans that have no ID in the journal.
const (
	agentPosition   = "agent:"
	modelPosition   = "model:"
	mcpPosition     = "mcp:"
	failurePosition = "failure:"
	waitPosition    = "wait:"
	// effectSeparator separates the ID of a call or step from the number of an effect inside.
	effectSeparator = "/"
)

// Limits of what a journal of a foreign runner can make of a trace.
const (
	// maxPath limits the path of an agent in bytes, maxPathDepth its number of agents.
	maxPath      = 4 << 10
	maxPathDepth = 100
	// maxName limits names and texts of attributes in bytes, maxPosition positions in memory, maxErrorText the text of an error.
	maxName      = 256
	maxPosition  = 256
	maxErrorText = 2 << 10
)

// stepStarted is the outcome of a step that has begun. An entry with the same ID follows when it ends.
const stepStarted = "started"

// SpanID returns the ID of the span at a position of a run, as in the traceparent of requests.
func SpanID(run, position string) string { return tracecontext.SpanOf(run, position).String() }

// AddEntry reads the next entry. Entries of an unknown kind add nothing. The error names an entry that cannot be read.
func (b *Builder) AddEntry(e *Entry) (err error) {
	b.changed = b.changed[:0]
	switch e.Kind {
	case dispatchapi.JournalModelAnswer, dispatchapi.JournalModelFailure:
		var a answerEntry
		if err = decodeEntry(e, &a); err == nil {
			b.addAnswer(e, &a)
		}
	case dispatchapi.JournalToolStarted:
		var s startedEntry
		if err = decodeEntry(e, &s); err == nil {
			b.addStart(e, &s)
		}
	case dispatchapi.JournalToolResult:
		var r resultEntry
		if err = decodeEntry(e, &r); err == nil {
			b.addResult(e, &r)
		}
	case dispatchapi.JournalStep:
		var s stepEntry
		if err = decodeEntry(e, &s); err == nil {
			b.addStep(e, &s)
		}
	case dispatchapi.JournalWait:
		var w waitEntry
		if err = decodeEntry(e, &w); err == nil {
			b.addWait(e, &w)
		}
	case dispatchapi.JournalResumed, dispatchapi.JournalExpired:
		b.endWait(e)
	}
	return err
}

func decodeEntry(e *Entry, into any) error {
	if err := exactjson.Decode(e.Data, into); err != nil {
		return fmt.Errorf("reading journal entry %d: %w", e.Sequence, err)
	}
	return nil
}

// newSpan adds a span, or only counts it beyond the limit. A position has one span: another one at the same position is not part
// of the trace. The caller sets the rest.
func (b *Builder) newSpan(position string, kind Kind, name string) *Span {
	s := &Span{ID: SpanID(b.run, position), Position: shortPosition(position), Kind: kind, Name: cutName(name), Attributes: map[string]any{}}
	switch {
	case position == "" || b.at[s.Position] != nil: // "" is the run
		return s
	case len(b.spans) >= MaxSpans-1: // one is the run
		b.beyond[s.ID] = true
		return s
	}
	b.spans = append(b.spans, s)
	b.at[s.Position] = s
	b.changed = append(b.changed, s)
	return s
}

// shortPosition returns a position, or a digest of a long one, which a foreign runner may have written.
func shortPosition(position string) string {
	if len(position) <= maxPosition {
		return position
	}
	return "sha256:" + digestOf(position)
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// spanAt returns the span at a position, or nil.
func (b *Builder) spanAt(position string) *Span { return b.at[shortPosition(position)] }

// cutName cuts a name, or a text of an attribute.
func cutName(name string) string { return excerpt.Of(name, maxName, excerpt.Ellipsis) }

// setParent puts a span of the trace into the span at a position.
func (b *Builder) setParent(s *Span, position string) {
	if b.at[s.Position] != s {
		return
	}
	at := around{shortPosition(position), SpanID(b.run, position)}
	if known := b.at[at.position]; known != nil {
		at.id = known.ID
	}
	b.parents[s] = at
}

// agentOf returns the span of the agent at a path, and creates the spans of the agents around it. It returns nil for a path that
// no engine writes, or whose position another span has.
func (b *Builder) agentOf(path string) *Span {
	if path == "" || len(path) > maxPath || strings.Count(path, "/") >= maxPathDepth {
		return nil
	}
	if known := b.spanAt(agentPosition + path); known != nil {
		if known.Kind != KindAgent {
			return nil
		}
		return known
	}
	if len(b.spans) >= MaxSpans-1 { // to look for the agents around it would cost more with each entry
		b.beyond[SpanID(b.run, agentPosition+path)] = true
		return nil
	}
	around, name := "", path
	if i := strings.LastIndex(path, "/"); i >= 0 {
		around = path[:i]
		if _, agent, ok := strings.Cut(path[i+1:], ":"); ok {
			name = agent
		} else {
			return b.agentOf(around) // a tool of a step
		}
	}
	parent := b.agentOf(around)
	s := b.newSpan(agentPosition+path, KindAgent, "invoke_agent "+name)
	s.Attributes["gen_ai.operation.name"] = "invoke_agent"
	b.nameAgent(s, name)
	if parent != nil {
		b.setParent(s, parent.Position)
		parent.Name = strings.Replace(parent.Name, "invoke_agent", "invoke_workflow", 1)
		parent.Attributes["gen_ai.operation.name"] = "invoke_workflow"
		parent.Attributes["gen_ai.workflow.name"] = parent.Attributes["gen_ai.agent.name"]
		b.changed = append(b.changed, parent)
	}
	return s
}

// nameAgent adds the name and the version of an agent to the span of the agent or of its run.
func (b *Builder) nameAgent(s *Span, name string) {
	s.Attributes["gen_ai.agent.name"] = cutName(name)
	if b.Version != "" {
		s.Attributes["gen_ai.agent.version"] = cutName(b.Version)
	}
}

// placeSpan puts a span into the span at a position, or else into an agent.
func (b *Builder) placeSpan(s *Span, owner, agent string) {
	if owner != "" && b.spanAt(owner) != nil {
		b.setParent(s, owner)
	} else if a := b.agentOf(agent); a != nil {
		b.setParent(s, a.Position)
	} else if owner != "" {
		b.setParent(s, owner) // it may follow
	}
}

func (b *Builder) addStart(e *Entry, started *startedEntry) {
	s := b.callSpan(started.CallID, started.Tool, started.Type, started.Agent, started.Digest)
	s.Start, _ = started.timesOf(e.At)
	s.Sequence = e.Sequence
	s.Input = b.keepContent(started.Arguments)
	if started.Type == TypeMCP && started.Digest == "" {
		b.addRequest(s, started.CallID, started.Tool)
	}
}

// callSpan adds the span of a call of a tool, or of an effect inside a script.
func (b *Builder) callSpan(id, tool, toolType, agent, digest string) *Span {
	if digest != "" {
		s := b.newSpan(id, KindEffect, tool)
		owner := id
		if i := strings.LastIndex(id, effectSeparator); i >= 0 {
			owner = id[:i]
		}
		s.Attributes["agentplatform.effect.name"] = cutName(tool)
		b.placeSpan(s, owner, agent)
		return s
	}
	s := b.newSpan(id, KindTool, "execute_tool "+tool)
	s.Attributes["gen_ai.operation.name"] = "execute_tool"
	s.Attributes["gen_ai.tool.name"] = cutName(tool)
	s.Attributes["gen_ai.tool.call.id"] = cutName(id)
	s.Attributes["gen_ai.tool.type"] = cmp.Or(toolTypes[toolType], "function")
	if toolType != "" {
		s.Attributes["agentplatform.tool.type"] = cutName(toolType)
	}
	b.placeSpan(s, "", agent)
	return s
}

func (b *Builder) addResult(e *Entry, r *resultEntry) {
	s := b.spanAt(r.CallID)
	if s == nil { // a read, which has no start
		s = b.callSpan(r.CallID, r.Tool, "", r.Agent, r.Digest)
		s.Start, s.End = r.timesOf(e.At)
	} else if r.Milliseconds != nil {
		s.End = s.Start.Add(durationOf(*r.Milliseconds))
	} else {
		s.End = e.At
	}
	s.Sequence = e.Sequence
	b.changed = append(b.changed, s)
	if r.Error != "" {
		s.ErrorType, s.Error = cutName(cmp.Or(r.Code, "tool_error")), excerpt.Of(r.Error, maxErrorText, excerpt.Ellipsis)
	} else {
		s.Output = b.keepContent(r.Result)
	}
	b.endRequest(s, r)
	b.addLines(e, s, r.logged)
}

func (b *Builder) addStep(e *Entry, entry *stepEntry) {
	s := b.spanAt(entry.ID)
	if s == nil {
		kind, owner := stepKind(entry.ID)
		s = b.newSpan(entry.ID, kind, cmp.Or(entry.Kind, string(kind)))
		s.Start, _ = entry.timesOf(e.At)
		if entry.Agent == "" && b.spanAt(owner) == nil {
			entry.Agent = owner
		}
		b.placeSpan(s, owner, entry.Agent)
	}
	s.Sequence = e.Sequence
	if entry.Outcome == stepStarted {
		return
	}
	b.changed = append(b.changed, s)
	_, s.End = entry.timesOf(e.At)
	s.Attributes["agentplatform.outcome"] = cutName(entry.Outcome)
	s.Output = b.keepContent(entry.Result)
	b.addLines(e, s, entry.logged)
}

// stepKind returns the kind and the owner of a step from its ID, which is <kind>:<owner>:<number or name>. The owner is the
// path of an agent, or the ID of a call.
func stepKind(id string) (kind Kind, owner string) {
	before, rest, _ := strings.Cut(id, ":")
	if i := strings.LastIndex(rest, ":"); i >= 0 {
		owner = rest[:i]
	}
	if kind := Kind(before); slices.Contains([]Kind{KindMiddleware, KindHook, KindGuardrail}, kind) {
		return kind, owner
	}
	return KindStep, owner
}

func (b *Builder) addWait(e *Entry, w *waitEntry) {
	s := b.newSpan(waitPosition+strconv.FormatInt(e.Sequence, 10), KindWait, strings.TrimSpace("wait "+w.Kind))
	s.Start, s.Sequence = e.At, e.Sequence
	b.waiting = s
}

func (b *Builder) endWait(e *Entry) {
	s := b.waiting
	if s == nil {
		return
	}
	b.waiting = nil
	b.changed = append(b.changed, s)
	s.End, s.Sequence = e.At, e.Sequence
	s.Attributes["agentplatform.outcome"] = e.Kind
}

// keepContent returns a content as it is shown, and nil for null.
func (b *Builder) keepContent(value json.RawMessage) json.RawMessage {
	if len(value) == 0 || string(value) == "null" {
		return nil
	}
	if len(value) > MaxContent || b.contents+len(value) > MaxContents {
		return fmt.Appendf(nil, `{"omitted_bytes": %d}`, len(value))
	}
	b.contents += len(value)
	return slices.Clone(value)
}
