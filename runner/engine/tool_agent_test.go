// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// echo returns a tool that returns its arguments and has properties, of which required ones must be given.
func echo(t require.TestingT, properties map[string]any, required ...any) engine.Tool {
	parameters := map[string]any{"type": "object", "properties": properties, "required": append([]any{}, required...), "additionalProperties": false}
	schema, err := engine.CompileArguments("echo", parameters)
	require.NoError(t, err)
	return engine.Tool{Name: "echo", Parameters: parameters, Schema: schema, Idempotent: true, Run: func(_ context.Context, call *engine.Call) (map[string]any, error) {
		return map[string]any{"got": call.Arguments}, nil
	}}
}

const echoAgent = "name: main\ntype: tool\ntool_name: echo\n"

// The input of an agent of type tool is the arguments of the tool. A tool whose only parameter is payload gets the whole input.
func TestToolAgent_TakesArgumentsFromInput(t *testing.T) {
	t.Parallel()
	orders := map[string]any{"order": map[string]any{"type": "integer"}, "note": map[string]any{"type": "string"}}
	payload := map[string]any{"payload": map[string]any{}}
	for name, row := range map[string]struct {
		properties map[string]any
		required   []any
		input      string
		output     string
		code       runerror.Code
		fail       string
		files      int
	}{
		"object":            {properties: orders, input: `{"order": 9007199254740993}`, output: `{"got":{"order":9007199254740993}}`},
		"empty":             {properties: orders, input: " ", output: `{"got":{}}`},
		"wrong type":        {properties: orders, input: `{"order": "x"}`, code: runerror.ToolArgumentsInvalid, fail: `agent "main" with tool "echo": the arguments do not fit: order: must be of type integer, not string`},
		"missing":           {properties: orders, required: []any{"order"}, input: `{}`, code: runerror.ToolArgumentsInvalid, fail: `agent "main" with tool "echo": the arguments do not fit: order: is missing`},
		"unknown":           {properties: orders, input: `{"ordr": 1}`, code: runerror.ToolArgumentsInvalid, fail: `agent "main" with tool "echo": the arguments do not fit: ordr: is unknown; leave it out`},
		"text":              {properties: orders, input: "order 1", code: runerror.ToolArgumentsInvalid, fail: `agent "main" with tool "echo": the input must be a JSON object with the arguments`},
		"list":              {properties: orders, input: "[1]", code: runerror.ToolArgumentsInvalid, fail: `agent "main" with tool "echo": the input must be a JSON object with the arguments`},
		"payload of object": {properties: payload, input: `{"a": 1}`, output: `{"got":{"payload":{"a":1}}}`},
		"payload of text":   {properties: payload, input: "hello", output: `{"got":{"payload":"hello"}}`},
		"payload in object": {properties: payload, input: `{"payload": [1]}`, output: `{"got":{"payload":[1]}}`},
		"files":             {properties: orders, input: `{"order": 1, "files": [{"name": "a"}]}`, output: `{"got":{"order":1}}`, files: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &house{}
			e := engine.New(engine.Config{Models: h, Tools: []engine.Tool{echo(t, row.properties, row.required...)}})
			in := input(project(t, "agents/main.yaml", echoAgent), h)
			in.Message = row.input
			in.Files = make([]engine.File, row.files)
			require.Empty(t, e.Check(in.Project))
			out := e.Execute(t.Context(), in)
			require.Equal(t, row.code, out.ErrorCode, out.Cause)
			require.Equal(t, row.fail, out.Error)
			if row.output != "" {
				require.Equal(t, row.output, out.Output)
			}
		})
	}
}

// flaky returns a tool that fails with a code a number of times, and its calls.
func flaky(failures int64, code string, isRepeatable bool) (engine.Tool, *atomic.Int64) {
	calls := new(atomic.Int64)
	return engine.Tool{Name: "echo", Repeatable: isRepeatable, Run: func(context.Context, *engine.Call) (map[string]any, error) {
		if n := calls.Add(1); n <= failures {
			return nil, &engine.ToolError{Code: code, Message: fmt.Sprint("failure ", n)}
		}
		return map[string]any{"ok": true}, nil
	}}, calls
}

// The call of a repeatable tool is repeated as retry_options say, if its error may be temporary.
func TestToolAgent_RepeatsFailedCall(t *testing.T) {
	t.Parallel()
	const retries = "retry_options: {attempts: 3, initial_delay: 2, max_delay: 3}\n"
	for name, row := range map[string]struct {
		failures     int64
		code         string
		isRepeatable bool
		calls        int64
		pauses       []time.Duration
		fail         string
	}{
		"unavailable once":  {1, engine.CodeToolUnavailable, true, 2, []time.Duration{2 * time.Second}, ""},
		"script":            {2, "script_error", true, 3, []time.Duration{2 * time.Second, 3 * time.Second}, ""},
		"all attempts":      {3, engine.CodeToolUnavailable, true, 3, []time.Duration{2 * time.Second, 3 * time.Second}, `agent "main": tool "echo" failed: failure 3`},
		"not repeatable":    {1, engine.CodeToolUnavailable, false, 1, nil, `agent "main": tool "echo" failed: failure 1`},
		"permanent failure": {1, "", true, 1, nil, `agent "main": tool "echo" failed: failure 1`},
		"limit of a script": {1, "script_limit", true, 1, nil, `agent "main": tool "echo" failed: failure 1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &house{}
			tool, calls := flaky(row.failures, row.code, row.isRepeatable)
			var pauses []time.Duration
			e := engine.New(engine.Config{Models: h, Tools: []engine.Tool{tool}, Sleep: func(_ context.Context, d time.Duration) error {
				pauses = append(pauses, d)
				return nil
			}})
			in := input(project(t, "agents/main.yaml", echoAgent+retries), h)
			out := e.Execute(t.Context(), in)
			require.Equal(t, row.fail, out.Error, out.Cause)
			require.Equal(t, row.fail != "", out.ErrorCode == runerror.ToolFailed)
			require.Equal(t, row.calls, calls.Load())
			require.Equal(t, row.pauses, pauses)

			journal := slices.Concat(h.appended, out.Trailing)
			pauses = nil
			in.Prior, in.Journal = journal, &house{}
			again := e.Execute(t.Context(), in)
			require.Equal(t, out.Output, again.Output)
			require.Equal(t, out.Error, again.Error)
			require.Equal(t, row.calls, calls.Load(), "no recorded call is made again")
			require.Empty(t, pauses, "no recorded pause is repeated")
		})
	}
}

// A service sees a repeated call as the same call: all have one idempotency key.
func TestToolAgent_RepeatsCallWithSameKey(t *testing.T) {
	t.Parallel()
	h := &house{}
	var keys []string
	tool, _ := flaky(0, "", true)
	tool.Run = func(ctx context.Context, call *engine.Call) (map[string]any, error) {
		keys = append(keys, call.IdempotencyKey())
		_, err := call.Effects().Do(ctx, engine.Effect{Name: "http.post", Idempotent: true, Run: func(_ context.Context, key string) (map[string]any, error) {
			keys = append(keys, key)
			return nil, nil
		}})
		if err == nil && len(keys) < 6 {
			err = &engine.ToolError{Code: engine.CodeToolUnavailable, Message: "lost"}
		}
		return nil, err
	}
	e := engine.New(engine.Config{Models: h, Tools: []engine.Tool{tool}, Sleep: func(context.Context, time.Duration) error { return nil }})
	out := e.Execute(t.Context(), input(project(t, "agents/main.yaml", echoAgent+"retry_options: {attempts: 3}\n"), h))
	require.Equal(t, engine.Completed, out.Status, out.Cause)
	const call, effect = "r1/step:main", "r1/step:main/1"
	require.Equal(t, []string{call, effect, call, effect, call, effect}, keys)
}

// A stop of the attempt ends the pause before a repeated call. The next attempt makes the call.
func TestToolAgent_StopEndsPause(t *testing.T) {
	t.Parallel()
	h, stop := &house{}, make(chan struct{})
	tool, calls := flaky(1, engine.CodeToolUnavailable, true)
	e := engine.New(engine.Config{Models: h, Tools: []engine.Tool{tool}, Sleep: func(ctx context.Context, _ time.Duration) error {
		close(stop)
		<-ctx.Done()
		return ctx.Err()
	}})
	in := input(project(t, "agents/main.yaml", echoAgent), h)
	in.Stop = stop
	out := e.Execute(t.Context(), in)
	require.Equal(t, engine.Unfinished, out.Status, out.Error)
	require.ErrorIs(t, out.Cause, engine.ErrStopped)

	next := engine.New(engine.Config{Models: h, Tools: []engine.Tool{tool}, Sleep: func(context.Context, time.Duration) error { return nil }})
	in.Stop, in.Prior = nil, slices.Clone(h.appended)
	out = next.Execute(t.Context(), in)
	require.Equal(t, `{"ok":true}`, out.Output, out.Cause)
	require.EqualValues(t, 2, calls.Load())
}

// An agent of type tool is the agent of a run, a step, an agent of a sequence, and an A/B variant.
func TestToolAgent_IsAgentEverywhere(t *testing.T) {
	t.Parallel()
	const orders = "name: lookup\ntype: tool\ntool_name: echo\n"
	properties := map[string]any{"order": map[string]any{"type": "integer"}}
	for name, row := range map[string]struct {
		pairs   []string
		variant string
		output  string
	}{
		"step": {pairs: []string{"agents/main.yaml", "name: main\ntype: sequential\nsteps:\n  - {agent: lookup, input: {order: '5'}}\noutput: lookup.got.order\n"}, output: "5"},
		"parallel step": {pairs: []string{"agents/main.yaml", "name: main\ntype: sequential\nsteps:\n" +
			"  - parallel: [{agent: lookup, as: a, input: {order: '5'}}, {agent: lookup, as: b, input: {order: '6'}}]\noutput: '[a.got.order, b.got.order]'\n"}, output: "[5,6]"},
		"agent": {pairs: []string{"agents/main.yaml", "name: main\ntype: sequential\nagents: [first, lookup, last]\n",
			"agents/first.yaml", "name: first\nmodel: scripted/first\n", "models/first.yaml", `steps: [{text: '{"order": 7}'}]`,
			"agents/last.yaml", "name: last\nmodel: scripted/last\n", "models/last.yaml", "steps: [{match: '\\[lookup\\] said: (?P<it>.*)', text: 'Got ${it}'}]",
		}, output: `Got {"got":{"order":7}}`},
		"variant": {pairs: []string{"agents/main.yaml", "name: main\nmodel: scripted/main\nvariants: {direct: 50}\n", "models/main.yaml", "steps: [{text: x}]",
			"agents/main-test-direct.yaml", "name: direct\ntype: tool\ntool_name: echo\n"}, variant: "direct", output: `{"got":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &house{}
			e := engine.New(engine.Config{Models: h, Tools: []engine.Tool{echo(t, properties)}})
			in := input(project(t, append(row.pairs, "agents/lookup.yaml", orders)...), h)
			in.Message, in.TestName = "{}", row.variant
			require.Empty(t, e.Check(in.Project))
			out := e.Execute(t.Context(), in)
			require.Equal(t, row.output, out.Output, out.Cause)
			calls, err := engine.Calls(slices.Concat(h.appended, out.Trailing))
			require.NoError(t, err)
			require.NotEmpty(t, calls)
		})
	}
}

// A tool that is not idempotent is called once. A run that was interrupted in the call fails.
func TestToolAgent_CallsUnsafeToolOnce(t *testing.T) {
	t.Parallel()
	h := &house{}
	in := input(project(t, "agents/main.yaml", "name: main\ntype: tool\ntool_name: charge\n"), h)
	in.Message = `{"amount": 5}`
	out := h.engine().Execute(t.Context(), in)
	require.Equal(t, `{"charged":5}`, out.Output, out.Cause)
	require.Equal(t, dispatchapi.JournalToolStarted, h.appended[0].Kind)
	require.True(t, h.appended[0].Unsafe)

	in.Prior, in.Journal = h.appended[:1], &house{}
	require.Equal(t, runerror.ToolInterrupted, h.engine().Execute(t.Context(), in).ErrorCode)
	require.Len(t, h.called, 1)
}

// An agent calls a tool that a feature offers to it by name, such as a tool of an MCP server. Without it the run fails.
func TestToolAgent_CallsOfferedTool(t *testing.T) {
	t.Parallel()
	p := project(t, "agents/main.yaml", echoAgent+"mcp_servers: [{name: shop, url: 'https://mcp.example.com'}]\n")
	for name, row := range map[string]struct {
		offered []engine.Tool
		failure error
		output  string
		fail    string
	}{
		"offered":     {offered: []engine.Tool{{Name: "other"}, echo(t, map[string]any{})}, output: `{"got":{"name":"Ada"}}`},
		"not offered": {offered: []engine.Tool{{Name: "other"}}, fail: `tool "echo" of agent "main" is not available; correct tool_name, or check its MCP server`},
		"failure":     {failure: engine.NewFailure("x", "no variables", errors.New("y")), fail: "no variables"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(row.offered) > 1 {
				row.offered[1].Schema = nil
			}
			h := &house{}
			e := engine.New(engine.Config{Models: h, Features: []engine.Feature{{
				OfferedTools: func(context.Context, *engine.Scope) ([]engine.Tool, error) { return row.offered, row.failure },
			}}})
			require.Empty(t, e.Check(p), "only the server knows its tools")
			out := e.Execute(t.Context(), input(p, h))
			require.Equal(t, row.output, out.Output, out.Cause)
			require.Equal(t, row.fail, out.Error)
		})
	}
}

// A tool that neither the repository nor a server can have fails the run before its first step.
func TestToolAgent_MissingToolFailsFirst(t *testing.T) {
	t.Parallel()
	h := &house{}
	p := project(t, "agents/main.yaml", "name: main\ntype: sequential\nsteps: [{tool: charge}, {agent: lookup}]\n",
		"agents/lookup.yaml", "name: lookup\ntype: tool\ntool_name: gone\n")
	out := h.engine().Execute(t.Context(), input(p, h))
	require.Equal(t, runerror.ToolFailed, out.ErrorCode)
	require.Empty(t, h.called)
}

// A build rejects an MCP server that an agent of type tool never calls, unless defaults for all agents name the server.
func TestToolAgent_RejectsUnusedServers(t *testing.T) {
	t.Parallel()
	server := func(name, keys string) string {
		return "{name: " + name + ", url: 'https://" + name + ".example'" + keys + "}"
	}
	const unused = `the server "shop" has no effect, because tool_name "`
	for name, row := range map[string]struct{ agent, defaults, want string }{
		"built-in tool":   {"tool_name: echo\nmcp_servers: [" + server("shop", "") + "]\n", "", "agents/main.yaml:4:16: " + unused + `echo" is not one of its tools; remove the server, or correct tool_name`},
		"other prefix":    {"tool_name: crm_look\nmcp_servers:\n  - " + server("crm", ", prefix: crm_") + "\n  - " + server("shop", ", prefix: shop_") + "\n", "", "agents/main.yaml:6:6: " + unused + `crm_look"`},
		"other tools":     {"tool_name: crm_look\nmcp_servers: [" + server("shop", ", tools: [find]") + ", " + server("crm", "") + "]\n", "", unused + `crm_look"`},
		"tool of servers": {"tool_name: look\nmcp_servers: [" + server("shop", "") + ", " + server("crm", "") + "]\n", "", ""},
		"defaults":        {"tool_name: echo\n", "mcp_servers: [" + server("shop", "") + "]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pairs := []string{"agents/main.yaml", "name: main\ntype: tool\n" + row.agent}
			if row.defaults != "" {
				pairs = append(pairs, "agents/_defaults.yaml", row.defaults)
			}
			problems := engine.New(engine.Config{Models: &house{}, Tools: []engine.Tool{echo(t, map[string]any{})}}).Check(project(t, pairs...))
			if row.want == "" {
				require.Empty(t, problems)
				return
			}
			require.ErrorContains(t, problems, row.want)
			require.Len(t, problems, 1)
		})
	}
}
