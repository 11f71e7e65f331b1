// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// Cancel cancels runs, and none if an argument is wrong.
func TestRunsCancel_CancelsRuns(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.runs = []string{`{"status":"cancelled","error_code":"cancelled"}`}
	var methods []string
	p.onCall = func(method, _ string) { methods = append(methods, method) }
	one, two := uuid.NewString(), uuid.NewString()
	out, _, err := p.agentctl("runs", "cancel", one, two)
	require.NoError(t, err)
	require.Equal(t, "cancelled run "+one+"\ncancelled run "+two+"\n", out)
	require.Equal(t, []string{http.MethodPost, http.MethodPost}, methods)
	require.Equal(t, []string{"/runs/" + one + "/cancel", "/runs/" + two + "/cancel"}, p.called)
	out, _, err = p.agentctl("runs", "cancel", one, "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, "["+p.runs[0]+"]", out)
	p.called = nil
	for _, wrong := range [][]string{{"runs", "cancel"}, {"runs", "cancel", one, "../environments"}} {
		_, _, err = p.agentctl(wrong...)
		require.Error(t, err)
	}
	require.Empty(t, p.called, "nothing is cancelled where an argument is wrong")
	out, _, err = run(t, "__complete", "runs", "cancel", "")
	require.NoError(t, err)
	require.Equal(t, ":4\n", out, "no deployments")
}

// Cancel stops at the first run that cannot be cancelled, and prints the runs before it.
func TestRunsCancel_StopsAtTheFirstError(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.runs = []string{`{"status":"cancelled"}`}
	one, two, three := uuid.NewString(), uuid.NewString(), uuid.NewString()
	p.refused = map[string]bool{"/runs/" + two + "/cancel": true}
	out, _, err := p.agentctl("runs", "cancel", one, two, three)
	require.ErrorContains(t, err, "cancelling run "+two+": 409 conflict")
	require.Equal(t, exitFailed, exitCode(err))
	require.Equal(t, "cancelled run "+one+"\n", out)
	require.Len(t, p.called, 2)
	out, _, err = p.agentctl("runs", "cancel", one, two, three, "-o", "json")
	require.ErrorContains(t, err, "cancelling run "+two)
	require.JSONEq(t, `[{"status":"cancelled"}]`, out)
}
