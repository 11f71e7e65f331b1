// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// catalog is an engine with tools of a catalog that count their calls.
type catalog struct {
	house
	calls []string
	lock  sync.Mutex
}

func (c *catalog) engine(t *testing.T) *engine.Engine {
	t.Helper()
	tool := func(name, description string) engine.Tool {
		parameters := map[string]any{
			"type": "object", "properties": map[string]any{"amount": map[string]any{"type": "integer"}}, "additionalProperties": false,
		}
		schema, err := engine.CompileArguments(name, parameters)
		require.NoError(t, err)
		return engine.Tool{Name: name, Description: description, Parameters: parameters, Schema: schema, Run: func(_ context.Context, call *engine.Call) (map[string]any, error) {
			c.lock.Lock()
			defer c.lock.Unlock()
			c.calls = append(c.calls, fmt.Sprint(name, call.Arguments))
			return map[string]any{"did": name, "amount": call.Arguments["amount"]}, nil
		}}
	}
	return engine.New(engine.Config{Models: c, Tools: []engine.Tool{
		tool("look", "Looks."), tool("refund_order", "Pays money back."), tool("cancel_order", "Ends an order before shipping."),
		tool("get-invoice", "Returns an invoice of orders."), tool("secret_order", "Hidden."),
	}})
}

const catalogAgent = "name: main\nmodel: scripted/main\ntools: [look]\n" +
	"discoverable_tools: [refund_order, cancel_order, get-invoice, {secret_order: 'input.total > 10'}]\n"

// run runs an agent with a script from a journal.
func (c *catalog) run(t *testing.T, keys, steps string, prior []dispatchapi.JournalEntry) engine.Outcome {
	t.Helper()
	in := input(project(t, "agents/main.yaml", catalogAgent+keys, "models/main.yaml", "steps:\n"+steps), &c.house)
	in.Message, in.Prior = `{"total": 1}`, slices.Clone(prior)
	return c.engine(t).Execute(t.Context(), in)
}

// The model finds tools by words, the best first, and never a hidden one.
func TestDiscovery_SearchesTools(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ arguments, want string }{
		"word of a name":        {"{query: refund}", `"name":"refund_order"`},
		"name before words":     {"{query: invoice}", `"name":"get-invoice"`},
		"several words":         {"{query: 'cancel an order', limit: 1}", `"more":2,"tools":[{"description":"Ends an order before shipping.","name":"cancel_order","parameters":{`},
		"plural":                {"{query: Invoices}", `"name":"get-invoice"`},
		"word of a description": {"{query: money}", `"name":"refund_order"`},
		"no match":              {"{query: weather}", `{"more":0,"tools":[]}`},
		"no words":              {"{query: '', limit: 2}", `"more":1`},
		"hidden":                {"{query: secret}", `{"more":0,"tools":[]}`},
		"invalid limit":         {"{query: order, limit: 0}", `the arguments do not fit: limit`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &catalog{}
			out := c.run(t, "", "  - {turn: 1, tool_calls: [{name: search_tools, arguments: "+row.arguments+"}]}\n"+
				"  - {match: '(?s)tool search_tools: (?P<r>.*)', text: '${r}'}\n", nil)
			require.Equal(t, engine.Completed, out.Status, out.Cause)
			require.Contains(t, out.Output, row.want)
			require.NotContains(t, out.Output, "secret_order")
			require.NotContains(t, out.Output, "Looks.", "it is part of each request")
			require.Equal(t, [][]string{{"look", "search_tools", "use_tool"}, {"look", "search_tools", "use_tool"}}, c.toolsSeen())
		})
	}
}

// A call of use_tool is a call of the tool that it names: for its arguments, conditions, limits and the journal.
func TestDiscovery_UsesTools(t *testing.T) {
	t.Parallel()
	invalid := "{name: use_tool, arguments: {name: refund_order, arguments: {amount: much}}}"
	for name, row := range map[string]struct {
		keys, calls, output string
		code                runerror.Code
		called              []string
	}{
		"use":               {"", "{name: use_tool, arguments: {name: refund_order, arguments: {amount: 9007199254740993}}}", `{"amount":9007199254740993,"did":"refund_order"}`, "", []string{"refund_ordermap[amount:9007199254740993]"}},
		"no arguments":      {"", "{name: use_tool, arguments: {name: refund_order}}", `"did":"refund_order"`, "", []string{"refund_ordermap[]"}},
		"direct call":       {"", "{name: refund_order}", "", "", []string{"refund_ordermap[]"}},
		"tool of requests":  {"", "{name: use_tool, arguments: {name: look}}", `"did":"look"`, "", []string{"lookmap[]"}},
		"invalid arguments": {"", invalid, "the arguments do not fit: amount: must be of type integer, not string", "", nil},
		"three in a row":    {"", invalid + "," + invalid + "," + invalid, "", runerror.ToolArgumentsInvalid, nil},
		"hidden tool":       {"", "{name: use_tool, arguments: {name: secret_order}}", `the tool \"secret_order\" is not available now`, "", nil},
		"unknown tool":      {"", "{name: use_tool, arguments: {name: magic}}", `there is no tool \"magic\"; call one of the tools of the request, such as look, or find one with search_tools`, "", nil},
		"itself":            {"", "{name: use_tool, arguments: {name: use_tool}}", "use_tool cannot call itself", "", nil},
		"no name":           {"", "{name: use_tool, arguments: {}}", "the arguments do not fit: name: is missing", "", nil},
		"limit":             {"limits: {tool_calls: 1}\n", "{name: use_tool, arguments: {name: look}}, {name: use_tool, arguments: {name: look}}", "", runerror.RunLimitExceeded, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &catalog{}
			out := c.run(t, row.keys, "  - {turn: 1, tool_calls: ["+row.calls+"]}\n  - {match: '(?s)tool use_tool: (?P<r>[^\\n]*)', text: '${r}'}\n  - {text: done}\n", nil)
			require.Equal(t, row.code, out.ErrorCode, out.Error)
			require.Contains(t, out.Output, row.output)
			require.Equal(t, row.called, c.calls)
			calls, err := engine.Calls(slices.Concat(c.appended, out.Trailing))
			require.NoError(t, err)
			for _, call := range calls {
				if row.called != nil {
					require.NotEqual(t, "use_tool", call.Tool, "the journal has the name of the tool")
				}
			}
		})
	}
}

// A resumed run finds the same tools and repeats no call.
func TestDiscovery_ResumesAtEachEntry(t *testing.T) {
	t.Parallel()
	const steps = `
  - {turn: 1, tool_calls: [{name: search_tools, arguments: {query: refund}}]}
  - {turn: 2, match: '"name":"(refund_order)"', tool_calls: [{name: use_tool, arguments: {name: '${1}', arguments: {amount: 5}}}]}
  - {match: 'tool use_tool: .*"did":"refund_order"', text: refunded}
`
	first := &catalog{}
	whole := first.run(t, "", steps, nil)
	require.Equal(t, "refunded", whole.Output, whole.Cause)
	journal := slices.Concat(first.appended, whole.Trailing)
	for cut := range journal {
		c := &catalog{}
		out := c.run(t, "", steps, journal[:cut])
		if cut > 0 && journal[cut-1].Unsafe && journal[cut-1].Kind == dispatchapi.JournalToolStarted {
			require.Equal(t, runerror.ToolInterrupted, out.ErrorCode, "the interruption of the tool itself")
			continue
		}
		require.Equal(t, "refunded", out.Output, "resumed after entry %d: %v", cut, out.Cause)
		full := slices.Concat(journal[:cut], c.appended, out.Trailing)
		require.Equal(t, callsOf(t, journal), callsOf(t, full))
		require.LessOrEqual(t, len(c.calls), 1)
	}
}
