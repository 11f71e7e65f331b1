// SPDX-License-Identifier: Apache-2.0

package runnerconfig_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

func TestParseVariables_ReadsWrittenVariables(t *testing.T) {
	t.Parallel()
	written := runnerconfig.Sorted([]runnerconfig.Variable{{Name: "TOKEN", Value: "s", Sensitive: true}, {Name: "EMPTY"}, {Name: "REGION", Value: "eu"}})
	written = written.WithOAuthApps([]runnerconfig.OAuthApp{
		{Name: "erp", TokenURL: "https://login.example.com/t", ClientID: "i", ClientSecret: "s", Scopes: []string{"a"}, Audience: "b"},
		{Name: "crm", TokenURL: "https://login.example.com/t", ClientID: "i", ClientSecret: "s"},
	})
	data, err := json.Marshal(written)
	require.NoError(t, err)
	read, err := runnerconfig.ParseVariables(data)
	require.NoError(t, err)
	require.Equal(t, written, read)
	for _, v := range written.Variables {
		found, there := read.Find(v.Name)
		require.True(t, there)
		require.Equal(t, v, found)
	}
	_, there := read.Find("REGIO")
	require.False(t, there)
	for _, app := range written.OAuthApps {
		found, there := read.FindOAuthApp(app.Name)
		require.True(t, there)
		require.Equal(t, app, found)
	}
	_, there = read.FindOAuthApp("cr")
	require.False(t, there)
}

func TestParseVariables_RejectsInvalidFileWithoutContent(t *testing.T) {
	t.Parallel()
	app := `{"name":"a","token_url":"https://secret.example.com","client_id":"secret","client_secret":"secret"}`
	for _, text := range []string{"", "secret", `{"oauth_apps":[{"name":"a","client_secret":"secret"}]}`, `{"oauth_apps":[` + app + `,` + app + `]}`, `{"variables":"secret"}`, `{"variables":[{"name":"B","value":"secret"},{"name":"A"}]}`, `{"variables":[{"name":"A"},{"name":"A","value":"secret"}]}`} {
		_, err := runnerconfig.ParseVariables([]byte(text))
		require.ErrorContains(t, err, runnerconfig.VariablesFile, text)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestCheckVariables_LimitsSizes(t *testing.T) {
	t.Parallel()
	full := runnerconfig.Variable{Name: "FULL", Value: strings.Repeat("x", runnerconfig.MaxVariable)}
	for _, c := range []struct {
		name, of, problem string
		variables         []runnerconfig.Variable
	}{
		{name: "none"},
		{name: "one at its limit", variables: []runnerconfig.Variable{full}},
		{name: "one beyond it, in bytes", of: "LONG", problem: "more than 8192 bytes", variables: []runnerconfig.Variable{
			full, {Name: "LONG", Value: strings.Repeat("ä", runnerconfig.MaxVariable/2) + "x"},
		}},
		{name: "all at their limit", variables: repeated(full, runnerconfig.MaxVariables/runnerconfig.MaxVariable)},
		{name: "all beyond it", problem: "more than 256 KiB together", variables: append(repeated(full, runnerconfig.MaxVariables/runnerconfig.MaxVariable), runnerconfig.Variable{Value: "x"})},
	} {
		t.Run(c.name, func(t *testing.T) {
			of, problem := runnerconfig.CheckVariables(c.variables)
			require.Equal(t, c.of, of)
			if c.problem == "" {
				require.Empty(t, problem)
				return
			}
			require.Contains(t, problem, c.problem)
		})
	}
}

func repeated(v runnerconfig.Variable, times int) (out []runnerconfig.Variable) {
	for range times {
		out = append(out, v)
	}
	return out
}
