// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// Steps and log lines of a followed run, as events.
const (
	runBegan   = "event: step\ndata: {\"id\":\"1\",\"parent_id\":null,\"name\":\"run support\",\"started_at\":\"2026-03-02T10:00:00Z\",\"duration_ms\":null}\n\n"
	modelEnded = "event: step\ndata: {\"id\":\"2\",\"parent_id\":\"1\",\"name\":\"invoke_agent support\",\"started_at\":\"2026-03-02T10:00:00Z\"}\n\n" +
		"id: 1\nevent: step\ndata: {\"id\":\"3\",\"parent_id\":\"2\",\"name\":\"chat gpt-5\",\"started_at\":\"2026-03-02T10:00:00Z\",\"ended_at\":\"2026-03-02T10:00:00.25Z\"," +
		"\"duration_ms\":250,\"token_usage\":{\"total_tokens\":120},\"cost\":{\"currency\":\"EUR\",\"amount\":0.0015}}\n\n"
	toolFailed = "event: step\ndata: {\"id\":\"4\",\"parent_id\":\"9\",\"name\":\"execute_tool \\u001b[31mlookup\",\"started_at\":\"2026-03-02T10:00:01Z\"," +
		"\"ended_at\":\"2026-03-02T10:00:01.04Z\",\"duration_ms\":40,\"error_type\":\"script_error\",\"error\":\"no such order\"}\n\n" +
		"event: new\ndata: {}\n\n" +
		"id: 2\nevent: log\ndata: {\"at\":\"2026-03-02T10:00:01.04Z\",\"level\":\"warning\",\"message\":\"line 1\\nline \x9b2\",\"position\":\"tools/a.star:3:2\"," +
		"\"fields\":{\"n\":9007199254740993}}\n\n"
	runEnded = "id: 2\nevent: end\ndata: {\"status\":\"failed\",\"error_code\":\"tool_failed\",\"more_traces\":3,\"more_logs\":2}\n\n"
)

// followedRun returns a project with a run that has ended, whose stream breaks off once.
func followedRun(t *testing.T, status string) *project {
	t.Helper()
	p := newProject(t)
	p.runs = []string{status}
	p.streams = []func(http.ResponseWriter, string){
		func(w http.ResponseWriter, last string) {
			require.Empty(t, last)
			_, _ = io.WriteString(w, ":\n\n"+runBegan+modelEnded)
		},
		func(w http.ResponseWriter, last string) {
			require.Equal(t, "1", last)
			_, _ = io.WriteString(w, runBegan+toolFailed+runEnded)
		},
	}
	return p
}

const (
	followedSteps = "10:00:00.000  run support  running\n" +
		"10:00:00.000    invoke_agent support  running\n" +
		"10:00:00.250      chat gpt-5  250ms  120 tokens  0.0015 EUR\n" +
		"10:00:01.040    execute_tool \\u001b[31mlookup  40ms  script_error: no such order\n"
	followedLog = "10:00:01.040 warning tools/a.star:3:2 line 1\nline \ufffd2 {\"n\":9007199254740993}\n"
)

// A followed run prints each step and each line once, across connections, and ends with the outcome of the run.
func TestRunsFollow_PrintsEvents(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ command, run, want, err string }{
		"steps of a failed run":   {"show", `{"status":"failed","error_code":"tool_failed","error":"no\u001b"}`, followedSteps + followedLog + "3 more steps\n2 more lines\n", `the run is failed tool_failed: no\u001b`},
		"log of a cancelled run":  {"logs", `{"status":"cancelled","error_code":"cancelled"}`, followedLog + "2 more lines\n", "the run is cancelled cancelled:"},
		"steps of a complete run": {"show", `{"status":"completed"}`, followedSteps + followedLog + "3 more steps\n2 more lines\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := followedRun(t, row.run)
			out, messages, err := p.agentctl("runs", row.command, "-f", uuid.NewString())
			require.Equal(t, row.want, out)
			if row.err == "" {
				require.NoError(t, err)
				require.Equal(t, "the run is completed\n", messages)
				return
			}
			require.EqualError(t, err, row.err)
			require.Equal(t, exitOutcome, exitCode(err))
		})
	}
}

// JSON has one event per line, with all fields and digits of the server.
func TestRunsFollow_PrintsJSON(t *testing.T) {
	t.Parallel()
	for command, names := range map[string][]string{"show": {"step", "step", "step", "step", "log", "end"}, "logs": {"log", "end"}} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			p := followedRun(t, `{"status":"completed"}`)
			out, _, err := p.agentctl("runs", command, "--follow", uuid.NewString(), "-o", "json")
			require.NoError(t, err)
			lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
			require.Len(t, lines, len(names))
			for i, name := range names {
				require.True(t, strings.HasPrefix(lines[i], `{"event":"`+name+`","data":{`), lines[i])
			}
			require.Contains(t, lines[len(lines)-2], `"fields":{"n":9007199254740993}`)
			require.JSONEq(t, `{"event":"end","data":{"status":"failed","error_code":"tool_failed","more_traces":3,"more_logs":2}}`, lines[len(lines)-1])
		})
	}
}

// The command fails for a run that does not exist, and for arguments that do not fit.
func TestRunsFollow_ReportsErrors(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.streams = []func(http.ResponseWriter, string){func(w http.ResponseWriter, _ string) { problemAnswer(http.StatusNotFound, "not_found")(w) }}
	id := uuid.NewString()
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"no such run": {[]string{id}, "following run " + id + ": 404 not_found"},
		"no ID":       {[]string{"../environments"}, "RUN: must be the ID of a run"},
		"yaml":        {[]string{id, "-o", "yaml"}, "--output: --follow prints text or json"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := p.agentctl(append([]string{"runs", "show", "-f"}, row.args...)...)
			require.ErrorContains(t, err, row.want)
			require.Equal(t, exitFailed, exitCode(err))
		})
	}
}
