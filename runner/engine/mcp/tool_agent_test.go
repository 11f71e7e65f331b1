// SPDX-License-Identifier: Apache-2.0

package mcp_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
	"github.com/agentplatform/agentplatform/runner/model"
)

// lookAgent begins an agent of type tool with a live server. More keys of the server follow.
const lookAgent = "name: look\ntype: tool\ntool_name: crm_get\nmcp_servers:\n  - {name: crm, url: '${CRM_URL}', prefix: crm_, discovery: live, idempotent: [get]"

// runSteps executes an attempt of a run whose first step sets the user in the context.
func runSteps(t *testing.T, c *mcp.Client, url, steps, agent string, prior []dispatchapi.JournalEntry) (engine.Outcome, []dispatchapi.JournalEntry) {
	t.Helper()
	p, err := bundle.Parse(bundle.Files{
		"agents/ok.yaml": []byte("name: ok\ntype: sequential\nsteps:\n  - {tool: sign_in}\n" + steps), "agents/look.yaml": []byte(agent),
	})
	require.NoError(t, err)
	signIn := engine.Tool{Name: "sign_in", Idempotent: true, Run: func(_ context.Context, call *engine.Call) (map[string]any, error) {
		call.ChangeContext(map[string]any{"user": "ada"})
		return map[string]any{}, nil
	}}
	e := engine.New(engine.Config{Models: &model.Registry{}, Tools: []engine.Tool{signIn}, Features: []engine.Feature{
		c.Feature(func() (runnerconfig.Variables, error) {
			return runnerconfig.Sorted([]runnerconfig.Variable{{Name: "CRM_URL", Value: url}}), nil
		}),
	}})
	j := &journal{entries: slices.Clone(prior)}
	out := e.Execute(t.Context(), engine.Input{RunID: "r", AgentName: "ok", Project: p, Message: "{}", Journal: j, Prior: prior})
	return out, append(j.entries, out.Trailing...)
}

// An agent of type tool lists its live server when it runs, with the values that earlier steps have set. An agent that is
// skipped, or that never calls a server, does not contact it.
func TestFeature_ToolAgentListsWhenItRuns(t *testing.T) {
	t.Parallel()
	const header = ", headers: {X-User: '${context.user}'}}\n"
	for name, row := range map[string]struct {
		steps, agent string
		isContacted  bool
	}{
		"value of an earlier step": {"  - {agent: look, input: {id: '7'}}\n", lookAgent + header, true},
		"parallel":                 {"  - parallel: [{agent: look, as: a, input: {id: '7'}}, {tool: sign_in, as: b}]\noutput: a\n", lookAgent + header, true},
		"skipped":                  {"  - {agent: look, when: 'false'}\n", lookAgent + "}\n", false},
		"missing value, skipped":   {"  - {agent: look, when: 'false'}\n", lookAgent + ", headers: {X-User: '${context.team}'}}\n", false},
		"server without the tool": {
			"  - {agent: look, input: {id: '7'}}\n",
			lookAgent + header + "  - {name: other, url: '${OTHER_URL}', prefix: other_}\n", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			var mu sync.Mutex
			var users []string
			f.before = func(_ http.ResponseWriter, r *http.Request, _ request) bool {
				mu.Lock()
				defer mu.Unlock()
				users = append(users, r.Header.Get("X-User"))
				return false
			}
			c, _ := newClient(t)
			out, _ := runSteps(t, c, f.URL, row.steps, row.agent, nil)
			require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
			mu.Lock()
			defer mu.Unlock()
			if !row.isContacted {
				require.Empty(t, users)
				return
			}
			require.JSONEq(t, `{"result":"done"}`, out.Output)
			require.Equal(t, []string{"ada"}, slices.Compact(users))
		})
	}
}

// Later attempts get the tools that the run has listed, also if the server lists others by then.
func TestFeature_ToolAgentResumesAtEachEntry(t *testing.T) {
	t.Parallel()
	const steps, agent = "  - {agent: look, input: {id: '7'}}\n", lookAgent + "}\n"
	f := newFake(t)
	c, _ := newClient(t)
	out, whole := runSteps(t, c, f.URL, steps, agent, nil)
	require.JSONEq(t, `{"result":"done"}`, out.Output, "%s %v", out.Error, out.Cause)
	listed := slices.IndexFunc(whole, func(e dispatchapi.JournalEntry) bool { return e.Kind == dispatchapi.JournalStep })
	require.Positive(t, listed)
	for cut := range len(whole) + 1 {
		f := newFake(t)
		if cut > listed {
			f.tools = "[]"
		}
		c, _ := newClient(t)
		out, again := runSteps(t, c, f.URL, steps, agent, whole[:cut])
		require.JSONEq(t, `{"result":"done"}`, out.Output, "resumed after entry %d: %s", cut, out.Error)
		require.Len(t, again, len(whole))
		require.Equal(t, cut <= listed, f.requests("POST tools/list") > 0)
	}
}
