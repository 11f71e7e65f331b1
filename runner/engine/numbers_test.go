// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/engine"
	runinput "github.com/agentplatform/agentplatform/runner/input"
	"github.com/agentplatform/agentplatform/runner/model"
)

// longNumbers are numbers that a double cannot represent.
const longNumbers = `{"decimal":0.1000000000000000055511151231257827,"huge":99999999999999999999,"id":7615917337495251231,"one":1.0}`

// A payload keeps the digits of the model in the delivery and in the model's next turn, also after
// a resume at any position.
func TestSend_KeepsTheDigitsOfNumbers(t *testing.T) {
	t.Parallel()
	p := teller(t, `{payload: 1}`)
	says := func() []*model.Content {
		args := map[string]any{"payload": json.RawMessage(longNumbers)}
		return []*model.Content{{Role: model.RoleModel, Parts: []*model.Part{{Call: &model.Call{Name: "tell", Args: args}}}}}
	}
	first := &house{says: says()}
	whole := first.engine().Execute(t.Context(), sending(p, first, &post{}))
	require.Equal(t, engine.Completed, whole.Status, whole.Cause)
	journal := slices.Concat(first.appended, whole.Trailing)
	for cut := range len(journal) {
		h, to := &house{says: says()}, &post{}
		in := sending(p, h, to)
		if in.Prior = journal[:cut]; cut > 0 {
			h.says = nil
		}
		out := h.engine().Execute(t.Context(), in)
		require.Equal(t, engine.Completed, out.Status, out.Cause)
		for _, sent := range to.sent {
			require.Equal(t, longNumbers, string(sent.Payload), "cut at %d", cut)
		}
		calls, err := engine.Calls(slices.Concat(in.Prior, h.appended, out.Trailing))
		require.NoError(t, err)
		require.Len(t, calls, 1)
		require.Equal(t, `{"payload":`+longNumbers+`}`, encoded(t, calls[0].Arguments))
		contents := h.requests[len(h.requests)-1].Contents
		at := slices.IndexFunc(contents, func(c *model.Content) bool { return c.Parts[0].Call != nil })
		require.Equal(t, `{"payload":`+longNumbers+`}`, encoded(t, contents[at].Parts[0].Call.Args), "cut at %d", cut)
	}
}

// A tool result reaches the model with its digits, in the attempt of the call and in a later one.
func TestToolResult_KeepsTheDigitsOfNumbers(t *testing.T) {
	t.Parallel()
	p := project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [huge]\n",
		"models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: huge, arguments: {}}]}, {match: 'tool huge: (.*)', text: '${1}'}]")
	answers := func(context.Context, *engine.Call) (map[string]any, error) {
		return map[string]any{"row": json.RawMessage(longNumbers)}, nil
	}
	first := &house{huge: answers}
	whole := first.engine().Execute(t.Context(), input(p, first))
	require.Equal(t, engine.Completed, whole.Status, whole.Cause)
	journal := slices.Concat(first.appended, whole.Trailing)
	for cut := range len(journal) {
		h := &house{huge: answers}
		in := input(p, h)
		in.Prior = journal[:cut]
		out := h.engine().Execute(t.Context(), in)
		require.Equal(t, engine.Completed, out.Status, out.Cause)
		require.Equal(t, `{"row":`+longNumbers+`}`, out.Output, "cut at %d", cut)
	}
}

// A placeholder in a prompt has the value of the input.
func TestPrompt_KeepsTheDigitsOfNumbers(t *testing.T) {
	t.Parallel()
	_, values, err := runinput.Read("application/json", []byte(`{"id":9007199254740993,"o":{"n":[7615917337495251231,1.0]}}`), false, dispatchapi.Files{})
	require.NoError(t, err)
	h, out := prompted(t, "{id} {o} {o.n}", nil, values)
	require.Equal(t, engine.Completed, out.Status, out.Cause)
	require.Equal(t, `9007199254740993 {"n":[7615917337495251231,1.0]} [7615917337495251231,1.0]`, h.requests[0].Instructions)
}

func encoded(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	require.NoError(t, err)
	return string(data)
}
