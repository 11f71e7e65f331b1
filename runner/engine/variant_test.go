// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// tried is a repository with an agent and two variants.
func tried(t *testing.T, short, long int, more string) *bundle.Project {
	return project(t,
		"agents/greet.yaml", fmt.Sprintf("name: greeter\nmodel: scripted/base\nvariants: {short: %d, long: %d}\n%s", short, long, more),
		"agents/greet-test-short.yaml", "name: greeter-short\nmodel: scripted/short\ntools: [charge]\nsystem_prompt: 'For {agent_name}'\n",
		"agents/greet-test-long.yaml", "name: greeter-long\nmodel: scripted/long\ntimeout: 1m\n",
		"models/base.yaml", "steps: [{text: base}]\n",
		"models/short.yaml", "steps: [{turn: 1, tool_calls: [{name: charge, arguments: {amount: 5}}]}, {turn: 2, text: short}]\n",
		"models/long.yaml", "steps: [{text: long}]\n",
	)
}

func inputOf(i int) []byte { return fmt.Appendf(nil, `{"customer":"c%d","order":%d}`, i%7, i) }

// Over many inputs each variant gets its share. The same input selects the same variant.
func TestVariant_GetsItsShare(t *testing.T) {
	t.Parallel()
	const n = 20_000
	for _, shares := range [][2]int{{10, 30}, {50, 50}, {1, 0}, {0, 0}, {100, 0}, {33, 67}} {
		t.Run(fmt.Sprint(shares), func(t *testing.T) {
			p, got := tried(t, shares[0], shares[1], ""), map[string]int{}
			for i := range n {
				chosen := engine.Choose(p, "greeter", inputOf(i))
				require.Equal(t, chosen, engine.Choose(p, "greeter", inputOf(i)))
				got[chosen]++
			}
			for variant, share := range map[string]int{"short": shares[0], "long": shares[1], "": 100 - shares[0] - shares[1]} {
				t.Run(variant, func(t *testing.T) {
					want := float64(share) / 100
					deviation := math.Sqrt(want * (1 - want) / n)
					require.InDelta(t, want, float64(got[variant])/n, 4*deviation, "%q of %v", variant, shares)
				})
			}
		})
	}
}

// If a share grows, no run leaves the variant, and few more runs move than the growth.
func TestVariant_MovesFewRuns(t *testing.T) {
	t.Parallel()
	const n = 20_000
	before, after, moved := tried(t, 10, 30, ""), tried(t, 20, 30, ""), 0
	for i := range n {
		was, is := engine.Choose(before, "greeter", inputOf(i)), engine.Choose(after, "greeter", inputOf(i))
		if was != is {
			moved++
			require.NotEqual(t, "short", was)
		}
	}
	// Some runs move from the agent itself to long, and the same number from long to short.
	require.Greater(t, float64(moved)/n, 0.09)
	require.Less(t, float64(moved)/n, 0.14)
}

// Another release can continue a run of this one.
func TestVariant_ChoiceIsStable(t *testing.T) {
	t.Parallel()
	p, got := tried(t, 20, 30, ""), ""
	for i := range 24 {
		got += map[string]string{"": "b", "short": "s", "long": "l"}[engine.Choose(p, "greeter", inputOf(i))]
	}
	require.Equal(t, "slbllsblllbbblbbbllbsbbb", got)
}

// The concurrency key selects the variant, or the input if there is no key.
func TestVariant_ChoiceByConcurrencyKey(t *testing.T) {
	t.Parallel()
	p, chosen := tried(t, 30, 30, "concurrency: {key: input.customer}\n"), map[string]map[string]bool{}
	for i := range 70 {
		customer := fmt.Sprintf("c%d", i%7)
		if chosen[customer] == nil {
			chosen[customer] = map[string]bool{}
		}
		chosen[customer][engine.Choose(p, "greeter", inputOf(i))] = true
	}
	for customer, variants := range chosen {
		require.Len(t, variants, 1, customer)
	}
	keyless := map[string]bool{}
	for i := range 70 {
		keyless[engine.Choose(p, "greeter", fmt.Appendf(nil, `{"order":%d}`, i))] = true
	}
	require.Len(t, keyless, 3)
	require.Empty(t, engine.Choose(p, "nobody", nil))
	require.Empty(t, engine.Choose(p, "greeter-short", inputOf(1)), "a variant has none")
}

// The file of the variant executes as a run of the agent.
func TestVariant_Executes(t *testing.T) {
	t.Parallel()
	p := tried(t, 20, 30, "")
	for variant, want := range map[string]string{"": "base", "long": "long"} {
		t.Run(variant, func(t *testing.T) {
			h := &house{}
			out := h.engine().Execute(t.Context(), engine.Input{RunID: "r", AgentName: "greeter", TestName: variant, Project: p, Journal: h})
			require.Equal(t, engine.Completed, out.Status, out.Error)
			require.Equal(t, want, out.Output)
		})
	}
	for _, in := range []engine.Input{
		{AgentName: "greeter-short"}, {AgentName: "greeter", TestName: "none"}, {AgentName: "greeter", TestName: "greeter-short"},
	} {
		h := &house{}
		in.Project, in.Journal = p, h
		out := h.engine().Execute(t.Context(), in)
		require.Equal(t, runerror.AgentNotFound, out.ErrorCode)
	}
}

// A variant has the timeout of its own file.
func TestVariant_HasOwnTimeout(t *testing.T) {
	t.Parallel()
	h := &house{}
	out := h.engine().Execute(t.Context(), engine.Input{
		AgentName: "greeter", TestName: "long", Project: tried(t, 20, 30, ""), Journal: h, Spent: 2 * 60e9,
	})
	require.Equal(t, runerror.Timeout, out.ErrorCode)
	require.Contains(t, out.Error, `agent "greeter-long"`)
}

// A variant resumes from a journal that is cut anywhere.
func TestVariant_Resumes(t *testing.T) {
	t.Parallel()
	p := tried(t, 20, 30, "")
	run := func(h *house, prior []dispatchapi.JournalEntry) engine.Outcome {
		return h.engine().Execute(t.Context(), engine.Input{
			RunID: "r", AgentName: "greeter", TestName: "short", Project: p, Prior: prior, Journal: h,
		})
	}
	whole := &house{}
	out := run(whole, nil)
	require.Equal(t, "short", out.Output)
	journal := append(whole.appended, out.Trailing...)
	for n := range len(journal) + 1 {
		h := &house{}
		again := run(h, journal[:n])
		if journal[max(n-1, 0)].Kind == dispatchapi.JournalToolStarted && n > 0 {
			require.Equal(t, runerror.ToolInterrupted, again.ErrorCode)
			continue
		}
		require.Equal(t, "short", again.Output)
		require.Equal(t, journal, append(append(journal[:n:n], h.appended...), again.Trailing...))
	}
}
