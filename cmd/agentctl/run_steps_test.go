// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/runner/localrun"
)

// refundFlow is a sequential agent with a script, and an agent with middleware and hooks.
var refundFlow = []string{
	"agents/flow.yaml", "name: flow\ntype: sequential\nsteps:\n  - {script: steps.refund.compute, as: sum}\n  - {agent: clerk, input: sum}\n",
	"steps/refund.star", "def compute(input):\n    log(\"computing\", item = input[\"item\"])\n    return price(input) * 2\n\n\ndef price(input):\n    return input[\"price\"]\n",
	"agents/clerk.yaml", "name: clerk\nmodel: scripted/clerk\ntools: [current_time]\n",
	"models/clerk.yaml", "steps:\n  - {turn: 1, tool_calls: [{name: current_time, arguments: {}}]}\n  - {turn: 2, text: done}\n",
	"middleware/clerk.star", "def before(content, context):\n    print(\"begins\")\n    return content\n",
	"hooks/clerk.star", "def after(tool, params, result, context):\n    print(\"called \" + tool)\n    return result\n",
}

// The scripts of steps, middleware and hooks are steps of the run, with their logs and outcomes.
func TestRun_ShowsScripts(t *testing.T) {
	t.Parallel()
	dir := repository(t, refundFlow...)
	out, messages, err := run(t, "run", "flow", "--folder", dir, "--input", `{"item": "cup", "price": 4}`, "-o", "json")
	require.NoError(t, err, messages)
	for _, want := range []string{
		`log info: computing {"item":"cup"} (steps/refund.star:2:8)`, "script steps.refund.compute, ", "s: ended 8\n",
		"log info: begins (middleware/clerk.star:2:10)", "script middleware.before, ", "log info: called current_time (hooks/clerk.star:2:10)", "script hook.after, ",
	} {
		require.Contains(t, messages, want)
	}
	var shown struct{ Steps []localrun.Step }
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.Equal(t, localrun.Log, shown.Steps[1].Kind)
	require.Equal(t, localrun.ScriptEnded, shown.Steps[2].Kind)
	require.Equal(t, "steps.refund.compute", shown.Steps[2].Script)
	require.Equal(t, "ended", shown.Steps[2].Outcome)
	require.JSONEq(t, "8", string(shown.Steps[2].Value))
}

// A run needs the MCP servers and the variables of its own agents only.
func TestRun_NeedsOnlyItsOwnServers(t *testing.T) {
	t.Parallel()
	dir := repository(t, append(refundFlow,
		"agents/sums.yaml", "name: sums\nmodel: scripted/clerk\nmcp_servers: [{name: everything, url: '${MCP_URL}'}]\n",
		"agents/both.yaml", "name: both\ntype: sequential\nagents: [clerk, sums]\n")...)
	_, messages, err := run(t, "run", "clerk", "--folder", dir)
	require.NoError(t, err, messages)
	_, _, err = run(t, "run", "both", "--folder", dir)
	require.ErrorContains(t, err, `MCP server "everything": the environment has no variable MCP_URL`)
}

// The error of a script has its position and the calls that led there, in a run and in a failed test.
func TestRun_ShowsPositionsOfScriptErrors(t *testing.T) {
	t.Parallel()
	dir := repository(t, append(refundFlow, "tests/flow.yaml",
		"agent: flow\ncases:\n  - {name: a, payload: {item: cup}, expected_result: 'output == \"done\"'}\n")...)
	const position = `steps/refund.star:7:17: key "price" not in dict`
	_, messages, err := run(t, "run", "flow", "--folder", dir, "--input", `{"item": "cup"}`)
	require.ErrorContains(t, err, "the run failed with script_error")
	require.Contains(t, messages, "log error: "+position+" in price at steps/refund.star:7:17 in compute at steps/refund.star:3:17")
	require.Contains(t, messages, `failed: key "price" not in dict`)
	out, _, err := run(t, "test", dir)
	require.Equal(t, exitOutcome, exitCode(err))
	require.Contains(t, out, "note:     "+position+"\n")
	require.Contains(t, out, "in compute at steps/refund.star:3:17")
}
