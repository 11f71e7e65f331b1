// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// tracedRun is a run with steps and log lines.
const tracedRun = `{"status":"running","more_traces":3,"more_logs":2,"traces":[
	{"id":"1","parent_id":null,"name":"run support","kind":"run","started_at":"2026-03-02T10:00:00Z","duration_ms":null},
	{"id":"2","parent_id":"1","name":"invoke_agent support","kind":"agent","started_at":"2026-03-02T10:00:00Z","duration_ms":1500},
	{"id":"3","parent_id":"2","name":"chat gpt-5","kind":"model","started_at":"2026-03-02T10:00:00Z","duration_ms":250,
		"token_usage":{"input_tokens":100,"output_tokens":20,"total_tokens":120},"cost":{"currency":"EUR","amount":0.0015}},
	{"id":"4","parent_id":"2","name":"execute_tool \u001b[31mlookup","kind":"tool","started_at":"2026-03-02T10:00:01Z","duration_ms":40,
		"error_type":"script_error","error":"no such order"}],
	"logs":[{"at":"2026-03-02T10:00:01.04Z","level":"warning","message":"slow","position":"tools/a.star:3:2","fields":{"n":9007199254740993},"span_id":"4"},
		{"at":"2026-03-02T10:00:01.04Z","level":"error","message":"line 1\nline 2","position":null,"fields":null,"span_id":"4"}]}`

const tracedTree = `STEP                               TIME     TOKENS  COST        ERROR
run support                        running  -       -           
  invoke_agent support             1.5s     -       -           
    chat gpt-5                     250ms    120     0.0015 EUR  
    execute_tool \u001b[31mlookup  40ms     -       -           script_error: no such order
3 more steps
`

const tracedLog = `10:00:01.040 warning tools/a.star:3:2 slow {"n":9007199254740993}
10:00:01.040 error line 1
line 2
2 more lines
`

// Show prints the tree of steps and the log, and logs prints the log alone.
func TestRunsShow_PrintsTrace(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{"show": tracedTree + "\n" + tracedLog, "logs": tracedLog} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.runs = []string{tracedRun}
			id := uuid.NewString()
			out, _, err := p.agentctl("runs", command, id)
			require.NoError(t, err)
			require.Equal(t, want, out)
			out, _, err = p.agentctl("runs", command, id, "-o", "json")
			require.NoError(t, err)
			require.JSONEq(t, tracedRun, out)
			_, _, err = p.agentctl("runs", command, "../environments")
			require.ErrorContains(t, err, "RUN: must be the ID of a run")
		})
	}
}

// A run without steps has no log.
func TestRunsShow_WithoutLog(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.runs = []string{`{"status":"queued","traces":[],"logs":[]}`}
	out, _, err := p.agentctl("runs", "show", uuid.NewString())
	require.NoError(t, err)
	require.Equal(t, "STEP  TIME  TOKENS  COST  ERROR\n", out)
}

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
