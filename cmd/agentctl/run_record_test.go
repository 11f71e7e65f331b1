// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A recorded case answers http.save with the bytes that the service sent, so the script reads the same file.
func TestRun_RecordsSavedFile(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		_, _ = io.WriteString(w, "order,total\n4711,5\n4712,7\n")
	}))
	t.Cleanup(shop.Close)
	dir := repository(t,
		"agents/clerk.yaml", "name: clerk\nmodel: scripted/clerk\ntools: [reports.fetch]\n",
		"models/clerk.yaml", "steps: [{turn: 1, tool_calls: [{name: reports_fetch}]}, {match: '(?s)tool reports_fetch: (?P<r>.*)', text: '${r}'}]\n",
		"tools/reports.star", `
def fetch():
    """Fetches a report."""
    report = http.save(env("SHOP_URL") + "/reports/may.csv")
    return {"file": report, "lines": len(files.text(report["id"]).splitlines())}
`)
	file := filepath.Join(dir, "tests", "saved.yaml")
	out, messages, err := run(t, "run", "clerk", "--folder", dir, "--env", "SHOP_URL="+shop.URL, "--record", file)
	require.NoError(t, err, messages)
	const want = `{"file":{"id":"s1","mime_type":"text/csv","name":"may.csv","size":26},"lines":3}`
	require.JSONEq(t, want, out)
	require.Contains(t, messages, "recorded "+file+"; the case passes\n")
	recorded, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(recorded), "request: GET /reports/may.csv\n")
	require.Contains(t, string(recorded), "4711,5")

	require.EqualValues(t, 1, requests.Load())
	out, messages, err = run(t, "test", dir, "--env", "SHOP_URL="+shop.URL)
	require.NoError(t, err, out+messages)
	require.Contains(t, out, "ok   clerk/saved ")
	require.EqualValues(t, 1, requests.Load(), "a test sends no request")
}

// A recorded case has the arguments after the hook "before" and the results before the hook "after", because a replay executes the
// hooks again.
func TestRun_RecordsCallsWithoutHooks(t *testing.T) {
	t.Parallel()
	crm := httptest.NewServer(http.HandlerFunc(serveCRM))
	t.Cleanup(crm.Close)
	dir := repository(t,
		"agents/clerk.yaml", "name: clerk\nmodel: scripted/clerk\ntools: [current_time]\nmcp_servers: [{name: crm, url: '${CRM_URL}', prefix: crm_}]\n",
		"models/clerk.yaml", `steps:
  - {turn: 1, tool_calls: [{name: crm_get_customer, arguments: {id: 7}}, {name: current_time}]}
  - {match: '(?s)tool crm_get_customer: (?P<r>.*)tool current_time: (?P<s>.*)', text: '${r}${s}'}
`,
		"hooks/clerk.star", `
def before(tool, params, context):
    return {"id": params["id"] + 1} if "id" in params else None

def after(tool, params, result, context):
    return {"of": params.get("id"), "hooked": result}
`)
	file := filepath.Join(dir, "tests", "hooked.yaml")
	out, messages, err := run(t, "run", "clerk", "--folder", dir, "--env", "CRM_URL="+crm.URL, "--record", file)
	require.NoError(t, err, messages)
	require.Contains(t, out, `"hooked":{"key":"","name":"Ada"},"of":8`)
	require.Contains(t, messages, "recorded "+file+"; the case passes\n")
	recorded, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, string(recorded), "hooked:\n")
	out, messages, err = run(t, "test", dir, "--env", "CRM_URL="+crm.URL)
	require.NoError(t, err, out+messages)
	require.Contains(t, out, "ok   clerk/hooked ")
}
