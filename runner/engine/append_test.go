// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// kindsOf returns the kinds of a journal from its first entry.
func kindsOf(t *testing.T, journal []dispatchapi.JournalEntry) (kinds []string) {
	t.Helper()
	for i, e := range journal {
		require.EqualValues(t, i+1, e.Sequence)
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// The result of a write shares the append of the next write. It waits neither for a slow model nor for the end of the run.
func TestTool_SharesAppendsOfResults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pause             string
		appends, trailing int
	}{
		"the next action follows at once": {pause: "0s", appends: 3, trailing: 0},
		"the model takes three ms":        {pause: "3ms", appends: 4, trailing: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &house{}
				out := h.engine().Execute(t.Context(), input(project(t, "agents/main.yaml", greeter, "models/main.yaml", `
steps:
  - {turn: 1, tool_calls: [{name: charge, arguments: {amount: 1}}]}
  - {turn: 2, delay: `+tt.pause+`, tool_calls: [{name: charge, arguments: {amount: 2}}]}
  - {text: Charged., delay: `+tt.pause+`}
`), h))
				require.Equal(t, engine.Completed, out.Status, out.Cause)
				require.Equal(t, []string{"model_answer", "tool_started", "tool_result", "model_answer", "tool_started", "tool_result", "model_answer"},
					kindsOf(t, append(slices.Clone(h.appended), out.Trailing...)))
				require.Equal(t, tt.appends, h.appends)
				require.Len(t, out.Trailing, tt.trailing)
			})
		})
	}
}
