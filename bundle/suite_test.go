// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

const (
	testedAgent = "name: ok\nmodel: openai/gpt-5\ntools: [current_time]\n"
	testScript  = "steps: [{text: hi}]\n"
)

// withSuite returns a repository with one suite.
func withSuite(text string, more ...string) bundle.Files {
	return newFiles(append([]string{
		"agents/ok.yaml", testedAgent, "agents/flow.yaml", "name: flow\ntype: sequential\nagents: [ok]\n", "models/m.yaml", testScript,
		"tests/files/a.txt", "hello", "tests/t.yaml", text,
	}, more...)...)
}

func TestParse_ReadsSuites(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(withSuite(`agent: flow
mocks:
  models: {openai/gpt-5: scripted/m}
  tools: {current_time: {error: no clock}}
cases:
  - name: full
    payload: {a: [1, x]}
    files: [files/a.txt]
    context: {headers: {X-GitHub-Event: push}}
    runs: 3
    success_threshold: 0.66
    timeout_s: 30
    mocks:
      models:
        openai/gpt-5: {steps: [{text: own}]}
      tools: {current_time: {result: {time: now}}}
    expected_result: output == "own"
    expected_tool_calls: [{tool: current_time, arguments: {timezone: UTC}, times: 1}]
    expected_no_tool_calls: [current_time]
    approval_decisions: [approve]
  - name: bare
    payload: hello
`))
	require.NoError(t, err)
	require.Len(t, p.Suites, 1)
	s := p.Suites[0]
	require.Equal(t, "flow", s.Agent)
	full, bare := s.Cases[0], s.Cases[1]
	require.Equal(t, map[string]any{"a": []any{json.Number("1"), "x"}}, full.Payload)
	require.Equal(t, []string{"files/a.txt"}, full.Files)
	require.Equal(t, map[string]string{"X-GitHub-Event": "push"}, full.Context.Headers)
	require.Equal(t, 3, full.Runs)
	require.InDelta(t, 0.66, full.SuccessThreshold, 0)
	require.Equal(t, 30, full.TimeoutSeconds)
	require.Equal(t, `output == "own"`, full.ExpectedResult)
	require.Equal(t, []bundle.ExpectedCall{{Tool: "current_time", Arguments: map[string]any{"timezone": "UTC"}, Times: 1}}, full.ExpectedToolCalls)
	require.Equal(t, []string{"current_time"}, full.ExpectedNoToolCalls)
	require.NotNil(t, full.ApprovalDecisions)
	require.Equal(t, "tests/t.yaml:17:5", full.At("expected_result").String())
	require.Equal(t, "own", full.Mocks.Models["openai/gpt-5"].Script.Steps[0].Text)
	require.Equal(t, map[string]any{"time": "now"}, full.Mocks.Tools["current_time"].Result)

	require.Equal(t, 1, bare.Runs)
	require.InDelta(t, 1, bare.SuccessThreshold, 0)
	require.Equal(t, 60, bare.TimeoutSeconds)
	require.Equal(t, "scripted/m", s.Mocks.Models["openai/gpt-5"].Reference)
	require.Equal(t, "no clock", s.Mocks.Tools["current_time"].Error)
}

func TestParse_ReportsSuiteProblems(t *testing.T) {
	t.Parallel()
	one := func(keys string) string {
		return "agent: ok\ncases:\n  - name: a\n    payload: {}\n    " + strings.ReplaceAll(keys, "\n", "\n    ") + "\n"
	}
	for name, c := range map[string]struct{ suite, want string }{
		"no agent":                              {"cases: [{name: a, payload: x}]", `tests/t.yaml:1:1: missing key "agent"; write agent: support`},
		"no such agent":                         {"agent: none\ncases: [{name: a, payload: x}]", `tests/t.yaml:1:1: no agent is named "none"`},
		"no cases":                              {"agent: ok", `tests/t.yaml:1:1: missing key "cases"; write cases: [{name: greeting, payload: Hello}]`},
		"an empty case":                         {"agent: ok\ncases: [null]", `"cases[0]" is empty`},
		"a case that is text":                   {"agent: ok\ncases: [x]", `"cases[0]" must be keys and values, not text`},
		"unknown key":                           {one("expected_resul: x"), `tests/t.yaml:5:5: unknown key "expected_resul"; did you mean "expected_result"?`},
		"no name":                               {"agent: ok\ncases: [{payload: x}]", `tests/t.yaml:2:10: missing key "cases[0].name"; write name: greeting`},
		"a malformed name":                      {"agent: ok\ncases: [{name: A b, payload: x}]", `"cases[0].name" must be at most 63 lower-case letters, digits and inner dashes`},
		"no input":                              {"agent: ok\ncases: [{name: a}]", `a case needs "payload" or "files"`},
		"text beside files":                     {"agent: ok\ncases: [{name: a, payload: x, files: [files/a.txt]}]", `beside "files" the payload must be keys and values`},
		"no such file":                          {one("files: [files/b.txt]"), `tests/t.yaml:5:5: the file tests/files/b.txt does not exist`},
		"a file outside tests/files":            {one("files: [t.yaml]"), "the file tests/t.yaml does not exist"},
		"a path outside tests":                  {one("files: [../agents/ok.yaml]"), "does not exist; write its path below tests/"},
		"too many files":                        {one("files: [" + strings.Repeat("files/a.txt, ", 11) + "]"), "at most 10 files"},
		"no runs":                               {one("runs: 0"), `tests/t.yaml:5:11: "cases[0].runs" must be between 1 and 100`},
		"too many runs":                         {one("runs: 101"), `"cases[0].runs" must be between 1 and 100`},
		"no threshold":                          {one("success_threshold: 0"), `must be between 0.01 and 1`},
		"threshold above one":                   {one("success_threshold: 2"), `must be between 0.01 and 1`},
		"too long":                              {one("timeout_s: 901"), `must be between 1 and 900`},
		"header with a secret":                  {one("context: {headers: {Cookie: x}}"), `tests/t.yaml:5:25: "Cookie" must not be a header with a credential`},
		"mock of an unused model":               {one("mocks: {models: {openai/gpt-4: scripted/m}}"), `tests/t.yaml:5:22: agent "ok" does not use the model "openai/gpt-4"; its models: openai/gpt-5`},
		"mock with a model instead of a script": {one("mocks: {models: {openai/gpt-5: openai/gpt-4}}"), `the mock "openai/gpt-4" is not a script`},
		"mock with an unknown script":           {one("mocks: {models: {openai/gpt-5: scripted/n}}"), `the mock "scripted/n" is not a script`},
		"mock that is a list":                   {one("mocks: {models: {openai/gpt-5: [x]}}"), "must be a script, scripted/<file>, or its steps, not a list"},
		"mock without steps":                    {one("mocks: {models: {openai/gpt-5: {steps: []}}}"), `"cases[0].mocks.models.openai/gpt-5.steps" must not be empty`},
		"mock with a bad step":                  {one("mocks: {models: {openai/gpt-5: {steps: [{turn: 1}]}}}"), `a step needs "text"`},
		"mock of an unknown tool":               {one("mocks: {tools: {current_tim: {error: x}}}"), `agent "ok" has no tool "current_tim"; its tools: current_time`},
		"mock without result and error":         {one("mocks: {tools: {current_time: {}}}"), `needs either "result" or "error"`},
		"mock with result and error":            {one("mocks: {tools: {current_time: {result: {}, error: x}}}"), `needs either "result" or "error"`},
		"suite mock of an unknown tool":         {"agent: ok\nmocks: {tools: {x: {error: x}}}\ncases: [{name: a, payload: x}]", `agent "ok" has no tool "x"`},
		"expected call of an unknown tool":      {one("expected_tool_calls: [{tool: x}]"), `tests/t.yaml:5:5: agent "ok" has no tool "x"`},
		"expected call without a tool":          {one("expected_tool_calls: [{arguments: {}}]"), `missing key "cases[0].expected_tool_calls[0].tool"; write tool: current_time`},
		"expected call with zero times":         {one("expected_tool_calls: [{tool: current_time, times: 0}]"), `leave it out for at least one`},
		"rejected call of an unknown tool":      {one("expected_no_tool_calls: [x]"), `agent "ok" has no tool "x"`},
		"two cases with one name":               {"agent: ok\ncases: [{name: a, payload: x}, {name: a, payload: x}]", `agent "ok" has a case "a" already, at tests/t.yaml:2:10`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bundle.Parse(withSuite(c.suite))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// The limits count cases, runs, and values after the expansion of aliases.
func TestParse_LimitsSuites(t *testing.T) {
	t.Parallel()
	var runs strings.Builder
	for i := range bundle.MaxTestRuns/100 + 1 {
		fmt.Fprintf(&runs, "  - {name: c%d, payload: x, runs: 100}\n", i)
	}
	_, err := bundle.Parse(withSuite("agent: ok\ncases:\n" + runs.String()))
	require.ErrorContains(t, err, "at most 1000 cases with 5000 runs together")

	var cases []string
	for file := range 2 {
		var text strings.Builder
		for i := range bundle.MaxTestCases/2 + 1 {
			fmt.Fprintf(&text, "  - {name: c%d-%d, payload: x}\n", file, i)
		}
		cases = append(cases, fmt.Sprintf("tests/%d.yaml", file), "agent: ok\ncases:\n"+text.String())
	}
	_, err = bundle.Parse(newFiles(append(cases, "agents/ok.yaml", testedAgent)...))
	require.ErrorContains(t, err, "at most 1000 cases")

	heavy := "agent: ok\ncases:\n  - name: a\n    payload: {a: &a [" + strings.Repeat("x,", 1000) + "], b: [" + strings.Repeat("*a, ", 45) + "]}\n"
	var many []string
	for i := range 7 {
		many = append(many, fmt.Sprintf("tests/%d.yaml", i), strings.Replace(heavy, "name: a", fmt.Sprintf("name: a%d", i), 1))
	}
	_, err = bundle.Parse(newFiles(append(many, "agents/ok.yaml", testedAgent)...))
	require.ErrorContains(t, err, "too large together")
}

// A case may name the tools of the agent's steps, and the tools that links give to the agent.
func TestProject_Actions(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(withSuite(
		"agent: flow\ncases: [{name: a, payload: x, expected_no_tool_calls: [current_time, send_to_the_crm, tell]}]",
		"connectors/crm.yaml", "type: webhook\nmode: outbound\nname: The CRM\nconfig: {url: 'https://crm.example.com'}\nlinks: [{agent: flow, outbound: {mode: agent_tool}}]\n",
		"connectors/chat.yaml", "type: webhook\nmode: outbound\nconfig: {url: 'https://chat.example.com'}\nlinks: [{agent: flow, outbound: {mode: agent_tool, action_name: tell}}, {agent: ok, outbound: {mode: automatic}}]\n",
	))
	require.NoError(t, err)
	require.Equal(t, []bundle.Action{{Name: "tell", Connector: "chat"}, {Name: "send_to_the_crm", Connector: "The CRM"}}, p.Actions("flow"))
	require.Empty(t, p.Actions("ok"))
}

// Attachments are not parsed, also if their names end in .yaml.
func TestParse_IgnoresAttachments(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(withSuite("agent: ok\ncases: [{name: a, files: [files/x.yml, files/y.yaml]}]", "tests/files/x.yml", "a: b: c", "tests/files/y.yaml", "]"))
	require.NoError(t, err)
	require.Len(t, p.Suites, 1)
	_, err = bundle.Parse(withSuite("agent: ok\ncases: [{name: a, payload: x}]", "tests/u.yml", "a: b"))
	require.ErrorContains(t, err, "tests/u.yml: nothing reads this file; rename it to end in .yaml")
}

func TestParse_ReportsProblemsOfHTTPMocks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ tools, mock, want string }{
		"valid":       {"[t.x]", "{request: 'GET https://a.example/x?a=b', status: 404}", ""},
		"no path":     {"[t.x]", "{request: GET x}", `tests/s.yaml:3:41: "request" must be a method and a path or URL, such as GET /orders/4711`},
		"method":      {"[t.x]", "{request: TRACE /x}", `"request" must be a method and a path or URL`},
		"two slashes": {"[t.x]", "{request: GET //x}", `"request" has a path that begins with //`},
		"two bodies":  {"[t.x]", "{request: GET /x, json: {}, text: a}", `a mock has either "json" or "text"; remove one`},
		"status":      {"[t.x]", "{request: GET /x, status: 100}", `"cases[0].mocks.http[0].status" must be between 200 and 599`},
		"no request":  {"[t.x]", "{status: 200}", `missing key "cases[0].mocks.http[0].request"`},
		"no tool":     {"[]", "{request: GET /x}", `agent "a" has no tool and no script that sends HTTP requests; remove the mock`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bundle.Parse(toolRepository(c.tools, "tools/t.yaml", toolFile("", ""),
				"tests/s.yaml", "agent: a\ncases:\n- {name: a, payload: x, mocks: {http: ["+c.mock+"]}}\n"))
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Middleware and hooks send requests too, so that tests mock them.
func TestParse_MocksRequestsOfScriptsAround(t *testing.T) {
	t.Parallel()
	suite := "agent: a\ncases:\n- {name: a, payload: x, mocks: {http: [{request: GET /x}]}}\n"
	for file, text := range map[string]string{
		"middleware/a.star": "def before(content, context):\n    http.get(\"https://a.example/x\")\n    return content\n",
		"hooks/a.star":      "def before(tool, params, context):\n    http.get(\"https://a.example/x\")\n",
	} {
		t.Run(file, func(t *testing.T) {
			_, err := bundle.Parse(toolRepository("[]", "tools/t.yaml", toolFile("", ""), file, text, "tests/s.yaml", suite))
			require.NoError(t, err)
			_, err = bundle.Parse(toolRepository("[]", "tools/t.yaml", toolFile("", ""), file, "def before(*, context):\n    pass\n", "tests/s.yaml", suite))
			require.ErrorContains(t, err, "has no tool and no script that sends HTTP requests")
		})
	}
}

// Tests name tools by their references, also if the agent has a wildcard.
func TestParse_TestsNameHTTPTools(t *testing.T) {
	t.Parallel()
	suite := "agent: a\ncases:\n- {name: a, payload: x, mocks: {tools: {t.x: {error: no}}}, expected_tool_calls: [{tool: t.x}], expected_no_tool_calls: [t.y]}\n"
	_, err := bundle.Parse(toolRepository("['t.*']", "tools/t.yaml", toolFile("", ""), "tests/s.yaml", suite))
	require.EqualError(t, err, `tests/s.yaml:3:97: agent "a" has no tool "t.y"; its tools: t.x`)
}
