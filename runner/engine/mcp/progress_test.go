// SPDX-License-Identifier: Apache-2.0

package mcp_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
)

// reporting answers calls with reports of progress before the result. The token of a report is that of the call, unless the
// report has one. The method is written as PHP does.
func reporting(reports ...string) func(w http.ResponseWriter, r *http.Request, call request) {
	return func(w http.ResponseWriter, _ *http.Request, call request) {
		var params struct {
			Meta struct {
				Token json.RawMessage `json:"progressToken"`
			} `json:"_meta"`
		}
		_ = json.Unmarshal(call.Params, &params)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, report := range reports {
			if !strings.Contains(report, "progressToken") {
				report += `,"progressToken":` + string(params.Meta.Token)
			}
			_, _ = fmt.Fprintf(w, `data: {"jsonrpc":"2.0","method":"notifications\/progress","params":{%s}}`+"\n\n", report)
		}
		_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", call.ID, textResult("done"))
	}
}

// The progress that a server reports is an event of the request, without secrets. Reports of other calls and invalid reports
// are left out.
func TestProgress_IsEventsOfRequest(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		reports []string
		want    []map[string]any
	}{
		"none": {},
		"reports": {
			[]string{`"progress":1,"total":4,"message":"reads k4nary-secret"`, `"progress":2.5`},
			[]map[string]any{
				{"agentplatform.progress.value": 1.0, "agentplatform.progress.total": 4.0, "agentplatform.progress.message": "reads [REDACTED]"},
				{"agentplatform.progress.value": 2.5},
			},
		},
		"secret at the end of the text": {
			[]string{`"progress":1,"message":"` + strings.Repeat("x", 250) + `k4nary-secret"`},
			[]map[string]any{{"agentplatform.progress.value": 1.0, "agentplatform.progress.message": strings.Repeat("x", 250) + "[RE…"}},
		},
		"other call": {[]string{`"progress":1,"progressToken":"other"`, `"progress":1,"progressToken":7`}, nil},
		"invalid":    {[]string{`"progress":"much"`, `"progress":1e999`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.answer = reporting(row.reports...)
			c, _ := newClient(t)
			j := &journal{}
			out := execute(t, c, project(t, "{name: crm, url: '"+f.URL+"', prefix: crm_, discovery: live, headers: {X-Key: '${KEY}'}}"), j,
				runnerconfig.Variable{Name: "KEY", Value: "k4nary-secret", Sensitive: true})
			require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
			require.Equal(t, `saw {"result":"done"}`, out.Output)
			var got []map[string]any
			for _, event := range requestSpan(t, j).Events {
				require.Equal(t, "agentplatform.progress", event.Name)
				require.False(t, event.At.IsZero())
				got = append(got, event.Attributes)
			}
			require.Equal(t, row.want, got)
		})
	}
}

// The journal has the latest reports. No number of reports ends a call, and their bytes do not count against the limit of the
// response.
func TestProgress_KeepsLatestReports(t *testing.T) {
	t.Parallel()
	const count = 10_001
	reports := make([]string, count)
	for i := range reports {
		reports[i] = fmt.Sprintf(`"progress":%d,"message":"%s"`, i+1, strings.Repeat("x", 1000))
	}
	require.Greater(t, len(strings.Join(reports, "")), mcp.MaxAnswer)
	f := newFake(t)
	f.answer = reporting(reports...)
	c, _ := newClient(t)
	j := &journal{}
	out := execute(t, c, project(t, "{name: crm, url: '"+f.URL+"', prefix: crm_, discovery: live}"), j)
	require.Equal(t, `saw {"result":"done"}`, out.Output, "%s %v", out.Error, out.Cause)
	events := requestSpan(t, j).Events
	require.Len(t, events, runtrace.MaxProgress)
	last := events[runtrace.MaxProgress-1].Attributes
	require.InDelta(t, count, last["agentplatform.progress.value"], 0)
	require.LessOrEqual(t, len(last["agentplatform.progress.message"].(string)), 256)
}

// The text of a report is cut when it arrives, so that a call keeps little memory.
func TestProgress_KeepsShortTexts(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, len(mcp.KeptReportText(strings.Repeat("ä", 500<<10))), 32<<10)
	require.Equal(t, "short", mcp.KeptReportText("short"))
}

// requestSpan returns the span of the request to the server in a journal.
func requestSpan(t *testing.T, j *journal) runtrace.Span {
	t.Helper()
	var entries []runtrace.Entry
	for i, e := range j.entries {
		entries = append(entries, runtrace.Entry{Sequence: int64(i + 1), Kind: e.Kind, Data: e.Data})
	}
	trace, err := runtrace.ComputeTrace(runtrace.Run{ID: "run-1"}, entries)
	require.NoError(t, err)
	for _, s := range trace.Spans {
		if s.Kind == runtrace.KindMCP {
			return s
		}
	}
	t.Fatal("the journal has no request to a server")
	return runtrace.Span{}
}
