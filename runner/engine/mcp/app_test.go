// SPDX-License-Identifier: Apache-2.0

package mcp_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// Without the OAuth app of a server, a run fails if the server is required. Otherwise the agent has no tools of it, in all
// attempts of the run, and the log says so.
func TestFeature_MissingOAuthApp(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c, _ := newClient(t)
	listed, err := c.List(t.Context(), f.server(t))
	require.NoError(t, err)
	with := runnerconfig.Variables{}.WithOAuthApps([]runnerconfig.OAuthApp{{Name: "crm", TokenURL: f.URL, ClientID: "id", ClientSecret: "s"}})
	without := runnerconfig.Variables{}
	const problem = `MCP server "crm": the environment has no OAuth app "crm"; add it to spec.oauthApps of the Environment`
	server := "{name: crm, url: '" + f.URL + "', prefix: crm_, oauth_app: crm"
	for _, row := range []struct {
		name, server string
		locked       []bundle.LockedServer
		code         runerror.Code
	}{
		{"required", server + "}", []bundle.LockedServer{listed}, runerror.VariableUnavailable},
		{"live", server + ", discovery: live}", nil, runerror.VariableUnavailable},
		{"not required", server + ", required: false}", []bundle.LockedServer{listed}, ""},
		{"not required and not listed", server + ", required: false}", nil, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p, j := project(t, row.server, row.locked...), &journal{}
			out := executeWith(t, c, p, j, without)
			if row.code != "" {
				require.Equal(t, row.code, out.ErrorCode)
				require.Equal(t, problem, out.Error)
				return
			}
			require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
			require.Contains(t, out.Output, `no tool \"crm_get\"`)
			require.Equal(t, []string{problem + "; the agent has no tools of it"}, logOf(t, j.entries))
			again := executeWith(t, c, p, &journal{entries: j.entries[:1]}, with)
			require.Equal(t, out.Output, again.Output, "the app is added between the attempts")
		})
	}
}

// A run that began with the tools of a server fails if its OAuth app is removed: its model has seen the tools.
func TestFeature_OAuthAppRemovedDuringRun(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c, _ := newClient(t)
	listed, err := c.List(t.Context(), f.server(t))
	require.NoError(t, err)
	answer, err := json.Marshal(map[string]any{"agent": "ok", "turn": 1, "model": "scripted/m", "content": map[string]any{
		"role": "model", "parts": []any{map[string]any{"functionCall": map[string]any{"id": "c1", "name": "crm_get", "args": map[string]any{"id": 1}}}},
	}})
	require.NoError(t, err)
	j := &journal{entries: []dispatchapi.JournalEntry{{Sequence: 1, Kind: dispatchapi.JournalModelAnswer, Data: answer}}}
	p := project(t, "{name: crm, url: '"+f.URL+"', prefix: crm_, oauth_app: crm, required: false}", listed)
	out := executeWith(t, c, p, j, runnerconfig.Variables{})
	require.Equal(t, runerror.VariableUnavailable, out.ErrorCode)
	require.Contains(t, out.Error, `no OAuth app "crm"`)
}

// logOf returns the log of the steps of a journal.
func logOf(t *testing.T, entries []dispatchapi.JournalEntry) (lines []string) {
	t.Helper()
	for _, e := range entries {
		var step struct{ Log []engine.LogLine }
		require.NoError(t, json.Unmarshal(e.Data, &step))
		for _, line := range step.Log {
			lines = append(lines, line.Text)
		}
	}
	return lines
}
