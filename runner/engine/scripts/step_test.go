// SPDX-License-Identifier: Apache-2.0

package scripts_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// newStepBench returns a bench whose agent has steps, one of them the function run of a script.
func newStepBench(t *testing.T, steps, source string) *bench {
	t.Helper()
	b := newBench(t, "def run():\n    \"\"\"Does nothing.\"\"\"\n", "{name: t_run}")
	var err error
	b.project, err = bundle.Parse(bundle.Files{
		"agents/main.yaml": []byte("name: main\ntype: sequential\n" + steps), "steps/enrich.star": []byte(source),
		"agents/a.yaml": []byte("name: a\nmodel: scripted/a\n"), "models/a.yaml": []byte(`steps: [{text: '{"order": 9007199254740993}'}]`),
	})
	require.NoError(t, err)
	require.Empty(t, b.engine.Check(b.project))
	return b
}

// The function of a step gets the input, the results so far and the context. Its value is the result for later steps.
func TestStep_PassesValues(t *testing.T) {
	t.Parallel()
	const all = "def run(input, steps, context):\n    return [input, steps, context[\"customer\"]]\n"
	for name, row := range map[string]struct{ steps, source, output string }{
		"all parameters": {"steps: [{agent: a, as: t}, {agent: a, as: skipped, when: 'false'}, {script: steps.enrich.run, as: f}]\noutput: f\n", all,
			`["hi",{"t":{"order":9007199254740993},"skipped":null},"acme"]`},
		"own input": {"steps: [{agent: a, as: t}, {script: steps.enrich.run, as: f, input: {n: t.order}}]\noutput: 'f[0]'\n", all, `{"n":9007199254740993}`},
		"earlier script": {"steps: [{script: steps.enrich.run, as: f, input: '1'}, {script: steps.enrich.run, as: g, input: f}]\noutput: 'g'\n",
			"def run(input):\n    return {\"n\": input[\"n\"] + 1 if type(input) == \"dict\" else input}\n", `{"n":2}`},
		"text":    {"steps: [{script: steps.enrich.run, as: f}]\noutput: f + '!'\n", "def run(input):\n    return input.upper()\n", `HI!`},
		"nothing": {"steps: [{script: steps.enrich.run, as: f}]\noutput: f == null\n", "def run():\n    pass\n", `true`},
		"last":    {"steps: [{script: steps.enrich.run}]\n", "def run():\n    return \"done\"\n", `done`},
		"parallel": {"steps: [{parallel: [{script: steps.enrich.run, as: f, input: '\"x\"'}, {script: steps.enrich.run, as: g, input: '\"y\"'}]}]\noutput: '[f, g, context.last]'\n",
			"def run(input, context):\n    seen = context.get(\"last\")\n    context[\"last\"] = input\n    return [input, seen]\n", `[["x",null],["y",null],"y"]`},
		"stop": {"steps: [{script: steps.enrich.run}, {agent: a}]\n", "def run():\n    stop(\"We are closed.\")\n", `We are closed.`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newStepBench(t, row.steps, row.source)
			out, journal := b.execute(t, nil)
			require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
			if strings.HasPrefix(row.output, "[") || strings.HasPrefix(row.output, "{") {
				require.JSONEq(t, row.output, out.Output)
			} else {
				require.Equal(t, row.output, out.Output)
			}
			for cut := range journal {
				again, _ := b.execute(t, slices.Clone(journal[:cut]))
				require.Equal(t, out.Output, again.Output, "resumed after entry %d: %s %v", cut, again.Error, again.Cause)
			}
		})
	}
}

const threeRequests = `
def run(input, steps, context):
    context["note"] = "enriched"
    log("begins")
    ids = []
    for name in ["check", "book"]:
        ids.append(http.post(env("SHOP") + "/" + name, json = {"at": time.now(), "key": uuid.new()},
            headers = {"Authorization": "Bearer " + env("TOKEN")})["json"]["id"])
    return {"ids": ids, "state": http.get(env("SHOP") + "/state")["status"]}
`

// A step that is resumed from any position of its journal continues where it was, and does not run again after it ended.
func TestStep_ResumesBetweenRequests(t *testing.T) {
	t.Parallel()
	b := newStepBench(t, "steps: [{script: steps.enrich.run, as: f}, {agent: a}]\noutput: '[f, context.note]'\n", threeRequests)
	out, journal := b.execute(t, nil)
	require.JSONEq(t, `[{"ids":[9007199254740993,9007199254740993],"state":200},"enriched"]`, out.Output, "%s %v", out.Error, out.Cause)
	whole := b.shop.writes()
	require.Len(t, whole, 2)
	last := slices.IndexFunc(journal, func(e dispatchapi.JournalEntry) bool {
		return e.Kind == dispatchapi.JournalStep && strings.Contains(string(e.Data), `"outcome":"ended"`)
	})
	require.Contains(t, string(journal[last].Data), `"id":"script:main/0:steps.enrich.run"`)
	require.Contains(t, string(journal[last].Data), `"text":"begins"`)
	require.NotContains(t, string(journal[last].Data), canary)
	for cut := range journal {
		t.Run(fmt.Sprint("resumed after entry ", cut), func(t *testing.T) {
			b.shop.ledger = nil
			again, _ := b.execute(t, slices.Clone(journal[:cut]))
			if again.ErrorCode == runerror.ToolInterrupted {
				require.Equal(t, dispatchapi.JournalToolStarted, journal[cut-1].Kind, "only a request that is itself in flight")
				require.Empty(t, b.shop.writes())
				return
			}
			require.Equal(t, out.Output, again.Output, "%s %v", again.Error, again.Cause)
			if cut > last {
				require.Empty(t, b.shop.ledger, "the script has ended")
			}
			if cut > 0 { // the time and the UUIDs are recorded with the begin of the script
				writes := b.shop.writes()
				require.Equal(t, strings.Join(whole[len(whole)-len(writes):], "\n"), strings.Join(writes, "\n"))
			}
		})
	}
}

// A script that fails fails the run, with the name of its file and no change of the context.
func TestStep_FailsRun(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		source, message string
		code            runerror.Code
	}{
		"fail":     {"def run(context):\n    context[\"a\"] = 1\n    fail(\"no such order\")\n", "run of steps/enrich.star failed: no such order", "script_error"},
		"error":    {"def run(input):\n    return input[\"x\"]\n", "run of steps/enrich.star failed: ", "script_error"},
		"response": {"def run():\n    return http.get(env(\"SHOP\") + \"/\")\n", "run of steps/enrich.star failed: http.request: the service responded with the status 418", "script_error"},
		"limit":    {"def run():\n    for i in range(1000000000):\n        pass\n", "run of steps/enrich.star failed: the script needs more than", "script_limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newStepBench(t, "steps: [{script: steps.enrich.run}]\n", row.source)
			b.shop.status = http.StatusTeapot
			out, journal := b.execute(t, nil)
			require.Equal(t, row.code, out.ErrorCode, out.Cause)
			require.Contains(t, out.Error, row.message)
			require.NotContains(t, string(journal[len(journal)-1].Data), `"context"`)
			again, _ := b.execute(t, journal)
			require.Equal(t, out.Error, again.Error, "from its journal")
			require.Equal(t, row.code, again.ErrorCode, "from its journal")
		})
	}
}

// A build rejects a built-in that the script of a step cannot call.
func TestStep_RejectsBuiltins(t *testing.T) {
	t.Parallel()
	b := newBench(t, "def run():\n    \"\"\"Does nothing.\"\"\"\n", "{name: t_run}")
	project, err := bundle.Parse(bundle.Files{
		"agents/main.yaml":  []byte("name: main\ntype: sequential\nsteps: [{script: steps.enrich.run}]\n"),
		"steps/enrich.star": []byte("def run():\n    send_connector(\"crm\", {\"payload\": 1})\n"),
	})
	require.NoError(t, err)
	require.ErrorContains(t, b.engine.Check(project), "steps/enrich.star:2:5: send_connector cannot be called")
}
