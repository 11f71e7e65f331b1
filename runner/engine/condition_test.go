// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// toolsSeen returns the names of the tools of each request to a model.
func (h *house) toolsSeen() (seen [][]string) {
	for _, r := range h.requests {
		names := []string{}
		for _, t := range r.Tools {
			names = append(names, t.Name)
		}
		seen = append(seen, names)
	}
	return seen
}

// conditionLog returns the log lines of conditions in a journal.
func conditionLog(t *testing.T, journal []dispatchapi.JournalEntry) (lines []string) {
	t.Helper()
	for _, e := range journal {
		var step struct {
			Kind, Outcome string
			Log           []engine.LogLine
		}
		if e.Kind != dispatchapi.JournalStep {
			continue
		}
		require.NoError(t, json.Unmarshal(e.Data, &step))
		require.Equal(t, "tool_condition", step.Kind)
		for _, line := range step.Log {
			lines = append(lines, line.Level+" "+line.Position+" "+line.Text)
		}
	}
	return lines
}

// A condition decides on the event and on the run's context. An error hides the tool.
func TestCondition_HidesTools(t *testing.T) {
	t.Parallel()
	const failed = "warn agents/main.yaml:3:"
	for name, row := range map[string]struct {
		tools string
		seen  []string
		log   []string
	}{
		"none":                 {"[charge, look]", []string{"charge", "look"}, nil},
		"true":                 {"[{charge: input.total > 10}, look]", []string{"charge", "look"}, nil},
		"false":                {"[{charge: input.total > 90}, look]", []string{"look"}, nil},
		"header":               {"[{charge: 'headers[\"x-team\"] == \"ops\"'}, look]", []string{"charge", "look"}, nil},
		"context":              {"[{charge: context.tier == 'gold' && context.agent_name != ''}, look]", []string{"charge", "look"}, nil},
		"large integer":        {"[{charge: input.id == 9007199254740993}, {look: input.id == 9007199254740992}]", []string{"charge"}, nil},
		"constant":             {"[{charge: true}, {look: false}]", []string{"charge"}, nil},
		"both references":      {"[charge, {charge: input.total > 90}, look]", []string{"look"}, nil},
		"both conditions":      {"[{charge: input.total > 10}, {charge: input.total > 90}, look]", []string{"look"}, nil},
		"missing value":        {"[{charge: context.plan == 'gold'}, look]", []string{"look"}, []string{failed + "18 the condition of tool charge cannot be evaluated, so the tool is hidden: no such key: plan"}},
		"not a bool":           {"[{charge: input.total}, look]", []string{"look"}, []string{failed + "18 the condition of tool charge cannot be evaluated, so the tool is hidden: it returns a double; write a condition that is true or false"}},
		"error without effect": {"[{charge: 'context.plan == \"gold\" || true'}, look]", []string{"charge", "look"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &house{}
			in := input(project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: "+row.tools+"\n",
				"models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: never-heard}]}, {text: done}]"), h)
			in.Context = map[string]any{
				"input": map[string]any{"total": json.Number("50"), "id": json.Number("9007199254740993")}, "tier": "gold", "agent_name": "main",
				"headers": map[string]any{"x-team": "ops"},
			}
			out := h.engine().Execute(t.Context(), in)
			require.Equal(t, "done", out.Output, out.Cause)
			require.Equal(t, [][]string{row.seen, row.seen}, h.toolsSeen())
			require.Equal(t, row.log, conditionLog(t, slices.Concat(h.appended, out.Trailing)), "one line for both requests")
		})
	}
}

// tieredHouse is a house whose tool huge makes the customer a gold customer.
func tieredHouse() *house {
	return &house{huge: func(_ context.Context, call *engine.Call) (map[string]any, error) {
		call.ChangeContext(map[string]any{"tier": "gold"})
		return map[string]any{"ok": true}, nil
	}}
}

func tieredProject(t *testing.T) *bundle.Project {
	t.Helper()
	return project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [look, huge, {charge: 'context.tier == \"gold\" && input.total > 10'}]\n",
		"models/main.yaml", `
steps:
  - {turn: 1, tool_calls: [{name: charge, arguments: {amount: 1}}, {name: huge}]}
  - {turn: 2, match: 'tool charge: .*not available now', tool_calls: [{name: charge, arguments: {amount: 2}}]}
  - {match: 'tool charge: .*"charged":2', text: charged}
`)
}

// A tool is offered once its condition is true. A call before that is an error for the model, and is not executed. A resumed
// run decides like the first attempt, also about calls whose answer is in the journal.
func TestCondition_FollowsContextInEachAttempt(t *testing.T) {
	t.Parallel()
	p, h := tieredProject(t), tieredHouse()
	start := func(h *house, prior []dispatchapi.JournalEntry) engine.Outcome {
		in := input(p, h)
		in.Message, in.Prior = `{"total": 11}`, slices.Clone(prior)
		return h.engine().Execute(t.Context(), in)
	}
	whole := start(h, nil)
	require.Equal(t, "charged", whole.Output, whole.Cause)
	require.Equal(t, [][]string{{"look", "huge"}, {"look", "huge", "charge"}, {"look", "huge", "charge"}}, h.toolsSeen())
	require.Equal(t, []string{"charge"}, h.called)
	journal := slices.Concat(h.appended, whole.Trailing)
	require.Len(t, conditionLog(t, journal), 1)

	for cut := range journal {
		again := tieredHouse()
		out := start(again, journal[:cut])
		if out.ErrorCode == runerror.ToolInterrupted {
			continue
		}
		require.Equal(t, "charged", out.Output, "resumed after entry %d: %v", cut, out.Cause)
		full := slices.Concat(journal[:cut], again.appended, out.Trailing)
		require.Len(t, full, len(journal), "resumed after entry %d", cut)
		require.Equal(t, callsOf(t, journal), callsOf(t, full))
		require.Len(t, conditionLog(t, full), 1)
		seen := h.toolsSeen()
		require.Equal(t, seen[len(seen)-len(again.requests):], again.toolsSeen())
	}
}

// Calls of a hidden tool do not count as invalid calls, and do not fail the run.
func TestCondition_HiddenCallsDoNotFailRun(t *testing.T) {
	t.Parallel()
	h := &house{}
	call := "{name: charge, arguments: {amount: 1}}"
	out := h.engine().Execute(t.Context(), input(project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [{charge: 'false'}]\n",
		"models/main.yaml", "steps: [{turn: 1, tool_calls: ["+call+", "+call+", "+call+", "+call+"]}, {text: done}]"), h))
	require.Equal(t, "done", out.Output, out.Cause)
	require.Empty(t, h.called)
}
