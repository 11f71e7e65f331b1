// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Shells complete flags and arguments by the objects of the project.
func TestCompletion_AsksTheProject(t *testing.T) {
	t.Setenv("AGENTPLATFORM_ENVIRONMENT", "")
	s := newShop(t, stored)
	t.Setenv("AGENTPLATFORM_SERVER", s.url)
	t.Setenv("AGENTPLATFORM_PROJECT", s.id)
	t.Setenv("AGENTPLATFORM_API_KEY", s.key)
	for line, want := range map[string]string{
		"status --environment ":         "production\tProduction",
		"deploy --environment ":         "production\tProduction",
		"lint --environment ":           "production\tProduction",
		"env list --environment ":       "production\tProduction",
		"runs --agent ":                 "hello\nwelcome",
		"activate ":                     "5c1e09aa\tproduction, live",
		"cancel ":                       "5c1e09aa\tproduction, live",
		"redeploy ":                     "5c1e09aa\tproduction, live",
		"deploy-anyway ":                "5c1e09aa\tproduction, live",
		"logs ":                         "5c1e09aa\tproduction, live",
		"env get ":                      "REGION\nTOKEN",
		"env unset --environment none ": "",
	} {
		t.Run(line, func(t *testing.T) {
			args := append([]string{"__complete"}, strings.Split(line, " ")...)
			out, _, err := run(t, args...)
			require.NoError(t, err)
			require.Equal(t, strings.TrimSpace(want+"\n:4"), strings.TrimSpace(out))
		})
	}
	t.Setenv("AGENTPLATFORM_SERVER", "http://127.0.0.1:1")
	out, _, err := run(t, "__complete", "status", "--environment", "")
	require.NoError(t, err)
	require.Equal(t, ":4\n", out, "a server that does not answer completes nothing")
}

// The help has the name under which the program was called.
func TestHelp_NamesTheProgramAsCalled(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"deploy --help", "env set --help", "lint --help", "--help"} {
		var out strings.Builder
		root := newRootCommand("kubectl agentplatform")
		root.SetArgs(strings.Split(line, " "))
		root.SetOut(&out)
		require.NoError(t, root.ExecuteContext(t.Context()))
		require.Contains(t, out.String(), "kubectl agentplatform", line)
		require.NotContains(t, out.String(), "agentctl", line)
	}
}
