// SPDX-License-Identifier: Apache-2.0

package runtrace

import (
	"cmp"
	"slices"
	"time"
)

// BuildTrace returns the trace of the entries so far.
func (b *Builder) BuildTrace(run Run) Trace {
	out := Trace{Lines: b.lines, MoreSpans: len(b.beyond), MoreLines: b.moreLine}
	root := b.runSpan(run)
	children := map[string][]*Span{}
	all := make([]*Span, len(b.spans))
	for i, s := range b.spans {
		shown := *s
		all[i] = &shown
		shown.Parent = root.ID
		if around := b.findParent(s); around != nil {
			all[i].Parent = around.ID
		}
		children[all[i].Parent] = append(children[all[i].Parent], all[i])
		if s.Kind != KindAgent && !s.HasEnded() && !run.Ended.IsZero() {
			all[i].End, all[i].ErrorType, all[i].Error = latestTime(s.Start, run.Ended), "interrupted", "the run ended first"
		}
	}
	spanAgents(all, children, run)
	for _, siblings := range children {
		slices.SortStableFunc(siblings, func(a, b *Span) int { return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.Sequence, b.Sequence)) })
	}
	out.Spans = appendTree(make([]Span, 0, len(all)+1), root, children, 0)
	return out
}

// findParent returns the span around a span, or nil for the run.
func (b *Builder) findParent(s *Span) *Span {
	around := b.at[b.parents[s].position]
	for at, depth := around, 0; at != nil; at = b.at[b.parents[at].position] {
		if depth++; at == s || depth > MaxSpans { // a journal with a circle, which no engine writes
			return nil
		}
	}
	return around
}

// runSpan returns the span of the run itself.
func (b *Builder) runSpan(run Run) *Span {
	s := &Span{
		ID: SpanID(run.ID, ""), Kind: KindRun, Name: "run " + run.AgentName, Start: run.Started, End: run.Ended,
		Attributes: map[string]any{
			"agentplatform.run.id": run.ID, "agentplatform.run.status": run.Status, "agentplatform.run.attempt": run.Attempt,
		},
		ErrorType: run.ErrorCode, Error: cmp.Or(run.Error, run.ErrorCode),
	}
	if s.Start.IsZero() {
		s.Start = run.Queued
	}
	b.nameAgent(s, run.AgentName)
	return s
}

// spanAgents gives each agent the time of its children. An agent around others is created before them, so the last ones come
// first. The last agent of an open run has not ended.
func spanAgents(all []*Span, children map[string][]*Span, run Run) {
	for _, s := range slices.Backward(all) {
		if s.Kind != KindAgent {
			continue
		}
		isOpen := false
		for _, child := range children[s.ID] {
			if s.Start.IsZero() || child.Start.Before(s.Start) {
				s.Start = child.Start
			}
			s.End = latestTime(s.End, child.End)
			isOpen = isOpen || !child.HasEnded()
		}
		if isOpen && run.Ended.IsZero() {
			s.End = time.Time{}
		}
	}
}

func latestTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// appendTree appends a span and the spans in it.
func appendTree(out []Span, s *Span, children map[string][]*Span, depth int) []Span {
	s.Depth = depth
	out = append(out, *s)
	for _, child := range children[s.ID] {
		out = appendTree(out, child, children, depth+1)
	}
	return out
}
