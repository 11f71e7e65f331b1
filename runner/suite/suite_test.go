// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/suite"
)

const (
	agentHelper = "name: helper\nmodel: openai/gpt-5\nsystem_prompt: Be kind.\ntools: [current_time]\n"
	agentFlow   = "name: flow\ntype: sequential\nagents: [helper]\n"
	// script calls for the time and returns it.
	script = `steps:
  - turn: 1
    tool_calls: [{name: current_time, arguments: {timezone: UTC}}]
    tokens: {input: 10, output: 2}
  - match: 'tool current_time: (.*)'
    text: 'It is ${1}'
    tokens: {input: 20, output: 3}
`
)

// project is a repository with an agent on a model service, a script and one suite.
func project(t *testing.T, text string, more ...string) *bundle.Project {
	t.Helper()
	files := bundle.Files{
		"agents/helper.yaml": []byte(agentHelper), "agents/flow.yaml": []byte(agentFlow), "models/clock.yaml": []byte(script),
		"tests/t.yaml": []byte(text),
	}
	for i := 0; i < len(more); i += 2 {
		files[more[i]] = []byte(more[i+1])
	}
	p, err := bundle.Parse(files)
	require.NoError(t, err)
	require.Empty(t, suite.Check(p))
	return p
}

// ran runs the only case of a suite.
func ran(t *testing.T, text string, more ...string) suite.Result {
	t.Helper()
	results, err := suite.Run(t.Context(), suite.Options{Project: project(t, text, more...), Models: &model.Registry{}})
	require.NoError(t, err)
	require.Len(t, results, 1)
	return results[0]
}

// helper is a suite with one case whose model is mocked by the script.
func helper(keys string) string {
	return "agent: helper\ncases:\n  - name: a\n    payload: {question: what time}\n    mocks: {models: {openai/gpt-5: scripted/clock}, tools: {current_time: {result: {time: noon}}}}\n    " +
		strings.ReplaceAll(keys, "\n", "\n    ") + "\n"
}

func TestRun_CasePasses(t *testing.T) {
	t.Parallel()
	r := ran(t, helper(`runs: 3
expected_result: output.contains("noon") && status == "completed" && error == "" && context.question == "what time"
expected_tool_calls: [{tool: current_time, arguments: {timezone: UTC}, times: 1}]`))
	require.True(t, r.Passed, r.Explain())
	require.Equal(t, 3, r.Successes)
	require.EqualValues(t, 90, r.Usage.InputTokens)
	require.EqualValues(t, 15, r.Usage.OutputTokens)
	require.EqualValues(t, 105, r.Usage.TotalTokens)
	require.Empty(t, r.Explain())
	require.Empty(t, r.Reason())
}

// A variant is tested by its name with any share, as a run of its base. Cases of the base test the
// base.
func TestRun_TestsVariant(t *testing.T) {
	t.Parallel()
	more := []string{
		"agents/hello.yaml", "name: hello\nmodel: scripted/base\nvariants: {short: 0, long: 100}\n",
		"agents/hello-test-short.yaml", "name: hello-short\nmodel: scripted/short\n",
		"agents/hello-test-long.yaml", "name: hello-long\nmodel: scripted/short\n",
		"models/base.yaml", "steps: [{text: base}]\n", "models/short.yaml", "steps: [{text: short}]\n",
	}
	for agent, want := range map[string]string{"hello": "base", "hello-short": "short"} {
		t.Run(agent, func(t *testing.T) {
			r := ran(t, "agent: "+agent+"\ncases: [{name: a, payload: x, expected_result: 'output == \""+want+"\" && context.agent_name == \"hello\"'}]\n", more...)
			require.True(t, r.Passed, r.Explain())
			require.Equal(t, agent, r.Agent)
		})
	}
}

// A finding has the position, the expected result and the actual result.
func TestRun_ReportsFindings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ keys, at, expected, got string }{
		"the output":           {`expected_result: output == "hello"`, "tests/t.yaml:6:5", `output == "hello"`, `status "completed", output "It is {\"time\":\"noon\"}"`},
		"a call":               {"expected_tool_calls: [{tool: current_time, arguments: {timezone: Europe/Paris}}]", "tests/t.yaml:6:5", `at least one call of tool "current_time" with {"timezone":"Europe/Paris"} (expected_tool_calls[0])`, `calls of current_time {"timezone":"UTC"}`},
		"the number of calls":  {"expected_tool_calls: [{tool: current_time, times: 2}]", "tests/t.yaml:6:5", `2 calls of tool "current_time" (expected_tool_calls[0])`, `calls of current_time {"timezone":"UTC"}`},
		"a call that is not":   {"expected_no_tool_calls: [current_time]", "tests/t.yaml:6:5", `no call of tool "current_time"`, `calls of current_time {"timezone":"UTC"}`},
		"an output of no JSON": {`expected_result: json(output).a == 1`, "tests/t.yaml:6:5", `json(output).a == 1`, "which cannot be evaluated: json: the text is not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			r := ran(t, helper(c.keys))
			require.False(t, r.Passed)
			require.Zero(t, r.Successes)
			require.Equal(t, 1, r.Run)
			require.Len(t, r.Findings, 1)
			require.Equal(t, c.at, r.Findings[0].At.String())
			require.Equal(t, c.expected, r.Findings[0].Expected)
			require.Contains(t, r.Findings[0].Got, c.got)
			require.Contains(t, r.Explain(), "tests/t.yaml:3:5: helper/a, run 1 of 1:\n  "+c.at+"\n    expected: "+c.expected+"\n    got:      ")
			require.Contains(t, r.Reason(), "0 of 1 runs were as expected")
		})
	}
}

// Neighboring numbers that are equal as doubles do not pass.
func TestCase_ComparesNumbersByTheirDigits(t *testing.T) {
	t.Parallel()
	calls := []string{"models/n.yaml", "steps: [{turn: 1, tool_calls: [{name: current_time, arguments: {n: 9007199254740993, m: [1.0]}}]}, {text: done}]\n"}
	for name, c := range map[string]struct {
		keys   string
		passes bool
	}{
		"the context":               {"payload: {id: 9007199254740993}\nexpected_result: context.input.id == 9007199254740993 && context.id == context.input.id", true},
		"a neighbor in the context": {"payload: {id: 9007199254740993}\nexpected_result: context.input.id == 9007199254740992", false},
		"a small integer":           {"payload: {id: 7}\nexpected_result: context.input.id == 7 && context.id > 6.5", true},
		"a call":                    {"payload: {}\nexpected_tool_calls: [{tool: current_time, arguments: {n: 9007199254740993, m: [1]}}]", true},
		"a neighbor in a call":      {"payload: {}\nexpected_tool_calls: [{tool: current_time, arguments: {n: 9007199254740992}}]", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "agent: helper\nmocks: {models: {openai/gpt-5: scripted/n}}\ncases:\n  - name: a\n    " + strings.ReplaceAll(c.keys, "\n", "\n    ") + "\n"
			anything := engine.Tool{Name: "current_time", Run: func(context.Context, *engine.Call) (map[string]any, error) { return nil, nil }}
			results, err := suite.Run(t.Context(), suite.Options{Project: project(t, text, calls...), Models: &model.Registry{}, Tools: []engine.Tool{anything}})
			require.NoError(t, err)
			r := results[0]
			require.Equal(t, c.passes, r.Passed, r.Explain())
		})
	}
}

// A failed run passes only if the expression uses status or error.
func TestRun_FailedRunNeedsStatusOrError(t *testing.T) {
	t.Parallel()
	failing := func(expected string) string {
		return "agent: flow\nmocks: {models: {openai/gpt-5: {steps: [{error: {status: 400, message: broken}}]}}}\ncases:\n  - name: a\n    payload: hi\n" + expected
	}
	for expected, passes := range map[string]bool{
		"": false,
		"    expected_result: '!output.contains(\"x\")'\n":                false,
		"    expected_result: status == \"failed\"\n":                     true,
		"    expected_result: error.contains(\"broken\")\n":               true,
		"    expected_result: status == \"completed\" || error == \"\"\n": false,
	} {
		t.Run(expected, func(t *testing.T) {
			r := ran(t, failing(expected))
			require.Equal(t, passes, r.Passed)
			if !passes {
				require.Contains(t, r.Explain(), "model_request_rejected: the model answered 400: broken")
			}
		})
	}
}

// The model sees the error of a mock. Without a mock the tool itself is called.
func TestMocks_OfTools(t *testing.T) {
	t.Parallel()
	r := ran(t, strings.Replace(helper(`expected_result: output.contains("no clock")`), "result: {time: noon}", "error: no clock", 1))
	require.True(t, r.Passed, r.Explain())
	r = ran(t, strings.Replace(helper(`expected_result: output.contains("weekday")`), ", tools: {current_time: {result: {time: noon}}}", "", 1))
	require.True(t, r.Passed, r.Explain())
}

// Mocks of the case take precedence.
func TestMocks_CaseTakesPrecedence(t *testing.T) {
	t.Parallel()
	p := project(t, `agent: helper
mocks:
  models: {openai/gpt-5: {steps: [{text: of the suite}]}}
cases:
  - {name: b, payload: x, expected_result: output == "of the suite"}
  - {name: a, payload: x, expected_result: output == "of the case", mocks: {models: {openai/gpt-5: {steps: [{text: of the case}]}}}}
`)
	results, err := suite.Run(t.Context(), suite.Options{Project: p, Models: &model.Registry{}})
	require.NoError(t, err)
	for i, name := range []string{"a", "b"} {
		require.Equal(t, name, results[i].Case.Name)
		require.True(t, results[i].Passed, results[i].Explain())
	}
}

// The model is called. If it does not exist, the case reports it.
func TestMocks_CallsUnmockedModel(t *testing.T) {
	t.Parallel()
	r := ran(t, "agent: helper\ncases: [{name: a, payload: x}]\n")
	require.False(t, r.Passed)
	require.Contains(t, r.Reason(), `no model provider has the prefix "openai"; add it to spec.modelProviders of the Project`)
}

// A test run gets files, headers and payload like a run of a connector.
func TestRun_ReceivesFilesHeadersAndPayload(t *testing.T) {
	t.Parallel()
	r := ran(t, `agent: flow
cases:
  - name: a
    payload: {subject: Invoice}
    files: [files/in/bill.pdf, files/notes.md]
    context: {headers: {X-GitHub-Event: push}}
    mocks: {models: {openai/gpt-5: {steps: [{match: '(?s).*', text: '${0}'}]}}}
    expected_result: >-
      output.contains("file \"bill.pdf\": application/pdf, 8 bytes") && output.contains("file \"notes.md\": text/markdown")
      && output.contains("\"subject\":\"Invoice\"")
      && context.files[0].name == "bill.pdf" && context.headers["x-github-event"] == "push" && context.agent_name == "flow"
      && context.subject == "Invoice" && context.run_id != ""
`, "tests/files/in/bill.pdf", "%PDF-1.7", "tests/files/notes.md", "# Notes")
	require.True(t, r.Passed, r.Explain())
}

// The variables belong to the environment of the build.
func TestRun_ReplacesVariables(t *testing.T) {
	t.Parallel()
	opts := suite.Options{Models: &model.Registry{}, Project: project(t,
		"agent: local\ncases: [{name: a, payload: x, mocks: {models: {openai/gpt-5: {steps: [{text: ok}]}}}}]\n",
		"agents/local.yaml", "name: local\nmodel: openai/gpt-5\nsystem_prompt: You work in {env.REGION}.\n")}
	results, err := suite.Run(t.Context(), opts)
	require.NoError(t, err)
	require.False(t, results[0].Passed)
	require.Contains(t, results[0].Reason(), "REGION")
	opts.Variables = func() (runnerconfig.Variables, error) {
		return runnerconfig.Sorted([]runnerconfig.Variable{{Name: "REGION", Value: "eu"}}), nil
	}
	results, err = suite.Run(t.Context(), opts)
	require.NoError(t, err)
	require.True(t, results[0].Passed, results[0].Reason())
}

// The day belongs to the call and not to the run, whose calls can be on several days.
func TestCosts_BelongToDayOfCall(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	results, err := suite.Run(t.Context(), suite.Options{
		Project: project(t, helper("expected_result: 'true'")), Models: &model.Registry{}, Now: func() time.Time {
			now = now.Add(24 * time.Hour)
			return now
		},
	})
	require.NoError(t, err)
	require.True(t, results[0].Passed, results[0].Explain())
	costs := results[0].Costs
	require.Len(t, costs, 2)
	require.Less(t, costs[0].Day, costs[1].Day)
}

// A payload is kept and not delivered. The call can be expected.
func TestRun_KeepsPayloads(t *testing.T) {
	t.Parallel()
	r := ran(t, `agent: helper
cases:
  - name: a
    payload: x
    mocks:
      models:
        openai/gpt-5:
          steps:
            - turn: 1
              tool_calls: [{name: send_to_crm, arguments: {payload: {id: 7, tags: [a, b]}}}]
            - match: 'tool send_to_crm: (.*)'
              text: '${1}'
    expected_result: json(output).status == "queued"
    expected_tool_calls:
      - {tool: send_to_crm, arguments: {payload: {tags: [a, b]}}, times: 1}
`, "connectors/crm.yaml", "type: webhook\nmode: outbound\nconfig: {url: 'https://crm.example.com'}\nlinks: [{agent: helper, outbound: {mode: agent_tool}}]\n")
	require.True(t, r.Passed, r.Explain())
}

// A share of the runs must pass. The ID of a run identifies the first one.
func TestRun_AppliesSuccessThreshold(t *testing.T) {
	t.Parallel()
	first := uuid.NewSHA1(uuid.NameSpaceURL, []byte("test:helper/a/1")).String()
	for threshold, passes := range map[string]bool{"0.5": true, "0.51": false, "1": false} {
		t.Run(threshold, func(t *testing.T) {
			r := ran(t, "agent: helper\ncases: [{name: a, payload: x, runs: 2, success_threshold: "+threshold+
				", mocks: {models: {openai/gpt-5: {steps: [{text: x}]}}}, expected_result: 'context.run_id == \""+first+"\"'}]\n")
			require.Equal(t, passes, r.Passed)
			require.Equal(t, 1, r.Successes)
			require.Equal(t, 2, r.Run, "the first that was not as expected")
		})
	}
}

// Each run has a limit, and all runs together. Runs that did not start are reported.
func TestRun_TimesOut(t *testing.T) {
	t.Parallel()
	hang := "mocks: {models: {openai/gpt-5: {steps: [{delay: 900, text: x}]}}}"
	r := ran(t, "agent: helper\ncases: [{name: a, payload: x, timeout_s: 1, "+hang+"}]\n")
	require.Contains(t, r.Reason(), "the run took longer than 1s, the timeout_s of the case")

	p := project(t, "agent: helper\ncases: [{name: a, payload: x, runs: 9, "+hang+"}]\n")
	results, err := suite.Run(t.Context(), suite.Options{Project: p, Models: &model.Registry{}, Timeout: time.Millisecond})
	require.NoError(t, err)
	require.Contains(t, results[0].Explain(), "the 1ms for all tests together were over")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = suite.Run(ctx, suite.Options{Project: p, Models: &model.Registry{}})
	require.ErrorIs(t, err, context.Canceled)
}

// Each case is reported once with the total progress.
func TestRun_ReportsProgress(t *testing.T) {
	t.Parallel()
	p := project(t, `agent: helper
mocks: {models: {openai/gpt-5: {steps: [{text: x}]}}}
cases: [{name: a, payload: x, runs: 5}, {name: b, payload: x, expected_result: 'false'}, {name: c, payload: x}]
`)
	var told []suite.Progress
	_, err := suite.Run(t.Context(), suite.Options{Project: p, Models: &model.Registry{}, Ended: func(p suite.Progress) { told = append(told, p) }})
	require.NoError(t, err)
	require.Len(t, told, 3)
	for i, one := range told {
		require.Equal(t, i+1, one.Done)
		require.Equal(t, 3, one.Total)
	}
	require.Equal(t, 1, told[2].Failed)
	require.Contains(t, told[2].String(), "test 3 of 3, 1 failed: helper/")
}

// The problem has its position.
func TestCheck_ReportsInvalidCases(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(bundle.Files{
		"agents/helper.yaml": []byte(agentHelper), "tests/files/a.exe": []byte("MZ\x90\x00\x03\x00"),
		"tests/t.yaml": []byte("agent: helper\ncases:\n  - name: a\n    files: [files/a.exe]\n    expected_result: outptu == 1\n"),
	})
	require.NoError(t, err)
	problems := suite.Check(p)
	require.Len(t, problems, 2)
	require.Contains(t, problems.Error(), `tests/t.yaml:5:5: "expected_result" is not a CEL expression over output, error, status and context: at line 1, column 1: undeclared reference to 'outptu'`)
	require.Contains(t, problems.Error(), "tests/t.yaml:4:5: tests/files/a.exe has a type that is not accepted")
	_, err = suite.Run(t.Context(), suite.Options{Project: p, Models: &model.Registry{}})
	require.ErrorContains(t, err, "tests/t.yaml:3:5: reading expected_result")
}

// Only the selected cases run and count.
func TestRun_SelectsCases(t *testing.T) {
	t.Parallel()
	p := project(t, `agent: helper
mocks: {models: {openai/gpt-5: {steps: [{text: x}]}}}
cases: [{name: a, payload: x}, {name: b, payload: x, expected_result: 'false'}]
`)
	results, err := suite.Run(t.Context(), suite.Options{Project: p, Models: &model.Registry{}, Only: func(agent string, c *bundle.Case) bool {
		return agent == "helper" && c.Name == "a"
	}, Ended: func(p suite.Progress) { require.Equal(t, 1, p.Total) }})
	require.NoError(t, err)
	require.Len(t, results, 1)
	require.True(t, results[0].Passed)
}
