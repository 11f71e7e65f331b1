// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// A run that needs more than a limit fails before the next request or call, in one attempt and in several.
func TestLimits_FailRun(t *testing.T) {
	t.Parallel()
	const script = `steps: [{turn: 1, tool_calls: [{name: look}, {name: charge}], tokens: {input: 40, output: 10}},
		{turn: 2, tool_calls: [{name: charge}], tokens: {input: 40, output: 10}}, {text: done, tokens: {input: 40, output: 10}}]`
	prices := func() (runnerconfig.Prices, error) {
		return runnerconfig.Prices{Prices: map[string]runnerconfig.Price{"scripted/main": {Currency: "USD", Input: 1_000_000, Output: 1_000_000}}}, nil
	}
	for name, row := range map[string]struct {
		limits, problem string // "" completes
		called          int
	}{
		"no limit":             {"", "", 3},
		"enough":               {"limits: {tool_calls: 3, tokens: 101, cost: '0.000101 USD'}", "", 3},
		"tool calls":           {"limits: {tool_calls: 2}", `agent "main" made more than 2 tool calls in this run, which is its limit (limits.tool_calls)`, 2},
		"first answer's calls": {"limits: {tool_calls: 1}", `agent "main" made more than 1 tool calls in this run, which is its limit (limits.tool_calls)`, 0},
		"tokens":               {"limits: {tokens: 100}", `agent "main" used 100 tokens in this run, which is its limit (limits.tokens)`, 3},
		"cost":                 {"limits: {cost: '0.00005 USD'}", `agent "main" spent 0.00005 USD in this run, which is its limit (limits.cost)`, 2},
		"other currency":       {"limits: {cost: '0.00005 EUR'}", `agent "main" has a limit in EUR (limits.cost), but the prices of its models have another currency; use their currency`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := project(t, "agents/main.yaml", "name: main\ntype: sequential\nagents: [one]\n"+row.limits+"\n",
				"agents/one.yaml", "name: one\nmodel: scripted/main\ntools: [look, charge]\n", "models/main.yaml", script)
			h := &house{}
			e := engine.New(engine.Config{Models: h, Tools: h.tools(), Prices: prices})
			in := input(p, h)
			out := e.Execute(t.Context(), in)
			require.Equal(t, row.problem, out.Error, out.Cause)
			require.Len(t, h.called, row.called)
			journal := slices.Concat(h.appended, out.Trailing)
			for cut := range journal {
				again := &house{}
				e := engine.New(engine.Config{Models: again, Tools: again.tools(), Prices: prices})
				in := input(p, again)
				in.Prior = slices.Clone(journal[:cut])
				resumed := e.Execute(t.Context(), in)
				if resumed.ErrorCode == runerror.ToolInterrupted {
					continue
				}
				require.Equal(t, row.problem, resumed.Error, "resumed after entry %d", cut)
			}
		})
	}
}

// An answer uses the prices at its time. A replayed answer gets no new price. Without a price there
// is no cost.
func TestPrice_IsTakenWhenAnswered(t *testing.T) {
	t.Parallel()
	repository := project(t,
		"agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [look]\n",
		"models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: look}], tokens: {input: 3, cached_input: 1, output: 1, thinking: 1}}, {text: done, tokens: {input: 5, output: 2}}]")
	execute := func(
		t *testing.T, prior []dispatchapi.JournalEntry, prices func() (runnerconfig.Prices, error),
	) (costs []*dispatchapi.Cost, all []dispatchapi.JournalEntry) {
		h := &house{}
		in := input(repository, h)
		in.Prior = prior
		out := engine.New(engine.Config{
			Models: h, Tools: h.tools(), Prices: prices, Sleep: func(context.Context, time.Duration) error { return nil },
		}).Execute(t.Context(), in)
		require.Equal(t, engine.Completed, out.Status, out.Cause)
		all = append(h.appended, out.Trailing...)
		for _, e := range all {
			if e.Usage != nil {
				costs = append(costs, e.Usage.Cost)
			}
		}
		return costs, all
	}
	asked := 0
	dearer := func() (runnerconfig.Prices, error) {
		asked++
		thousands := int64(asked) * 1000
		return runnerconfig.Prices{Prices: map[string]runnerconfig.Price{
			"scripted/main": {Currency: "EUR", Input: thousands, CachedInput: 10 * thousands, Output: 100 * thousands, Thinking: 1000 * thousands},
		}}, nil
	}
	costs, all := execute(t, nil, dearer)
	require.Equal(t, []*dispatchapi.Cost{{Currency: "EUR", Nanos: 2 + 10 + 100 + 1000}, {Currency: "EUR", Nanos: 2 * (5 + 200)}}, costs)
	costs, _ = execute(t, all[:1], dearer)
	require.Equal(t, []*dispatchapi.Cost{{Currency: "EUR", Nanos: 3 * (5 + 200)}}, costs, "the first answer was priced before")
	for name, prices := range map[string]func() (runnerconfig.Prices, error){
		"no prices":              nil,
		"prices of other models": func() (runnerconfig.Prices, error) { return runnerconfig.Prices{}, nil },
		"unreadable prices":      func() (runnerconfig.Prices, error) { return runnerconfig.Prices{}, errors.New("unreadable") },
	} {
		t.Run(name, func(t *testing.T) {
			costs, _ := execute(t, nil, prices)
			require.Equal(t, []*dispatchapi.Cost{nil, nil}, costs)
		})
	}
}
