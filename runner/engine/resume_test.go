// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// anyProject draws a sequence of agents, each of some turns with some calls.
func anyProject(t *rapid.T) *bundle.Project {
	pairs := []string{}
	var names []string
	for i := range rapid.IntRange(1, 3).Draw(t, "agents") {
		name := fmt.Sprintf("step%d", i)
		names = append(names, name)
		var script strings.Builder
		script.WriteString("steps:\n")
		turns := rapid.IntRange(0, 3).Draw(t, "turns")
		for turn := 1; turn <= turns; turn++ {
			fmt.Fprintf(&script, "  - turn: %d\n    tokens: {input: %d}\n    tool_calls:\n", turn, turn)
			for _, tool := range rapid.SliceOfN(rapid.SampledFrom([]string{"charge", "look", "refuses", "unknown"}), 1, 3).Draw(t, "calls") {
				fmt.Fprintf(&script, "      - {name: %s, arguments: {amount: %d}}\n", tool, turn)
			}
		}
		fmt.Fprintf(&script, "  - text: answer of %s\n", name)
		pairs = append(pairs, "agents/"+name+".yaml", "name: "+name+"\nmodel: scripted/"+name+"\ntools: [charge, look, refuses]\n", "models/"+name+".yaml", script.String())
	}
	pairs = append(pairs, "agents/main.yaml", "name: main\ntype: sequential\nagents: ["+strings.Join(names, ", ")+"]\n")
	return project(t, pairs...)
}

// tally counts what a journal holds.
type tally struct {
	answers, results int
	inFlight         bool
	started          map[string]bool
}

func count(entries []dispatchapi.JournalEntry) tally {
	c := tally{started: map[string]bool{}}
	unsafe := 0
	for _, e := range entries {
		switch e.Kind {
		case dispatchapi.JournalModelAnswer:
			c.answers++
		case dispatchapi.JournalToolStarted:
			if e.Unsafe {
				unsafe++
			}
		case dispatchapi.JournalToolResult:
			c.results++
			if e.Unsafe {
				unsafe--
			}
		}
	}
	c.inFlight = unsafe > 0
	return c
}

func gapless(t require.TestingT, entries []dispatchapi.JournalEntry) {
	for i, e := range entries {
		require.EqualValues(t, i+1, e.Sequence)
	}
}

// TestResumeAtEveryPrefix cuts the journal of a run at every entry and resumes
// there: nothing that is in the journal is asked or called again, and the end is
// the same, unless a tool with an effect was in flight.
func TestResumeAtEveryPrefix(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := anyProject(t)
		first := &house{}
		whole := first.engine().Execute(t.Context(), input(p, first))
		require.Equal(t, engine.Completed, whole.Status, whole.Cause)
		journal := append(slices.Clone(first.appended), whole.Trailing...)
		gapless(t, journal)
		all := count(journal)
		require.Equal(t, all.answers, len(first.asked))
		require.Equal(t, all.results, len(first.called))

		for cut := range len(journal) + 1 {
			prior := journal[:cut]
			had := count(prior)
			h := &house{}
			in := input(p, h)
			in.Prior = prior
			out := h.engine().Execute(t.Context(), in)
			if had.inFlight {
				require.Equal(t, engine.CodeToolInterrupted, out.ErrorCode)
				require.Empty(t, h.asked)
				require.Empty(t, h.called)
				continue
			}
			require.Equal(t, engine.Completed, out.Status, out.Cause)
			require.Equal(t, whole.Output, out.Output)
			require.Equal(t, whole.Usage, out.Usage)
			require.Len(t, h.asked, all.answers-had.answers)
			require.Len(t, h.called, all.results-had.results)
			again := append(append(slices.Clone(prior), h.appended...), out.Trailing...)
			gapless(t, again)
			require.Len(t, again, len(journal))
		}
	})
}

// TestAnyAppendMayFail fails each append in turn, as when the claim is lost,
// and resumes from what was stored: the sum of both attempts is one run.
func TestAnyAppendMayFail(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := anyProject(t)
		whole := &house{}
		end := whole.engine().Execute(t.Context(), input(p, whole))
		require.Equal(t, engine.Completed, end.Status)
		for n := 1; n <= whole.appends; n++ {
			lost := &house{failAppend: n}
			out := lost.engine().Execute(t.Context(), input(p, lost))
			if out.Status == engine.Completed {
				continue // Tools that run side by side may share an append.
			}
			require.Equal(t, engine.Unfinished, out.Status)
			require.ErrorIs(t, out.Cause, errFenced)
			require.Empty(t, out.Trailing)

			h := &house{}
			in := input(p, h)
			in.Prior = lost.appended
			out = h.engine().Execute(t.Context(), in)
			if count(lost.appended).inFlight {
				require.Equal(t, engine.CodeToolInterrupted, out.ErrorCode)
				continue
			}
			require.Equal(t, end.Output, out.Output)
			charges := func(list []string) (n int) {
				for _, tool := range list {
					if tool == "charge" {
						n++
					}
				}
				return n
			}
			require.Equal(t, charges(whole.called), charges(lost.called)+charges(h.called), "a charge was lost or repeated")
		}
	})
}

// TestAnswersAreAppendedBeforeTheNextEffect: what is lost with a runner that is killed
// is the last answer at most.
func TestAnswersAreAppendedBeforeTheNextEffect(t *testing.T) {
	t.Parallel()
	h := &house{}
	appended := func() (answers int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return count(h.appended).answers
	}
	var before []int
	h.onAsk = func() { before = append(before, appended()) }
	h.onTool = func(context.Context) error {
		require.Equal(t, len(before), appended(), "before a tool begins")
		return nil
	}
	out := h.engine().Execute(t.Context(), input(project(t, "agents/main.yaml", greeter, "models/main.yaml", `
steps:
  - {turn: 1, tool_calls: [{name: never-heard}]}
  - {turn: 2, tool_calls: [{name: look}]}
  - {turn: 3, tool_calls: [{name: charge}]}
  - {text: done}
`), h))
	require.Equal(t, "done", out.Output, out.Cause)
	require.Equal(t, []int{0, 1, 2, 3}, before, "before each request")
}

// TestAJournalOfALaterReleaseIsLeftToOthers: nothing is asked or called past what
// this release cannot read.
func TestAJournalOfALaterReleaseIsLeftToOthers(t *testing.T) {
	t.Parallel()
	h := &house{}
	in := input(project(t, "agents/main.yaml", greeter, "models/main.yaml", "steps: [{text: x}]"), h)
	in.Prior = []dispatchapi.JournalEntry{{Sequence: 1, Kind: "approval", Data: []byte(`{}`)}}
	out := h.engine().Execute(t.Context(), in)
	require.Equal(t, engine.Unfinished, out.Status)
	require.ErrorIs(t, out.Cause, engine.ErrLaterJournal)
	require.ErrorContains(t, out.Cause, `"approval"`)
	require.Empty(t, h.asked)
	require.Empty(t, h.appended)
}

// TestAnswersCarryWhatTheyCost: by the model that gave them.
func TestAnswersCarryWhatTheyCost(t *testing.T) {
	t.Parallel()
	h := &house{}
	out := h.engine().Execute(t.Context(), input(project(t,
		"agents/main.yaml", "name: main\nmodel: scripted/main\nfallback_model: scripted/spare\ntools: [look]\nretry_options: {attempts: 1}\n",
		"models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: look}], tokens: {input: 3, output: 1}}, {error: {status: 503}}]",
		"models/spare.yaml", "steps: [{text: spare, tokens: {input: 5, output: 2, thinking: 1}}]"), h))
	require.Equal(t, "spare", out.Output, out.Cause)
	var used []dispatchapi.ModelUsage
	for _, e := range append(h.appended, out.Trailing...) {
		require.Equal(t, e.Kind == dispatchapi.JournalModelAnswer, e.Usage != nil, e.Kind)
		if e.Usage != nil {
			used = append(used, *e.Usage)
		}
	}
	require.Equal(t, []dispatchapi.ModelUsage{
		{Model: "scripted/main", TokenUsage: dispatchapi.TokenUsage{InputTokens: 3, OutputTokens: 1, TotalTokens: 4}},
		{Model: "scripted/spare", TokenUsage: dispatchapi.TokenUsage{InputTokens: 5, OutputTokens: 2, ThinkingTokens: 1, TotalTokens: 8}},
	}, used)
}

func FuzzPriorJournal(f *testing.F) {
	f.Add("model_answer", []byte(`{"agent":"main","turn":1,"content":{"role":"model","parts":[{"text":"hi"}]}}`))
	f.Add("model_answer", []byte(`{"agent":"main","turn":1}`))
	f.Add("tool_started", []byte(`{"call_id":"x"}`))
	f.Add("tool_result", []byte(`{"call_id":"x","result":{}}`))
	f.Add("of a later release", []byte(`{}`))
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		h := &house{}
		in := input(project(t, "agents/main.yaml", greeter, "models/main.yaml", "steps: [{text: x}]"), h)
		in.Prior = []dispatchapi.JournalEntry{{Sequence: 1, Kind: kind, Data: data}}
		out := h.engine().Execute(t.Context(), in)
		require.Equal(t, errors.Is(out.Cause, engine.ErrLaterJournal), out.Status == engine.Unfinished)
	})
}
