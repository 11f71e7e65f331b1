// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/connector"
)

// newFiles returns a repository from alternating paths and contents.
func newFiles(pairs ...string) bundle.Files {
	out := bundle.Files{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = []byte(pairs[i+1])
	}
	return out
}

const inboundConnector = "type: webhook\nmode: inbound\nagents: [ok]\n"

const okAgent = "name: ok\nmodel: openai/gpt-5\n"

func TestParse_ReadsAgentKeys(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(newFiles(
		"agents/full.yaml", `version: "1.0"
name: full
description: All keys
type: llm
model: openai/gpt-5
fallback_model: scripted/spare
system_prompt: Hello {name}
temperature: 0.5
reasoning_effort: low
tools:
  - current_time
  - crm.contacts.find: input.amount >= 40
output_schema: answer
max_concurrent_runs: 3
max_iterations: 7
timeout: 1m30s
retry_options: {attempts: 2, initial_delay: 0.5, max_delay: 4}
concurrency: {key: input.id, on_conflict: drop}
session: {key: input.user, ttl: 3600}
guardrails:
  input:
    - {type: regex, mode: block, pattern: "(?i)secret", message: no, fail_run: true}
    - {type: custom, name: polite, mode: warn}
  output:
    - {type: topic, topics: [politics], mode: redact}
approval: {tools: [current_time], timeout: 60, message: Really?, on_rejection: continue}
mcp_servers:
  - {name: files, url: "https://mcp.example.com", tools: [read], headers: {Authorization: "Bearer ${TOKEN}"}}
files_required: true
`,
		"agents/steps.yaml", "name: steps\ntype: sequential\nagents: [full, full]\n",
		"agents/call.yaml", "name: call\ntype: tool\ntool_name: current_time\n",
		"agents/away.yaml", "name: away\ntype: remote\nurl: https://agents.example.com/a\n",
		"models/spare.yaml", "steps: [{text: hi}]\n",
		"tools/crm/contacts.star", "def find():\n    \"\"\"Finds.\"\"\"\n",
		"guardrails/polite.star", "def check(content, context): pass\n",
		"schemas/answer.json", "{}",
	))
	require.NoError(t, err)
	require.Len(t, p.Agents, 4)
	a := p.Agent("full")
	require.Len(t, a.Tools, 2)
	require.Equal(t, bundle.Tool{Reference: "current_time"}, a.Tools[0])
	require.Equal(t, "crm.contacts.find", a.Tools[1].Reference)
	require.Len(t, a.Tools[1].Condition.Value().Uses(), 1)
	require.Equal(t, 90*time.Second, a.Timeout.Std())
	require.Equal(t, bundle.Retry{Attempts: 2, InitialDelay: bundle.Duration(500 * time.Millisecond), MaxDelay: bundle.Duration(4 * time.Second)}, a.Retry)
	require.Equal(t, "drop", a.Concurrency.OnConflict)
	require.True(t, a.Guardrails.Input[0].FailRun)
	require.InDelta(t, 0.5, *a.Temperature, 0)
	require.Equal(t, 7, a.MaxIterations)
	require.Contains(t, string(a.Config()), `"system_prompt":"Hello {name}"`)
	require.Equal(t, []string{"full", "full"}, p.Agent("steps").Agents)
}

// A duration below a nanosecond is zero.
func TestParse_RejectsTinyTimeout(t *testing.T) {
	t.Parallel()
	_, err := bundle.Parse(newFiles("agents/a.yaml", okAgent+"timeout: 0.0000000001\n"))
	require.EqualError(t, err, `agents/a.yaml:3:10: "timeout" must be more than 0; leave it out for 15 minutes`)
}

func TestParse_SetsDefaults(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(newFiles("agents/ok.yaml", okAgent))
	require.NoError(t, err)
	a := p.Agent("ok")
	require.Equal(t, bundle.AgentLLM, a.Type)
	require.Equal(t, 100, a.MaxIterations)
	require.Equal(t, bundle.Retry{Attempts: 3, InitialDelay: bundle.Duration(10 * time.Second), MaxDelay: bundle.Duration(30 * time.Second)}, a.Retry)
}

// problemCases are invalid repositories, each with all its problems.
var problemCases = map[string]struct {
	files bundle.Files
	want  []string // in order
}{
	"all of them at once": {
		newFiles("agents/a.yaml", "name: A\nmodel: gpt\nsystem_promt: x\ntemperature: hot\nmax_iterations: 1.5\n", "agents/b.yaml", "name: [\n"),
		[]string{
			`agents/a.yaml:1:7: "name" must be at most 63 lower-case letters, digits and inner dashes`,
			`agents/a.yaml:2:8: "model" must be provider/model, such as openai/gpt-5`,
			`agents/a.yaml:3:1: unknown key "system_promt"; did you mean "system_prompt"?`,
			`agents/a.yaml:4:14: "temperature" must be a number, not text`,
			`agents/a.yaml:5:17: "max_iterations" must be a whole number, not a fraction`,
			`agents/b.yaml:1:7: sequence end token ']' not found`,
		},
	},
	"delays": {
		newFiles("agents/a.yaml", okAgent+"timeout: 0\nretry_options: {initial_delay: 10, max_delay: 9}\n", "agents/b.yaml", "name: b\nmodel: openai/x\nretry_options: {initial_delay: -1, max_delay: 31d}\ntimeout: 1000h\n"),
		[]string{
			`agents/a.yaml:3:10: "timeout" must be more than 0; leave it out for 15 minutes`,
			`agents/a.yaml:4:47: "retry_options.max_delay" must be at least the initial_delay of 10s`,
			`agents/b.yaml:3:32: "retry_options.initial_delay" must be between 0 and 30 days`,
			`agents/b.yaml:3:47: "retry_options.max_delay" must be seconds or a duration such as "1m30s", not text`,
			`agents/b.yaml:4:10: "timeout" must be between 0 and 30 days`,
		},
	},
	"nested key": {
		newFiles("agents/a.yaml", okAgent+"retry_options:\n  atempts: 3\n"),
		[]string{`agents/a.yaml:4:3: unknown key "atempts"; did you mean "attempts"?`},
	},
	"number for text": {
		newFiles("agents/a.yaml", okAgent+"version: 1.0\n"),
		[]string{`agents/a.yaml:3:10: "version" must be text: put it in quotes, not a fraction`},
	},
	"default at its own file, once": {
		newFiles("agents/_defaults.yaml", "temprature: 1\nname: x\n", "agents/a.yaml", okAgent, "agents/b.yaml", "name: b\nmodel: openai/x\n"),
		[]string{
			`agents/_defaults.yaml:1:1: unknown key "temprature"; did you mean "temperature"?`,
			`agents/_defaults.yaml:2:1: defaults cannot have "name"; each agent has its own`,
		},
	},
	"missing name": {
		newFiles("agents/My_Agent.yaml", "model: openai/x\n"),
		[]string{`agents/My_Agent.yaml:1:1: missing key "name"; write name: my-agent`},
	},
	"keys of another type": {
		newFiles("agents/a.yaml", "name: a\ntype: sequential\nmodel: openai/x\n"),
		[]string{
			`agents/a.yaml:2:1: missing key "agents" or "steps", which type sequential requires; write agents: [support]`,
			`agents/a.yaml:3:1: "model" is for type llm; remove it or change the type`,
		},
	},
	"keys without effect": {
		newFiles("agents/a.yaml", okAgent, "agents/s.yaml", "name: s\ntype: sequential\nagents: [ok]\n\nsystem_prompt: x\ntools:\n  - current_time\ntemperature: 1\nretry_options: {attempts: 1}\n"),
		[]string{
			`agents/s.yaml:5:1: "system_prompt" is for type llm; remove it or change the type`,
			`agents/s.yaml:6:1: "tools" is for type llm; remove it or change the type`,
			`agents/s.yaml:8:1: "temperature" is for type llm; remove it or change the type`,
			`agents/s.yaml:9:1: "retry_options" is for type llm or tool; remove it or change the type`,
		},
	},
	"unknown references": {
		newFiles("agents/a.yaml", "name: a\nmodel: scripted/none\ntools: [x.y.z, Bad!]\noutput_schema: nope\n", "agents/s.yaml", "name: s\ntype: sequential\nagents: [nobody]\n"),
		[]string{
			`agents/a.yaml:2:1: model "scripted/none" needs the script models/none.yaml, which does not exist`,
			`agents/a.yaml:3:1: tool "x.y.z" needs the file tools/x/y.yaml or tools/x/y.star, which does not exist`,
			`agents/a.yaml:3:1: "Bad!" is not a tool; write folder.file.name or the name of a built-in tool`,
			`agents/a.yaml:4:16: "output_schema": the file schemas/nope.json does not exist; add it or correct the name`,
			`agents/s.yaml:3:1: no agent is named "nobody"; write it or correct the name`,
		},
	},
	"circle": {
		newFiles("agents/a.yaml", "name: a\ntype: sequential\nagents: [b]\n", "agents/b.yaml", "name: b\ntype: sequential\nagents: [a]\n"),
		[]string{`agents/b.yaml:3:1: agents run each other in a loop: a -> b -> a`},
	},
	"names twice": {
		newFiles("agents/a.yaml", okAgent, "agents/b.yaml", okAgent),
		[]string{`agents/b.yaml:1:1: agents/a.yaml has the name "ok" already; choose another name`},
	},
	"indented wrongly": {
		newFiles("agents/a.yaml", "name: a\n  model: openai/gpt-5\n", "agents/a-test-b.yaml", "name: a-test-b\nmodel: openai/gpt-5\n",
			"agents/s.yaml", "name: s\ntype: sequential\nagents: [a]\n"),
		[]string{`agents/a.yaml:1:7: mapping value is not allowed in this context; look at the indentation here and in the lines after it, and put a text with a colon in quotes`},
	},
	"tab": {
		newFiles("agents/a.yaml", "name: a\nmodel: openai/x\nretry_options:\n\tattempts: 2\n"),
		[]string{`agents/a.yaml:4:1: a tab cannot indent; indent by spaces`},
	},
	"connectors of one name": {
		newFiles("agents/ok.yaml", okAgent, "connectors/a.yaml", "name: Tickets\n"+inboundConnector, "connectors/b.yaml", inboundConnector+"name: tickets\n", "connectors/tickets.yaml", inboundConnector),
		[]string{
			`connectors/b.yaml:4:1: connectors/a.yaml has the name "tickets" already; choose another "name"`,
			`connectors/tickets.yaml:1:1: connectors/a.yaml has the name "tickets" already; choose another "name"`,
		},
	},
	"key twice": {
		newFiles("agents/a.yaml", "name: a\nname: b\n"),
		[]string{`agents/a.yaml:2:1: mapping key "name" already defined at [1:1]`},
	},
	"yml": {
		newFiles("agents/a.yml", okAgent),
		[]string{`agents/a.yml: nothing reads this file; rename it to end in .yaml`},
	},
	"files that nothing would read": {
		newFiles("agents/ok.yaml", okAgent, "agents/README.md", "x", "agents/.gitkeep", "", "tests/files/a.json", "{}", "schemas/a.json", "{}",
			"agents/a.YAML", okAgent, "agents/team/_defaults.Yml", "", "agents/b", okAgent,
			"connectors/in.json", "{}", "models/script.txt", "", "tests/mail.eml", ""),
		[]string{
			`agents/a.YAML: nothing reads this file; rename it to end in .yaml`,
			`agents/b: nothing reads this file; rename it to end in .yaml, or in .md if it is a note, or move it out of agents/`,
			`agents/team/_defaults.Yml: nothing reads this file; rename it to end in .yaml`,
			`connectors/in.json: nothing reads this file; rename it to end in .yaml`,
			`models/script.txt: nothing reads this file; rename it to end in .yaml, or in .md if it is a note, or move it out of models/`,
			`tests/mail.eml: nothing reads this file; name a suite .yaml and a note .md, and move an attachment to tests/files/`,
		},
	},
	"no agent": {newFiles(), []string{`agents: no agent found; write one as agents/<name>.yaml`}},
	"list instead of keys": {
		newFiles("agents/a.yaml", "- name: a\n"),
		[]string{`agents/a.yaml:1:1: the file must hold keys and values, not a list`},
	},
	"tags": {
		newFiles("agents/a.yaml", "name: !!binary aGk=\n"),
		[]string{`agents/a.yaml:1:7: tags such as "!!binary" are not supported; write the plain value`},
	},
	"second document": {
		newFiles("agents/a.yaml", okAgent+"---\nname: b\n"),
		[]string{`agents/a.yaml:4:5: second document; a file holds one`},
	},
	"patterns": {
		newFiles("agents/a.yaml", okAgent, "models/m.yaml", "steps:\n  - match: 'a{1000}a{1000}'\n    text: x\n"),
		[]string{
			"models/m.yaml:2:12: \"steps[0].match\" is not a valid regular expression (RE2): it compiles to more than 1000 instructions; use fewer repetitions",
		},
	},
	"many patterns": {
		newFiles("agents/a.yaml", okAgent, "models/m.yaml", "steps:\n"+strings.Repeat("  - {match: 'a{1000}', text: x}\n", 60), "models/n.yaml", "steps:\n"+strings.Repeat("  - {match: 'a{1000}', text: x}\n", 41)),
		[]string{
			"models/n.yaml:42:13: \"steps[40].match\": the regular expressions of the repository have more than 100000 instructions together",
		},
	},
	"script": {
		newFiles("agents/a.yaml", okAgent, "models/m.yaml", "steps:\n  - match: '('\n    text: x\n  - turn: 1\n  - error: {status: 200}\n"),
		[]string{
			"models/m.yaml:2:12: \"steps[0].match\" is not a valid regular expression (RE2): error parsing regexp: missing closing ): `(`",
			`models/m.yaml:4:5: a step needs "text", "tool_calls" or "error"`,
			`models/m.yaml:5:21: "steps[2].error.status" must be between 400 and 599`,
		},
	},
}

func TestParse_ReportsProblems(t *testing.T) {
	t.Parallel()
	for name, tt := range problemCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bundle.Parse(tt.files)
			require.Error(t, err)
			var problems bundle.Problems
			require.ErrorAs(t, err, &problems)
			require.Equal(t, strings.Join(tt.want, "\n"), err.Error())
		})
	}
}

func TestParse_ReadsConnectors(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(newFiles(
		"agents/ok.yaml", okAgent,
		"connectors/orders.yaml", "type: webhook\nmode: sync\nname: Orders\nagents: [ok]\nconfig: {timeout_seconds: 20}\n",
		"connectors/nightly.yaml", "type: cron\nenabled: false\nconfig: {schedule: '0 3 * * *', timezone: Europe/Paris, prompt: Go, payload: {a: [1]}}\nlinks: [{agent: ok, files_required: true}]\n",
		"connectors/out.yaml", "type: webhook\nmode: outbound\nconfig: {url: '${TARGET}', headers: {X-Key: '${KEY}'}}\nlinks: [{agent: ok, outbound: {mode: automatic, statuses: [completed]}}]\n",
	))
	require.NoError(t, err)
	require.Len(t, p.Connectors, 3)
	nightly, orders, out := p.Connectors[0], p.Connectors[1], p.Connectors[2]
	require.Equal(t, "nightly", nightly.Key)
	require.False(t, nightly.Enabled)
	require.Equal(t, string(connector.Inbound), nightly.Mode)
	require.JSONEq(t, `{"a": [1]}`, string(nightly.Config.Payload))
	require.Equal(t, []bundle.Link{{Agent: "ok", FilesRequired: true}}, nightly.AllLinks())
	require.True(t, orders.Enabled)
	require.Equal(t, []bundle.Link{{Agent: "ok"}}, orders.AllLinks())
	require.Equal(t, "${TARGET}", out.Config.URL)
}

func TestParse_LimitsExpansion(t *testing.T) {
	t.Parallel()
	laughs := "a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n"
	for c := 'b'; c <= 'i'; c++ {
		laughs += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+", ", 9) + "*" + string(c-1) + "]\n"
	}
	steps := func(name, next string) string {
		return "name: " + name + "\ntype: sequential\nagents: [" + strings.Repeat(next+", ", 19) + next + "]\n"
	}
	for name, tt := range map[string]struct {
		files bundle.Files
		want  string
	}{
		"aliases":  {newFiles("agents/a.yaml", laughs), "values, aliases counted as often as used"},
		"text":     {newFiles("agents/a.yaml", "x: &x "+strings.Repeat("y", 50_000)+"\nz: ["+strings.Repeat("*x, ", 100)+"]\n"), "values, aliases counted as often as used"},
		"itself":   {newFiles("agents/a.yaml", "a: &a [*a]\n"), `unknown alias "a"`},
		"brackets": {newFiles("agents/a.yaml", strings.Repeat("[", 10_000)), "nested deeper"},
		"dashes":   {newFiles("agents/a.yaml", strings.Repeat("- ", 10_000)), "nested deeper"},
		"size":     {newFiles("agents/a.yaml", "# "+strings.Repeat("x", bundle.MaxYAMLSize)), "bytes, at most"},
		"steps":    {newFiles("agents/a.yaml", steps("a", "b"), "agents/b.yaml", steps("b", "c"), "agents/c.yaml", "name: c\nmodel: openai/x\n"), "runs 400 agents with all nested steps"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bundle.Parse(tt.files)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestReadFiles_ReadsLayout(t *testing.T) {
	t.Parallel()
	got, err := bundle.ReadFiles(fstest.MapFS{
		"agents/ok.yaml":      {Data: []byte(okAgent)},
		"tests/files/a.bin":   {Data: []byte{0}},
		"README.md":           {Data: []byte("x")},
		".git/config":         {Data: []byte("x")},
		"agents/._ok.yaml":    {Data: []byte("\x00\x05\x16\x07")},
		"agents/.#ok.yaml":    {Mode: 0o777 | 1<<27, Data: []byte("me@here")},
		"agents/.idea/x.yaml": {Data: []byte("x")},
		"tools/.gitkeep":      {},
		"tests/files/.a.bin":  {Data: []byte{0}},
		"src/agents/bad.yaml": {Data: []byte("x")},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"agents/ok.yaml", "tests/files/a.bin"}, got.Paths())
}

func TestReadFiles_RejectsFiles(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fs   fstest.MapFS
		want string
	}{
		"link":      {fstest.MapFS{"agents/l.yaml": {Mode: 0o777 | 1<<27, Data: []byte("/etc/passwd")}}, "agents/l.yaml: is a link or a special file"},
		"folder":    {fstest.MapFS{"agents": {Data: []byte("x")}}, "agents: must be a folder"},
		"backslash": {fstest.MapFS{`tools/a\b.star`: {}}, "has a control character, a backslash or a colon"},
		"code":      {fstest.MapFS{"tools/a.star": {Data: make([]byte, bundle.MaxCodeSize+1)}}, "tools/a.star: all files outside of tests/files have 5242881 bytes"},
		"all":       {fstest.MapFS{"tests/files/a": {Data: make([]byte, bundle.MaxSize+1)}}, "more than 25 MiB together"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bundle.ReadFiles(tt.fs)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestParse_LimitsAgents(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", bundle.MaxConfigSize/2)
	_, err := bundle.Parse(newFiles("agents/_defaults.yaml", "description: "+long+"\n", "agents/big.yaml", "# a comment\nname: big\nmodel: openai/x\nsystem_prompt: "+long+"\n"))
	require.ErrorContains(t, err, "agents/big.yaml:2:1: the agent has ")
	require.ErrorContains(t, err, "at most 65536 are allowed")

	many := []string{"agents/_defaults.yaml", "description: " + long + "\n"}
	for i := range bundle.MaxConfigs/len(long) + 1 {
		many = append(many, fmt.Sprintf("agents/a%03d.yaml", i), fmt.Sprintf("name: a%d\nmodel: openai/x\n", i))
	}
	_, err = bundle.Parse(newFiles(many...))
	require.ErrorContains(t, err, "the agents up to this one have more than 8 MiB together")
}
