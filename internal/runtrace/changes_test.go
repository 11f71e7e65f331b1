// SPDX-License-Identifier: Apache-2.0

package runtrace

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A follower of a run that keeps the last change of each span has the spans of the whole trace, and its lines.
func TestTakeChanges_AddUpToTrace(t *testing.T) {
	t.Parallel()
	for name, c := range spanCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole, err := ComputeTrace(c.run, c.journal)
			require.NoError(t, err)
			b, known, lines := NewBuilder(c.run.ID), map[string]Span{}, []Line(nil)
			for i := range c.journal {
				require.NoError(t, b.AddEntry(&c.journal[i]))
				changes := b.TakeChanges()
				for _, s := range changes.Spans {
					require.NotEmpty(t, s.Parent)
					require.False(t, s.Start.IsZero(), s.Name)
					known[s.ID] = s
				}
				lines = append(lines, changes.Lines...)
			}
			for _, s := range b.EndRun(c.run) {
				known[s.ID] = s
			}
			require.Equal(t, whole.Lines, lines)
			require.Len(t, known, len(whole.Spans))
			for _, s := range whole.Spans {
				got := known[s.ID]
				if _, hasParent := known[got.Parent]; !hasParent {
					got.Parent = SpanID(c.run.ID, "")
				}
				if s.Kind == KindRun {
					got.Parent = ""
				}
				got.Depth = s.Depth // a follower computes it
				require.Equal(t, s, got)
			}
		})
	}
}

// An effect of a script can come before its script, whose ID its parent already has.
func TestTakeChanges_NamesParentThatFollows(t *testing.T) {
	t.Parallel()
	journal := journalOf(
		"tool_result", `{"call_id":"middleware:support:1/1","tool":"http.get","digest":"d","ms":5}`,
		"step", `{"id":"middleware:support:1","kind":"before","at":"2026-03-02T10:00:00Z","ms":9,"outcome":"ended"}`,
	)
	b := NewBuilder("r1")
	require.NoError(t, b.AddEntry(&journal[0]))
	require.Equal(t, SpanID("r1", "middleware:support:1"), b.TakeChanges().Spans[0].Parent)
	require.NoError(t, b.AddEntry(&journal[1]))
	spans := b.TakeChanges().Spans
	require.Equal(t, SpanID("r1", "middleware:support:1"), spans[len(spans)-1].ID)
}

// A builder whose changes are taken keeps no contents of spans that have ended, and no lines. The limits count them.
func TestTakeChanges_ForgetContents(t *testing.T) {
	t.Parallel()
	b := NewBuilder("r1")
	content := `"` + strings.Repeat("x", MaxContent-2) + `"`
	var shown, lines int
	for i := range 2 * MaxLines {
		for _, e := range journalOf(
			"tool_started", fmt.Sprintf(`{"agent":"support","call_id":"c%d","tool":"pay","arguments":%s}`, i, content),
			"tool_result", fmt.Sprintf(`{"call_id":"c%d","log":[{"text":"x"}]}`, i),
		) {
			require.NoError(t, b.AddEntry(&e))
			changes := b.TakeChanges()
			lines += len(changes.Lines)
			for _, s := range changes.Spans {
				if s.HasEnded() && string(s.Input) == content {
					shown++
				}
			}
		}
	}
	require.Equal(t, MaxContents/MaxContent, shown)
	require.Equal(t, MaxLines, lines)
	_, more := b.Omitted()
	require.Equal(t, MaxLines, more)
	require.Empty(t, b.lines)
	for _, s := range b.spans {
		require.Empty(t, s.Input)
		require.Empty(t, s.Output)
	}
	require.Empty(t, b.EndRun(endedRun(time.Hour))[1].Input)
}
