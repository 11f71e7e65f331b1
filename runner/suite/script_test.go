// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv/scripttest"
)

func TestMain(m *testing.M) { scripttest.Main(m) }

// A case runs scripts. Mocks answer their requests, and a request without a mock is an error of the script.
func TestCase_RunsScripts(t *testing.T) {
	t.Parallel()
	files := []string{
		"agents/shop.yaml", "name: shop\nmodel: openai/gpt-5\ntools: [orders.state]\n",
		"tools/orders.star", `
def state(order):
    """Returns the state of an order.

    Args:
      order (string): Number.
    """
    return http.get(env("SHOP_URL") + "/orders/" + order, headers = {"Authorization": env("TOKEN")})["json"]
`,
		"models/m.yaml", `steps: [{turn: 1, tool_calls: [{name: orders_state, arguments: {order: "4711"}}]}, {match: '(?s)tool orders_state: (?P<r>.*)', text: '${r}'}]`,
	}
	for name, row := range map[string]struct{ mocks, expected string }{
		"a mocked request": {`, http: [{request: GET /orders/4711, status: 200, json: {state: paid, id: 9007199254740993}}]`, `output == '{"id":9007199254740993,"state":"paid"}'`},
		"a mocked tool":    {`, tools: {orders.state: {result: {state: open}}}`, `output.contains("open")`},
		"no mock":          {``, `output.contains("error")`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "agent: shop\ncases:\n  - name: a\n    payload: x\n    mocks: {models: {openai/gpt-5: scripted/m}" + row.mocks + "}\n" +
				"    expected_tool_calls: [{tool: orders.state, arguments: {order: '4711'}}]\n    expected_result: " + row.expected + "\n"
			r := ran(t, text, files...)
			require.Equal(t, name != "no mock", r.Passed, r.Explain())
		})
	}
}

// A case is the first attempt of a run, as on the platform.
func TestCase_IsFirstAttempt(t *testing.T) {
	t.Parallel()
	r := ran(t, "agent: greeter\ncases:\n  - {name: a, payload: x, mocks: {models: {openai/gpt-5: scripted/m}}, expected_result: 'output == \"attempt 1\"'}\n",
		"agents/greeter.yaml", "name: greeter\nmodel: openai/gpt-5\n",
		"middleware/greeter.star", "def before(content, context):\n    stop(\"attempt %d\" % context[\"attempt\"])\n",
		"models/m.yaml", "steps: [{text: no}]")
	require.True(t, r.Passed, r.Explain())
}

// A mock answers the request of http.save, and the script and later calls read the file.
func TestCase_SavesFiles(t *testing.T) {
	t.Parallel()
	r := ran(t, "agent: shop\ncases:\n  - name: a\n    payload: x\n    mocks: {models: {openai/gpt-5: scripted/m}, http: [{request: GET /report.csv, text: 'a,b'}]}\n"+
		"    expected_tool_calls: [{tool: reports.fetch}, {tool: reports.read}, {tool: read_file, arguments: {id: s1}}]\n"+
		"    expected_result: 'output.contains(\"report.csv\") && output.contains(\"a,b!\") && output.contains(\"\\\"size\\\":3\")'\n",
		"agents/shop.yaml", "name: shop\nmodel: openai/gpt-5\ntools: ['reports.*']\n",
		"tools/reports.star", `
def fetch():
    """Fetches the report."""
    return http.save(env("SHOP_URL") + "/report.csv")

def read():
    """Reads the report."""
    return files.text(files.list()[0]["id"]) + "!"
`,
		"models/m.yaml", `steps:
  - {turn: 1, tool_calls: [{name: reports_fetch}]}
  - {turn: 2, tool_calls: [{name: reports_read}]}
  - {turn: 3, tool_calls: [{name: read_file, arguments: {id: s1}}]}
  - {match: '(?s)(?P<r>.*)', text: '${r}'}
`)
	require.True(t, r.Passed, r.Explain())
}

// Mocks answer the requests of a tool that is a step.
func TestCase_MocksRequestsOfSteps(t *testing.T) {
	t.Parallel()
	r := ran(t, "agent: flow\ncases:\n  - name: a\n    payload: {order: '4711'}\n    mocks: {http: [{request: GET /4711, status: 200, json: {state: paid}}]}\n"+
		"    expected_result: output.contains(\"paid\")\n",
		"agents/flow.yaml", "name: flow\ntype: sequential\nsteps: [{tool: t.look, with: {order: input.order}}]\n",
		"tools/t.yaml", "base_url: https://shop.example\ntools: {look: {description: L, parameters: {order: {type: string}}, request: 'GET /{order}'}}\n")
	require.True(t, r.Passed, r.Explain())
}

// A case tests the condition of a tool by its payload and headers. A call of a hidden tool is not executed.
func TestCase_HidesTools(t *testing.T) {
	t.Parallel()
	files := []string{
		"agents/shop.yaml", "name: shop\nmodel: openai/gpt-5\ntools: [{current_time: 'input.total > 10 && headers[\"x-team\"] == \"ops\"'}]\n",
		"models/m.yaml", `steps: [{turn: 1, tool_calls: [{name: current_time}]}, {match: '(?s)tool current_time: (?P<r>.*)', text: '${r}'}]`,
	}
	for name, row := range map[string]struct{ event, expected string }{
		"shown":          {"payload: {total: 11}\n    context: {headers: {X-Team: ops}}", "expected_tool_calls: [{tool: current_time, times: 1}]"},
		"by a header":    {"payload: {total: 11}\n    context: {headers: {X-Team: web}}", "expected_no_tool_calls: [current_time]"},
		"by an error":    {"payload: {total: 11}", "expected_no_tool_calls: [current_time]\n    expected_result: output.contains('not available now')"},
		"by the payload": {"payload: {total: 10}\n    context: {headers: {X-Team: ops}}", "expected_no_tool_calls: [current_time]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := ran(t, "agent: shop\ncases:\n  - name: a\n    "+row.event+"\n    mocks: {models: {openai/gpt-5: scripted/m}}\n    "+row.expected+"\n", files...)
			require.True(t, r.Passed, r.Explain())
		})
	}
}

// A case tests an agent of type tool: mocks answer the requests of its script, its HTTP tool and its MCP server.
func TestCase_RunsToolAgents(t *testing.T) {
	t.Parallel()
	script := []string{"tools/t.star", "def look(order):\n    \"\"\"Looks.\n\n    Args:\n      order (integer): Number.\n    \"\"\"\n" +
		"    return http.get(env(\"SHOP_URL\") + \"/\" + str(order))[\"json\"]\n"}
	request := []string{"tools/t.yaml", "base_url: https://shop.example\ntools: {look: {description: L, parameters: {order: {type: integer}}, request: 'GET /{order}', result: body}}\n"}
	const answer = "http: [{request: GET /4711, json: {state: paid}}]"
	for name, row := range map[string]struct {
		agent, mocks, called string
		files                []string
	}{
		"script":    {"tool_name: t.look\n", answer, "t.look", script},
		"HTTP tool": {"tool_name: t.look\n", answer, "t.look", request},
		"mock":      {"tool_name: t.look\n", "tools: {t.look: {result: {state: paid}}}", "t.look", script},
		"MCP tool": {"tool_name: shop_look\nmcp_servers: [{name: shop, url: 'https://${SHOP}', prefix: shop_}]\n",
			"mcp: [{server: shop, tool: look, arguments: {order: 4711}, result: {state: paid}}]", "shop_look", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := ran(t, "agent: lookup\ncases:\n  - name: a\n    payload: {order: 4711}\n    mocks: {"+row.mocks+"}\n    expected_result: json(output).state == 'paid'\n"+
				"    expected_tool_calls: [{tool: "+row.called+", arguments: {order: 4711}, times: 1}]\n",
				append(row.files, "agents/lookup.yaml", "name: lookup\ntype: tool\n"+row.agent)...)
			require.True(t, r.Passed, r.Explain())
		})
	}
}

// A failed case names the calls that were rejected, because they are no calls of the run.
func TestCase_NotesRejectedCalls(t *testing.T) {
	t.Parallel()
	r := ran(t, "agent: shop\ncases:\n  - name: a\n    payload: x\n    expected_tool_calls: [{tool: orders.state}]\n",
		"agents/shop.yaml", "name: shop\nmodel: scripted/m\ntools: [orders.state]\n",
		"tools/orders.star", "def state(order):\n    \"\"\"State.\n\n    Args:\n      order (integer): Number.\n    \"\"\"\n",
		"models/m.yaml", `steps: [{turn: 1, tool_calls: [{name: orders_state, arguments: {order: "7"}}]}, {turn: 2, text: ok}]`)
	require.False(t, r.Passed)
	require.Len(t, r.Notes, 1)
	require.Contains(t, r.Notes[0], `rejected call of "orders_state": the arguments do not fit: order`)
	require.Contains(t, r.Explain(), "note: "+r.Notes[0])
}

// Mocks answer the requests of a script that is a step. A request without a mock fails the case.
func TestCase_RunsScriptSteps(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		mocks  string
		passed bool
	}{"mocked": {"mocks: {http: [{request: GET /4711, json: {state: paid}}]}", true}, "no mock": {"timeout_s: 60", false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := ran(t, "agent: flow\ncases:\n  - name: a\n    payload: {order: 4711}\n    "+row.mocks+"\n    expected_result: status == 'failed' || json(output).state == 'paid'\n",
				"agents/flow.yaml", "name: flow\ntype: sequential\nsteps: [{script: steps.enrich.run}]\n",
				"steps/enrich.star", "def run(input):\n    return http.get(env(\"SHOP_URL\") + \"/\" + str(input[\"order\"]))[\"json\"]\n")
			require.Equal(t, row.passed, r.Passed, r.Explain())
			if !row.passed {
				require.Contains(t, r.Explain(), "no mock answers GET ")
			}
		})
	}
}
