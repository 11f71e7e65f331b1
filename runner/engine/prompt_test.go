// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// prompted executes a run of an agent with this prompt.
func prompted(t *testing.T, prompt string, variables func() (runnerconfig.Variables, error), context map[string]any) (*house, engine.Outcome) {
	t.Helper()
	h := &house{}
	in := input(project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\nsystem_prompt: '"+prompt+"'\n", "models/main.yaml", `steps: [{text: done}]`), h)
	in.Context = context
	e := engine.New(engine.Config{Models: h, Tools: h.tools(), Variables: variables})
	return h, e.Execute(t.Context(), in)
}

func region() (runnerconfig.Variables, error) {
	return runnerconfig.Sorted([]runnerconfig.Variable{{Name: "REGION", Value: "eu {name}"}, {Name: "TOKEN", Value: "hush", Sensitive: true}}), nil
}

// Variables come from the environment and never from an input field env. A value is not expanded
// again.
func TestPrompt_ReplacesVariables(t *testing.T) {
	t.Parallel()
	h, out := prompted(t, "{env.REGION}, {env}, {name}, {envs.REGION}", region, map[string]any{"name": "Ada", "env": map[string]any{"REGION": "forged"}})
	require.Equal(t, engine.Completed, out.Status, out.Cause)
	require.Equal(t, `eu {name}, {"REGION":"forged"}, Ada, {envs.REGION}`, h.requests[0].Instructions)
}

func TestPrompt_UnavailableVariableFailsRunFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prompt    string
		variables func() (runnerconfig.Variables, error)
		want      string
	}{
		"unknown":                          {"{env.ZONE} {env.TOKEN}", region, `{env.ZONE}: the environment has no variable "ZONE"; add it`},
		"a name that no variable can have": {"{env.a-b.c}", region, `the environment has no variable "a-b.c"`},
		"sensitive":                        {"{env.TOKEN}", region, `the variable "TOKEN" is sensitive, and is never sent to a model`},
		"no variables":                     {"{env.REGION}", nil, "variables are not available here"},
		"unreadable variables":             {"{env.REGION}", func() (runnerconfig.Variables, error) { return runnerconfig.Variables{}, errors.New("hush") }, "could not be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, out := prompted(t, c.prompt, c.variables, map[string]any{"env": map[string]any{"ZONE": "forged"}})
			require.Equal(t, engine.Failed, out.Status)
			require.Equal(t, runerror.VariableUnavailable, out.ErrorCode)
			require.Contains(t, out.Error, `the system prompt of agent "main" has `)
			require.Contains(t, out.Error, c.want)
			require.NotContains(t, out.Error, "hush")
			require.Empty(t, h.asked)
		})
	}
}

// Recorded answers do not change.
func TestPrompt_ResumesWithChangedVariables(t *testing.T) {
	t.Parallel()
	p := project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [charge]\nsystem_prompt: In {env.REGION}.\n",
		"models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: charge, arguments: {}}]}, {text: done}]")
	of := func(h *house, value string) *engine.Engine {
		return engine.New(engine.Config{Models: h, Tools: h.tools(), Variables: func() (runnerconfig.Variables, error) {
			return runnerconfig.Variables{Variables: []runnerconfig.Variable{{Name: "REGION", Value: value}}}, nil
		}})
	}
	stop := make(chan struct{})
	first := &house{onTool: func(context.Context) error { close(stop); return nil }}
	in := input(p, first)
	in.Stop = stop
	out := of(first, "eu").Execute(t.Context(), in)
	require.Equal(t, engine.Unfinished, out.Status)
	second := &house{}
	in = input(p, second)
	in.Prior = first.appended
	out = of(second, "us").Execute(t.Context(), in)
	require.Equal(t, engine.Completed, out.Status, out.Cause)
	require.Equal(t, "done", out.Output)
	require.Len(t, second.asked, 1)
	require.Equal(t, "In us.", second.requests[0].Instructions)
}
