// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// withSteps returns a repository whose agent main has steps, written from line 3. The agents a, b and 9-lives exist.
func withSteps(steps string) bundle.Files {
	return newFiles("agents/main.yaml", "name: main\ntype: sequential\n"+steps,
		"agents/a.yaml", "name: a\nmodel: openai/x\n", "agents/b.yaml", "name: b\nmodel: openai/x\n",
		"agents/9-lives.yaml", "name: 9-lives\nmodel: openai/x\n", "agents/in.yaml", "name: in\nmodel: openai/x\n")
}

func TestSteps_ReportProblems(t *testing.T) {
	t.Parallel()
	parallel := func(members int) string {
		return strings.TrimSuffix(strings.Repeat("{tool: current_time}, ", members), ", ")
	}
	for name, c := range map[string]struct{ steps, want string }{
		"neither":           {"description: x\n", `2:1: missing key "agents" or "steps", which type sequential requires; write agents: [support]`},
		"both":              {"steps: [{agent: a}]\nagents: [a]\n", `4:1: "agents" and "steps" exclude each other; keep one`},
		"empty":             {"steps: []\n", `3:1: "steps" must not be empty; write steps: [{agent: support`},
		"no action":         {"steps: [{as: x}]\n", `3:10: missing key "steps[0].agent" or "steps[0].tool" or "steps[0].script" or "steps[0].parallel"; write agent: support`},
		"two actions":       {"steps: [{agent: a, tool: current_time}]\n", `3:20: "steps[0].tool" and "steps[0].agent" exclude each other; keep one`},
		"not a step":        {"steps: [a]\n", `3:9: "steps[0]" must be keys and values, not text`},
		"unknown key":       {"steps: [{agnt: a}]\n", `3:10: unknown key "agnt"; did you mean "agent"?`},
		"unknown agent":     {"steps: [{agent: c}]\n", `3:10: no agent is named "c"; write it or correct the name`},
		"several tools":     {"steps: [{tool: orders.*}]\n", `3:10: "orders.*" names several tools; name one`},
		"tool with input":   {"steps: [{tool: current_time, input: input}]\n", `3:30: "steps[0].input" has no effect here; the input of a tool are its arguments, "with"`},
		"tool with history": {"steps: [{tool: current_time, share_history: true}]\n", `3:30: "steps[0].share_history" has no effect here; a tool has no conversation`},
		"agent with with":   {"steps: [{agent: a, with: {x: input}}]\n", `3:20: "steps[0].with" has no effect here; the arguments of an agent are its "input"`},
		"beside parallel":   {"steps: [{parallel: [{agent: a}], when: true}, {agent: b}]\n", `3:34: "steps[0].when" has no effect beside "parallel"; move it into the steps of "parallel"`},
		"nested parallel":   {"steps: [{parallel: [{parallel: [{agent: a}]}]}, {agent: b}]\n", `3:22: unknown key "parallel"; use one of agent, as, input, script, tool, when, with`},
		"too many parallel": {"steps: [{parallel: [" + parallel(9) + "]}, {agent: b}]\n", `3:10: "steps[0].parallel" has 9 steps, at most 8 are allowed`},
		"parallel last":     {"steps: [{parallel: [{agent: a}]}]\n", `3:10: the last step has several results; write the "output" of the agent`},
		"output of agents":  {"agents: [a]\noutput: a\n", `4:1: "output" is for agents with "steps"; remove it`},
		"reserved name":     {"steps: [{agent: a, as: context}]\n", `3:20: "context" cannot be the name of the result of "steps[0]", because it means something else in expressions; write another name as "as"`},
		"name of CEL":       {"steps: [{agent: a, as: int}]\n", `3:20: "int" cannot be the name of the result`},
		"reserved agent":    {"steps: [{agent: in}]\n", `3:10: "in" cannot be the name of the result of "steps[0]"`},
		"digit first":       {"steps: [{agent: 9-lives}]\n", `3:10: "9_lives" cannot be the name of the result of "steps[0]"`},
		"form of a name":    {"steps: [{agent: a, as: a-b}]\n", `3:24: "steps[0].as" must be at most 63 letters, digits and _, and no digit first`},
		"name twice":        {"steps: [{agent: a}, {agent: b, as: a}]\n", `3:32: "a" is the result of an earlier step already; write another name as "as"`},
		"unknown name":      {"steps: [{agent: a}, {agent: b, when: ab == 1}]\n", `3:38: "steps[1].when": undeclared reference to 'ab'; use one of a, context, headers, input`},
		"in quotes":         {"steps: [{agent: a}, {agent: b, when: 'a == \"x\" && ab == 1'}]\n", `3:51: "steps[1].when": undeclared reference to 'ab'; use one of a, context, headers, input`},
		"escaped":           {"steps: [{agent: a}, {agent: b, when: \"a == \\\"x\\\" && ab == 1\"}]\n", `3:38: "steps[1].when", at line 1, column 13: undeclared reference to 'ab'`},
		"in lines":          {"steps:\n  - agent: a\n    when: |\n      input == 1 &&\n      ab\n", `"steps[0].when", at line 2, column 1: undeclared reference to 'ab'`},
		"own result":        {"steps: [{agent: a, when: a == 1}]\n", `3:26: "steps[0].when": a is not known yet, because it is the result of steps[0]; use one of context, headers, input`},
		"later result":      {"steps: [{agent: a, input: {x: input, y: b.c}}, {agent: b}]\n", `3:41: "steps[0].input.y": b is not known yet, because it is the result of steps[1]; use one of context, headers, input`},
		"parallel result":   {"steps: [{parallel: [{agent: a}, {agent: b, input: a}]}, {tool: current_time}]\n", `3:51: "steps[0].parallel[1].input": a is not known yet, because it is the result of steps[0]`},
		"output":            {"steps: [{agent: a}]\noutput: b\n", `4:9: "output": undeclared reference to 'b'; use one of a, context, headers, input`},
		"syntax":            {"steps: [{tool: current_time, with: {timezone: a b}}]\n", `3:49: "steps[0].with.timezone": Syntax error`},
		"no condition":      {"steps: [{agent: a, when: '\"x\"'}]\n", `3:26: "steps[0].when": it returns a string; write a condition that is true or false`},
		"empty expression":  {"steps: [{tool: current_time, with: {timezone: }}]\n", `"steps[0].with.timezone" is empty; write an expression, such as null`},
		"list of inputs":    {"steps: [{agent: a, input: [x]}]\n", `3:27: "steps[0].input" must be a CEL expression, not a list`},
		"long expression":   {"steps: [{agent: a, when: '" + strings.Repeat("1+", 600) + "1 > 0'}]\n", `3:26: "steps[0].when": the expression has more than 1024 bytes`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bundle.Parse(withSteps(c.steps))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// A project has all expressions compiled.
func TestSteps_AreCompiled(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(withSteps(`
steps:
  - {agent: a, as: ticket, when: input.n > 1}
  - {tool: current_time, with: {timezone: ticket.zone, n: 5, flag: true}}
  - parallel: [{agent: b, input: {x: ticket}}, {agent: a, input: ticket}]
output: '[b, a, headers, context]'
`))
	require.NoError(t, err)
	main := p.Agent("main")
	require.NotNil(t, main.Output.Value())
	require.NotNil(t, main.Steps[0].When.Value())
	require.Equal(t, "ticket", main.Steps[0].As)
	for _, key := range []string{"timezone", "n", "flag"} {
		require.NotNil(t, main.Steps[1].With[key].Value(), key)
	}
	require.Empty(t, main.Steps[1].As, "the result of a tool has no name by default")
	require.NotNil(t, main.Steps[2].Parallel[0].Input.Keys["x"].Value())
	require.NotNil(t, main.Steps[2].Parallel[1].Input.Whole.Value())
	require.Equal(t, "a", main.Steps[2].Parallel[1].As)
	require.Len(t, p.Steps("main"), 3)
}

// Steps count for loops and for the maximum number of steps, also steps with a tool.
func TestSteps_AreCounted(t *testing.T) {
	t.Parallel()
	loop := newFiles("agents/a.yaml", "name: a\ntype: sequential\nsteps: [{parallel: [{agent: b}]}]\noutput: b\n",
		"agents/b.yaml", "name: b\ntype: sequential\nagents: [a]\n")
	_, err := bundle.Parse(loop)
	require.EqualError(t, err, "agents/b.yaml:3:1: agents run each other in a loop: a -> b -> a")
	for steps, want := range map[int]string{bundle.MaxSteps: "", bundle.MaxSteps + 1: "agents/main.yaml:3:1: runs 101 agents with all nested steps; at most 100 are allowed"} {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			_, err := bundle.Parse(withSteps("steps:\n" + strings.Repeat("  - {tool: current_time}\n", steps)))
			if want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, want)
			}
		})
	}
}

// The expressions of a repository are limited, because each is compiled.
func TestSteps_LimitExpressions(t *testing.T) {
	t.Parallel()
	files := withSteps("agents: [a]\n")
	for i := range 30 {
		with := ""
		for j := range 67 {
			with += fmt.Sprintf("k%d: 1, ", j)
		}
		files[fmt.Sprintf("agents/s%d.yaml", i)] = fmt.Appendf(nil, "name: s%d\ntype: sequential\nsteps: [{tool: current_time, with: {%sz: 1}}]\n", i, with)
	}
	_, err := bundle.Parse(files)
	require.ErrorContains(t, err, "all agents have more than 2000 expressions and conditions together; use fewer")
	require.Equal(t, 1, strings.Count(err.Error(), "\n")+1)
}

// A test may expect the calls of steps, and mock their tools.
func TestSuite_KnowsToolsOfSteps(t *testing.T) {
	t.Parallel()
	files := withSteps("steps: [{tool: current_time}]\n")
	files["tests/main.yaml"] = []byte("agent: main\ncases: [{name: x, payload: x, mocks: {tools: {current_time: {result: {a: 1}}}}, expected_tool_calls: [{tool: current_time}]}]\n")
	_, err := bundle.Parse(files)
	require.NoError(t, err)
}

// A build checks the function of a script that is a step, with positions.
func TestSteps_CheckScripts(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ step, source, problem string }{
		"valid":          {"{script: steps.enrich.run, as: facts, input: input.a, when: input.b}", "def run(input, steps, context):\n    return 1\n", ""},
		"no parameters":  {"{script: steps.enrich.run}", "def run():\n    return 1\n", ""},
		"default":        {"{script: steps.enrich.run}", "def run(steps, input = None):\n    return 1\n", ""},
		"in a folder":    {"{script: steps.a.enrich.run}", "", `agents/a.yaml:4:6: "steps.a.enrich.run" needs the script steps/a/enrich.star, which does not exist`},
		"no function":    {"{script: steps.enrich.go}", "def run(input):\n    return 1\n", `agents/a.yaml:4:6: "steps.enrich.go": steps/enrich.star has no function go; it has run`},
		"parameter":      {"{script: steps.enrich.run}", "\ndef run(input, order):\n    return 1\n", `steps/enrich.star:2:5: run cannot have the parameter order; the function of a step has any of input, steps, context`},
		"star":           {"{script: steps.enrich.run}", "def run(**kwargs):\n    return 1\n", `steps/enrich.star:1:5: run cannot have the parameter **; the function of a step has any of input, steps, context`},
		"tool":           {"{script: orders.find}", "", `agents/a.yaml:4:6: "orders.find" is not the function of a step; write steps.file.function for a function of steps/file.star`},
		"wildcard":       {"{script: steps.enrich.*}", "", `agents/a.yaml:4:6: "steps.enrich.*" is not the function of a step; write steps.file.function for a function of steps/file.star`},
		"arguments":      {"{script: steps.enrich.run, with: {a: '1'}}", "def run(input):\n    return 1\n", `agents/a.yaml:4:32: "steps[0].with" has no effect here; a script gets "input" and the results so far`},
		"shared history": {"{script: steps.enrich.run, share_history: true}", "def run(input):\n    return 1\n", `agents/a.yaml:4:32: "steps[0].share_history" has no effect here; a script has no conversation`},
		"broken script":  {"{script: steps.enrich.run}", "def run(input):\n    return x\n", "steps/enrich.star:2:12: undefined: x"},
		"in parallel":    {"parallel: [{script: steps.enrich.go, as: b}, {script: steps.enrich.run, as: c}]", "def run(input):\n    return 1\n", `agents/a.yaml:4:17: "steps.enrich.go": steps/enrich.star has no function go; it has run`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := bundle.Files{"agents/a.yaml": []byte("name: a\ntype: sequential\nsteps:\n  - " + row.step + "\noutput: input\n")}
			if row.source != "" {
				files["steps/enrich.star"] = []byte(row.source)
			}
			_, err := bundle.Parse(files)
			if row.problem == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, row.problem)
		})
	}
}
