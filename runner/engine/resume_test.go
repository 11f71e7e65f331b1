// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// drawAgent adds an agent with some turns and calls each to the files of a repository.
func drawAgent(t *rapid.T, name string) (pairs []string) {
	var script strings.Builder
	script.WriteString("steps:\n")
	turns := rapid.IntRange(0, 3).Draw(t, "turns")
	for turn := 1; turn <= turns; turn++ {
		fmt.Fprintf(&script, "  - turn: %d\n    tokens: {input: %d}\n    tool_calls:\n", turn, turn)
		for _, tool := range rapid.SliceOfN(rapid.SampledFrom([]string{"charge", "look", "refuses", "unknown"}), 1, 3).Draw(t, "calls") {
			fmt.Fprintf(&script, "      - {name: %s, arguments: {amount: %d}}\n", tool, turn)
		}
	}
	fmt.Fprintf(&script, "  - {text: answer of %s, tokens: {input: 1}}\n", name)
	options := rapid.SampledFrom([]string{"", "tool_options: {on_interrupted: tell}\n"}).Draw(t, "options")
	return []string{"agents/" + name + ".yaml", "name: " + name + "\nmodel: scripted/" + name + "\ntools: [charge, look, refuses]\n" + options, "models/" + name + ".yaml", script.String()}
}

// anyAgents draws a sequence of agents.
func anyAgents(t *rapid.T) *bundle.Project {
	var pairs, names []string
	for i := range rapid.IntRange(1, 3).Draw(t, "agents") {
		names = append(names, fmt.Sprintf("step%d", i))
		pairs = append(pairs, drawAgent(t, names[i])...)
	}
	pairs = append(pairs, "agents/main.yaml", "name: main\ntype: sequential\nagents: ["+strings.Join(names, ", ")+"]\n")
	return project(t, pairs...)
}

// stepDrawer draws a tree of agents with steps.
type stepDrawer struct {
	*rapid.T
	pairs []string
	count int
}

// action draws an action whose expressions may use a result, and returns it with the name of its own result.
func (d *stepDrawer) action(depth int, earlier []string) (text, name string) {
	d.count++
	name = fmt.Sprintf("r%d", d.count)
	when := ""
	before := rapid.SampledFrom(append([]string{"input"}, earlier...)).Draw(d.T, "uses")
	if rapid.Bool().Draw(d.T, "conditional") {
		when = fmt.Sprintf(", when: %s %s null", before, rapid.SampledFrom([]string{"==", "!="}).Draw(d.T, "operator"))
	}
	kinds := []string{"charge", "look", "agent", "script", "tool agent"}
	if depth > 0 {
		kinds = append(kinds, "sequence")
	}
	switch kind := rapid.SampledFrom(kinds).Draw(d.T, "kind"); kind {
	case "agent":
		d.pairs = append(d.pairs, drawAgent(d.T, name)...)
	case "sequence":
		d.sequence(name, depth-1)
	case "tool agent":
		tool := rapid.SampledFrom([]string{"charge", "look"}).Draw(d.T, "tool")
		d.pairs = append(d.pairs, "agents/"+name+".yaml", "name: "+name+"\ntype: tool\ntool_name: "+tool+"\n")
		return fmt.Sprintf("agent: %s, input: {amount: '%s == null ? 1 : 2'}%s", name, before, when), name
	case "script":
		return fmt.Sprintf("script: steps.any.run, as: %s, input: {before: %s}%s", name, before, when), name
	default:
		return fmt.Sprintf("tool: %s, as: %s, with: {amount: '%s == null ? 1 : 2'}%s", kind, name, before, when), name
	}
	return fmt.Sprintf("agent: %s, input: {before: %s}%s", name, before, when), name
}

// sequence adds an agent with steps.
func (d *stepDrawer) sequence(agent string, depth int) {
	text, names := "name: "+agent+"\ntype: sequential\nsteps:\n", []string{}
	for range rapid.IntRange(1, 3).Draw(d.T, "steps") {
		if rapid.IntRange(0, 2).Draw(d.T, "parallel") > 0 {
			one, name := d.action(depth, names)
			text += "  - {" + one + "}\n"
			names = append(names, name)
			continue
		}
		text += "  - parallel:\n"
		var members []string
		for range rapid.IntRange(1, 3).Draw(d.T, "members") {
			one, name := d.action(depth, names)
			text += "      - {" + one + "}\n"
			members = append(members, name)
		}
		names = append(names, members...)
	}
	d.pairs = append(d.pairs, "agents/"+agent+".yaml", text+"output: '["+strings.Join(names, ", ")+"]'\n")
}

// anySteps draws a tree of agents and tools that run one after the other and at the same time.
func anySteps(t *rapid.T) *bundle.Project {
	d := &stepDrawer{T: t}
	d.sequence("main", 2)
	d.pairs = append(d.pairs, "steps/any.star", "def run(input, steps, context):\n    return input\n")
	return project(t, d.pairs...)
}

// anyProject draws a repository of one of the forms.
func anyProject(t *rapid.T) *bundle.Project {
	if rapid.Bool().Draw(t, "has steps") {
		return anySteps(t)
	}
	return anyAgents(t)
}

// callsOf returns the calls in a journal, in any order.
func callsOf(t require.TestingT, journal []dispatchapi.JournalEntry) (texts []string) {
	calls, err := engine.Calls(journal)
	require.NoError(t, err)
	for _, call := range calls {
		texts = append(texts, fmt.Sprint(call))
	}
	slices.Sort(texts)
	return texts
}

// tally counts the entries of a journal.
type tally struct {
	answers, results int
	inFlight         bool
	// reportedToModel are the calls in flight that the model learns of.
	reportedToModel int
}

func count(entries []dispatchapi.JournalEntry) tally {
	var c tally
	unsafe, tells := 0, map[string]bool{}
	for _, e := range entries {
		var call struct {
			CallID string `json:"call_id"`
			Tells  bool   `json:"tells"`
		}
		if err := json.Unmarshal(e.Data, &call); err != nil {
			panic(err)
		}
		switch e.Kind {
		case dispatchapi.JournalModelAnswer:
			c.answers++
		case dispatchapi.JournalToolStarted:
			if e.Unsafe {
				unsafe++
			}
			if call.Tells {
				tells[call.CallID] = true
			}
		case dispatchapi.JournalToolResult:
			c.results++
			delete(tells, call.CallID)
			if e.Unsafe {
				unsafe--
			}
		}
	}
	c.inFlight, c.reportedToModel = unsafe > 0, len(tells)
	return c
}

func gapless(t require.TestingT, entries []dispatchapi.JournalEntry) {
	for i, e := range entries {
		require.EqualValues(t, i+1, e.Sequence)
	}
}

// The test cuts the journal of a run at each entry and resumes there. Recorded requests and calls
// are not repeated, and the result is the same, unless a tool with an effect was in progress.
func TestResume_AtEachEntry(t *testing.T) {
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
			if cut > 0 && prior[cut-1].Kind == dispatchapi.JournalFile {
				continue // The entry of a file and the result that names it are one append.
			}
			had := count(prior)
			h := &house{saved: maps.Clone(first.saved)} // which parallel scripts may fill in another order
			in := input(p, h)
			in.Prior = prior
			out := h.engine().Execute(t.Context(), in)
			if had.inFlight {
				require.Equal(t, runerror.ToolInterrupted, out.ErrorCode)
				require.Empty(t, h.asked)
				require.Empty(t, h.called)
				continue
			}
			require.Equal(t, engine.Completed, out.Status, out.Cause)
			require.Equal(t, whole.Output, out.Output)
			require.Equal(t, whole.Usage, out.Usage)
			require.Len(t, h.asked, all.answers-had.answers)
			require.Len(t, h.called, all.results-had.results-had.reportedToModel, "no interrupted call is repeated")
			again := append(append(slices.Clone(prior), h.appended...), out.Trailing...)
			gapless(t, again)
			require.Len(t, again, len(journal))
			require.Equal(t, callsOf(t, journal), callsOf(t, again))
		}
	})
}

// The test fails each append in turn, as after a lost claim, and resumes from the stored entries.
// Both attempts together are one run.
func TestResume_AfterEachFailedAppend(t *testing.T) {
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
				continue // Parallel tools may share an append.
			}
			require.Equal(t, engine.Unfinished, out.Status)
			require.ErrorIs(t, out.Cause, errFenced)
			require.Empty(t, out.Trailing)

			h := &house{saved: maps.Clone(lost.saved)}
			in := input(p, h)
			in.Prior = lost.appended
			out = h.engine().Execute(t.Context(), in)
			if count(lost.appended).inFlight {
				require.Equal(t, runerror.ToolInterrupted, out.ErrorCode)
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

// An answer is appended before a call that must not happen twice, and when it is 250 ms old. So a killed runner loses
// only younger answers.
func TestResume_AppendsBeforeUnsafeEffect(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		thinking time.Duration // of the model, for each answer
		looking  time.Duration // of the tool look
		want     []int         // appended answers at each request
	}{
		"young answers": {want: []int{0, 0, 0, 3}},
		"old answers":   {thinking: 300 * time.Millisecond, want: []int{0, 0, 1, 3}},
		"slow tool":     {looking: 300 * time.Millisecond, want: []int{0, 0, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &house{}
				appended := func() (answers int) {
					h.mu.Lock()
					defer h.mu.Unlock()
					return count(h.appended).answers
				}
				var before []int
				h.onAsk = func() {
					before = append(before, appended())
					time.Sleep(row.thinking)
				}
				h.onLook = func() { time.Sleep(row.looking) }
				h.onTool = func(context.Context) error {
					require.Equal(t, len(before), appended(), "before a tool that is not idempotent")
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
				require.Equal(t, row.want, before, "before each request")
			})
		})
	}
}

// A run that ends during an append in the background ends after it, and reports no entry twice.
func TestResume_EndsAfterBackgroundAppend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &house{appendTime: time.Second}
		h.onLook = func() { time.Sleep(300 * time.Millisecond) }
		out := h.engine().Execute(t.Context(), input(project(t, "agents/main.yaml", greeter, "models/main.yaml",
			"steps: [{turn: 1, tool_calls: [{name: look}]}, {text: done}]"), h))
		require.Equal(t, "done", out.Output, out.Cause)
		whole := slices.Concat(h.appended, out.Trailing)
		gapless(t, whole)
		require.Len(t, whole, 4)
	})
}

// No request and no call happens after an unknown entry.
func TestResume_LeavesNewerJournalToOthers(t *testing.T) {
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

// The cost depends on the model that answered.
func TestResume_KeepsCosts(t *testing.T) {
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
