// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// An answer that a limit of tokens cut off is kept, or fails the run, also in a later attempt. The outcome has the reason for
// the end of the last answer.
func TestAgent_OnTruncation(t *testing.T) {
	t.Parallel()
	const keep, fail = "on_truncation: keep\n", "on_truncation: fail\n"
	for _, row := range []struct {
		name, key, steps string
		code             runerror.Code
		output           string
		finish           model.FinishReason
		charged          int
	}{
		{"default", "", "{text: cut, finish_reason: length}", "", "cut", model.FinishLength, 0},
		{"keep", keep, "{text: cut, finish_reason: length}", "", "cut", model.FinishLength, 0},
		{"fail", fail, "{text: cut, finish_reason: length}", runerror.ModelAnswerTruncated, "", model.FinishLength, 0},
		{"fail with calls", fail, "{tool_calls: [{name: charge}], finish_reason: length}", runerror.ModelAnswerTruncated, "", model.FinishLength, 0},
		{"complete", fail, "{text: done}", "", "done", model.FinishStop, 0},
		{"filtered", fail, "{text: part, finish_reason: content_filter}", "", "part", model.FinishContentFilter, 0},
		{"second answer", fail, "{turn: 1, tool_calls: [{name: charge}]}, {text: cut, finish_reason: length}", runerror.ModelAnswerTruncated, "", model.FinishLength, 1},
		{"without end", "max_iterations: 1\n", "{tool_calls: [{name: charge}]}", runerror.MaxIterationsExceeded, "", model.FinishToolCalls, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [charge]\n"+row.key, "models/main.yaml", "steps: ["+row.steps+"]")
			h := &house{}
			out := h.engine().Execute(t.Context(), input(p, h))
			require.Equal(t, row.code, out.ErrorCode, "%s %v", out.Error, out.Cause)
			require.Equal(t, row.output, out.Output)
			require.Equal(t, row.finish, out.FinishReason)
			require.Len(t, h.called, row.charged)

			later := &house{}
			in := input(p, later)
			in.Prior = append(h.appended, out.Trailing...)
			for i, e := range in.Prior { // as an earlier release wrote it
				in.Prior[i].Data = bytes.Replace(e.Data, []byte(`"finish_reason":"length"`), []byte(`"finish_reason":"MAX_TOKENS"`), 1)
			}
			again := later.engine().Execute(t.Context(), in)
			require.Equal(t, row.code, again.ErrorCode, "from its journal")
			require.Equal(t, row.finish, again.FinishReason)
			require.Empty(t, later.asked)
		})
	}
}

// The last answer of a pipeline is the last one in its journal, whatever agent gave it.
func TestSteps_LastFinishReason(t *testing.T) {
	t.Parallel()
	p := project(t, "agents/main.yaml", "name: main\ntype: sequential\nsteps: [{agent: a, as: x}, {agent: b, as: y}]\noutput: x\n",
		"agents/a.yaml", "name: a\nmodel: scripted/a\n", "models/a.yaml", "steps: [{text: one}]",
		"agents/b.yaml", "name: b\nmodel: scripted/b\n", "models/b.yaml", "steps: [{text: two, finish_reason: length}]")
	h := &house{}
	out := h.engine().Execute(t.Context(), input(p, h))
	require.Equal(t, "one", out.Output, out.Cause)
	require.Equal(t, model.FinishLength, out.FinishReason)

	tool := project(t, "agents/main.yaml", "name: main\ntype: tool\ntool_name: look\n")
	out = h.engine().Execute(t.Context(), engine.Input{RunID: "r", AgentName: "main", Project: tool, Message: "{}", Journal: h, Prior: []dispatchapi.JournalEntry{}})
	require.Equal(t, engine.Completed, out.Status, out.Cause)
	require.Empty(t, out.FinishReason, "no model")
}
