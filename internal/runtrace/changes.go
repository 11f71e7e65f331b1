// SPDX-License-Identifier: Apache-2.0

package runtrace

import "slices"

// Changes are the spans and log lines of one entry.
type Changes struct {
	// Spans are the spans that the entry began, changed or ended, an agent before the spans in it. A script's effect can
	// come before its parent.
	Spans []Span
	Lines []Line
}

// TakeChanges returns the changes of the last entry. It forgets the contents of spans that have ended and all lines, so that
// a builder that follows a run stays small. The limits of a trace still count them.
func (b *Builder) TakeChanges() (out Changes) {
	out.Lines, b.lines = b.lines, nil
	slices.SortStableFunc(b.changed, func(x, y *Span) int { return agentsFirst(x) - agentsFirst(y) })
	for i, s := range b.changed {
		if b.at[s.Position] != s || slices.Contains(b.changed[:i], s) {
			continue
		}
		if s.Kind == KindAgent && s.Start.IsZero() {
			s.Start = b.changed[len(b.changed)-1].Start // its first span
		}
		shown := *s
		shown.Parent = SpanID(b.run, "")
		if around := b.parents[s]; around.position != "" && (b.at[around.position] == nil || b.findParent(s) != nil) {
			shown.Parent = around.id
		}
		out.Spans = append(out.Spans, shown)
		if s.Kind != KindAgent && s.HasEnded() {
			s.Input, s.Output, s.Attributes, s.Events, s.Usage, s.Cost = nil, nil, map[string]any{}, nil, nil, nil
		}
	}
	b.changed = nil
	return out
}

// agentsFirst is the order of the changes of an entry.
func agentsFirst(s *Span) int {
	if s.Kind == KindAgent {
		return 0
	}
	return 1
}

// EndRun returns the spans that the end of a run changes: the run itself, its agents, and what was in progress.
func (b *Builder) EndRun(run Run) (spans []Span) {
	for _, s := range b.BuildTrace(run).Spans {
		if known := b.at[s.Position]; known == nil || !known.HasEnded() {
			spans = append(spans, s)
		}
	}
	return spans
}

// Omitted returns the numbers of spans and lines beyond the limits so far.
func (b *Builder) Omitted() (spans, lines int) { return len(b.beyond), b.moreLine }

// RunSpan returns the span of the run itself.
func (b *Builder) RunSpan(run Run) Span { return *b.runSpan(run) }
