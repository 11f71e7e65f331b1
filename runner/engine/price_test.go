// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
)

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
