// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// An interrupted call that may have had its effect fails the run, or the model learns of it: once over all attempts, and
// without another call.
func TestToolOptions_OnInterrupted(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		options, tool string
		output        string
		code          runerror.Code
		unsafe        bool
		called        int // in the second attempt
	}{
		"fail by default": {"", "charge", "", runerror.ToolInterrupted, true, 0},
		"fail":            {"tool_options: {on_interrupted: fail}\n", "charge", "", runerror.ToolInterrupted, true, 0},
		"tell":            {"tool_options: {on_interrupted: tell}\n", "charge", "outcome_unknown", "", false, 0},
		"idempotent tool": {"tool_options: {on_interrupted: tell}\n", "look", "seen", "", false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [charge, look]\n"+row.options, "models/main.yaml",
				"steps: [{turn: 1, tool_calls: [{name: "+row.tool+", arguments: {amount: 1}}]}, {match: '(outcome_unknown|seen)', text: '${1}'}]")
			var prior []dispatchapi.JournalEntry
			first := &house{}
			first.onTool = func(context.Context) error {
				prior = slices.Clone(first.appended) // what a killed runner leaves behind
				return nil
			}
			out := first.engine().Execute(t.Context(), input(p, first))
			if row.tool == "look" {
				prior = slices.Concat(first.appended, out.Trailing)[:2]
			}
			require.Len(t, prior, 2, "the call is announced before it happens")
			require.Equal(t, row.unsafe, prior[1].Unsafe, "the platform fails a run with an unsafe call in flight")

			second := &house{}
			in := input(p, second)
			in.Prior = prior
			again := second.engine().Execute(t.Context(), in)
			require.Equal(t, row.code, again.ErrorCode, again.Cause)
			require.Equal(t, row.output, again.Output)
			require.Len(t, second.called, row.called)
			if row.output != "outcome_unknown" {
				return
			}
			journal := slices.Concat(prior, second.appended, again.Trailing)
			var result struct {
				Code string
				Log  []engine.LogLine
			}
			require.NoError(t, json.Unmarshal(journal[2].Data, &result))
			require.Equal(t, string(runerror.ToolInterrupted), result.Code)
			require.Len(t, result.Log, 1)
			third := &house{}
			in = input(p, third)
			in.Prior = journal
			require.Equal(t, "outcome_unknown", third.engine().Execute(t.Context(), in).Output)
			require.Empty(t, third.called)
			require.Empty(t, third.asked)
		})
	}
}
