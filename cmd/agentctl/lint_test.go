// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/bundle"
)

// repository writes files, given as paths and contents in turn, into a folder.
func repository(t *testing.T, pairs ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i := 0; i < len(pairs); i += 2 {
		path := filepath.Join(dir, pairs[i])
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(pairs[i+1]), 0o600))
	}
	return dir
}

const helper = "name: helper\nmodel: openai/gpt-5\n"

// Lint finds all problems that a build finds.
func TestLint_FindsProblems(t *testing.T) {
	t.Parallel()
	dir := repository(t,
		"agents/helper.yaml", helper+"guardrails: {}\nmodle: x\nconcurrency: {key: 'input.id +'}\n",
		"connectors/out.yaml", "type: webhook\nmode: sync\nconfig: {authentication: none}\nagents: [nobody]\n",
		"tests/t.yaml", "agent: helper\ncases:\n  - {name: a, payload: x, expected_result: outptu}\n",
	)
	out, messages, err := run(t, "lint", dir)
	require.EqualError(t, err, "6 problems in 3 files")
	require.Equal(t, exitOutcome, exitCode(err))
	require.Empty(t, messages)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 6)
	for i, want := range []string{
		`agents/helper.yaml:3:1: "guardrails" is not supported by this release; remove it`,
		`agents/helper.yaml:4:1: unknown key "modle"; did you mean "model"?`,
		`agents/helper.yaml:5:15: "concurrency.key" is not the CEL expression of a key: `,
		`connectors/out.yaml:3:1: a file cannot define a webhook without authentication`,
		`connectors/out.yaml:4:1: no agent is named "nobody"; write it or correct the name`,
		`tests/t.yaml:3:27: "expected_result" is not a CEL expression`,
	} {
		require.True(t, strings.HasPrefix(lines[i], filepath.Join(dir, want)), "%s\n%s", lines[i], want)
	}
	require.NotContains(t, out, "\x1b", "colors are for terminals")

	for format, read := range map[string]func([]byte, any) error{
		"json": json.Unmarshal, "yaml": func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
	} {
		t.Run(format, func(t *testing.T) {
			out, _, err := run(t, "lint", dir, "-o", format)
			require.Equal(t, exitOutcome, exitCode(err))
			var problems []bundle.Problem
			require.NoError(t, read([]byte(out), &problems))
			require.Len(t, problems, 6)
			require.Equal(t, bundle.Position{File: filepath.Join(dir, "agents/helper.yaml"), Line: 4, Column: 1}, problems[1].Position)
			require.Equal(t, `unknown key "modle"; did you mean "model"?`, problems[1].Message)
		})
	}
}

// References that can never work are errors. Placeholders of other programs are warnings.
func TestLint_ReadsPlaceholdersOfPrompts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ prompt, problem, warning string }{
		"a field":                    {"{name} {env.REGION}", "", ""},
		"a variable in small":        {"{env.product}", "agents/helper.yaml:3:1: {env.product} never has a value", ""},
		"a variable with a field":    {"{env.A.b}", "{env.A.b} never has a value", ""},
		"name with a hyphen":         {"Hi {order-id}", "", "agents/helper.yaml:3:1: {order-id} in the prompt never gets a value: a placeholder has the form {field}"},
		"blanks":                     {"Hi { name }", "", "{ name } in the prompt never gets a value"},
		"index":                      {"Hi {orders[0].id}", "", "{orders[0].id} in the prompt never gets a value"},
		"item of a list":             {"Hi {orders.0}", "", "{orders.0} in the prompt never gets a value"},
		"field of a text":            {"Run {run_id.short}", "", "{run_id.short} in the prompt never gets a value: run_id is a text without fields; write {run_id}"},
		"header in capitals":         {"On {headers.X-GitHub-Event}", "", "write {headers.x-github-event}"},
		"words and JSON":             {"Say {the name of the user} as {\\\"a\\\": 1} or {name}, {headers.x-id} of {run_id} for {payload.x}", "", ""},
		"of Jinja":                   {"Hi {{ input.name }}", "", "agents/helper.yaml:3:1: {{ input.name }} in the prompt does not stand for a value"},
		"of a shell":                 {"Hi ${name}", "", "${name} in the prompt does not stand for a value"},
		"braces that are no mistake": {"Answer {\\\"a\\\": {}}", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, messages, err := run(t, "lint", repository(t, "agents/helper.yaml", helper+"system_prompt: \""+c.prompt+"\"\n"))
			if require.Contains(t, out, c.problem); c.problem == "" {
				require.NoError(t, err)
			}
			if require.Contains(t, messages, c.warning); c.warning == "" {
				require.NotContains(t, messages, "warning")
			}
		})
	}
}

// The URL and the headers of an MCP server have variables as ${NAME} and values of the run as ${context.name}. Braces without $
// are sent as they are.
func TestLint_WarnsOfPlainBraces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ url, header, warning string }{
		"variables":     {"https://crm.example/${TEAM}", "Bearer ${TOKEN} of ${context.tenant}, $${literal}", ""},
		"JSON":          {"https://crm.example", `{"a": {"b": 1}}`, ""},
		"header":        {"https://crm.example", "Bearer {TOKEN}", "agents/helper.yaml:3:"},
		"URL":           {"https://crm.example/{TEAM}", "x", "{TEAM} never gets a value here; write ${NAME} for a variable of the environment"},
		"other program": {"https://crm.example", "Bearer {{ token }}", "{{ token }} never gets a value here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, messages, err := run(t, "lint", repository(t, "agents/helper.yaml",
				helper+"mcp_servers: [{name: crm, url: '"+c.url+"', headers: {X-A: '"+c.header+"'}}]\n"))
			require.NoError(t, err)
			if require.Contains(t, messages, c.warning); c.warning == "" {
				require.NotContains(t, messages, "warning")
			}
		})
	}
}

// Lint reports a valid repository, and fails for a folder that does not exist.
func TestLint_ReportsSuccessAndMissingFolders(t *testing.T) {
	t.Parallel()
	dir := repository(t, "agents/helper.yaml", helper)
	out, messages, err := run(t, "lint", dir)
	require.NoError(t, err)
	require.Empty(t, out)
	require.Equal(t, "ok: no problems in 1 agent, 0 connectors and 0 test cases\n", messages)
	out, _, err = run(t, "lint", dir, "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, "[]", out)

	_, _, err = run(t, "lint", filepath.Join(dir, "nowhere"))
	require.ErrorContains(t, err, "opening the repository")
	require.Equal(t, exitFailed, exitCode(err))
	_, _, err = run(t, "lint", t.TempDir())
	require.Equal(t, exitOutcome, exitCode(err), "an empty folder has no agent")
}

// Without an environment lint names the variables that it did not check.
func TestLint_ChecksVariablesOfAnEnvironment(t *testing.T) {
	t.Parallel()
	dir := repository(t,
		"agents/helper.yaml", helper+"system_prompt: You work in {env.REGION} for {env.TOKEN} as {input}.\ntools: ['orders.*']\n"+
			"apis: {shop: {base_url: '${SHOP_URL}', auth: {bearer: '${SHOP_TOKEN}'}}}\n"+
			"mcp_servers: [{name: crm, url: '${CRM_URL}', headers: {X: '${context.x} ${TOKEN}'}, oauth: {client_id: '${CRM_ID}', client_secret: x}}]\n",
		"apis/shop.yaml", "openapi: 3.1.0\ninfo: {title: a, version: '1'}\npaths: {/a: {get: {operationId: a, responses: {}}}}\n",
		"connectors/c.yaml", "type: cron\nconfig: {schedule: '${WHEN}', payload: {of: ['${REGION}', '$${NONE}']}}\n",
		// Headers and URLs can have sensitive variables.
		"connectors/out.yaml", "type: webhook\nmode: outbound\nconfig: {url: 'https://crm.example.com/${TOKEN}', headers: {X-Key: '${TOKEN}'}}\nagents: [helper]\n",
		"tools/orders.yaml", "base_url: ${ORDERS_URL}\ntools: {find: {description: d, request: GET /a, headers: {X: 'a ${TOKEN}'}}}\n",
		"tools/pay.star", "def pay():\n    \"\"\"Pays.\"\"\"\n    return env(\"PAY_URL\") + env(name = \"TOKEN\") + env(\"X\" + \"Y\") + env(\"low\")\n",
	)
	_, messages, err := run(t, "lint", dir)
	require.NoError(t, err)
	require.Contains(t, messages, "not checked: whether an environment has the variables CRM_ID, CRM_URL, ORDERS_URL, PAY_URL, REGION, SHOP_TOKEN, SHOP_URL, TOKEN, WHEN, low; --environment checks it\n")
	require.Contains(t, messages, dir+"/tools/pay.star:3:72: env(\"low\") never has a value")

	s := newShop(t, `{"name":"REGION","value":"eu","sensitive":false},{"name":"TOKEN","value":"********","sensitive":true}`)
	out, messages, err := s.agentctl("lint", dir, "--environment", "production")
	require.EqualError(t, err, "9 problems in 4 files")
	require.NotContains(t, messages, "not checked")
	missing := func(at, name string) string {
		return dir + "/" + at + ": environment production has no variable " + name + "; add it, or correct the name\n"
	}
	require.Equal(t, dir+"/agents/helper.yaml:3:16: the variable TOKEN of environment production is sensitive, and cannot be used here\n"+
		missing("agents/helper.yaml:5:25", "SHOP_URL")+missing("agents/helper.yaml:5:55", "SHOP_TOKEN")+
		missing("agents/helper.yaml:6:32", "CRM_URL")+missing("agents/helper.yaml:6:104", "CRM_ID")+
		missing("connectors/c.yaml:2:20", "WHEN")+missing("tools/orders.yaml:1:11", "ORDERS_URL")+
		missing("tools/pay.star:3:16", "PAY_URL")+missing("tools/pay.star:3:72", "low"), out)
	_, _, err = run(t, "lint", dir, "--environment", "production")
	require.ErrorContains(t, err, "--server")
	require.Equal(t, exitFailed, exitCode(err))
}

// Lint warns once of each provider without a key on this machine.
func TestWarnModels_WarnsOfMissingKeys(t *testing.T) {
	t.Parallel()
	dir := repository(t,
		"agents/a.yaml", "name: a\nmodel: openai/gpt-5\nfallback_model: my-own/large\n", "agents/b.yaml", "name: b\nmodel: openai/gpt-5-mini\n",
		"agents/c.yaml", "name: c\nmodel: scripted/c\n", "models/c.yaml", "steps: [{text: hi}]\n")
	project, problems, err := checkRepository(dir)
	require.NoError(t, err)
	require.Empty(t, problems)
	const (
		first  = "agents/a.yaml:2:1: this machine has no key for openai/gpt-5, so run, and tests without a mock, cannot ask the model; set OPENAI_API_KEY"
		second = "agents/a.yaml:3:1: this machine has no key for my-own/large, so run, and tests without a mock, cannot ask the model; set MY_OWN_BASE_URL and MY_OWN_API_KEY"
	)
	for name, c := range map[string]struct {
		known []string
		want  string
	}{
		"none":    {nil, first + "\n" + second},
		"key":     {[]string{"OPENAI_API_KEY"}, second},
		"address": {[]string{"MY_OWN_BASE_URL"}, first},
		"both":    {[]string{"OPENAI_BASE_URL", "MY_OWN_API_KEY"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			warnings := warnModels(project, func(name string) string {
				for _, known := range c.known {
					if known == name {
						return "x"
					}
				}
				return ""
			})
			if c.want == "" {
				require.Empty(t, warnings)
				return
			}
			require.EqualError(t, warnings, c.want)
		})
	}
	require.Empty(t, warnModels(nil, func(string) string { return "" }))
}

// FindMisnamed warns about names that look like a name of the layout.
func TestFindMisnamed_WarnsAboutSimilarNames(t *testing.T) {
	t.Parallel()
	dir := folderWith(t, map[string]string{
		"agents/hello.yaml": helloAgent, "connector/orders.yaml": "x", "tool/other.star": "x", "docs/agent/a.yaml": "x", "README.md": "x",
	})
	want := "warning: " + filepath.Join(dir, "connector") + ": is not read: the name of the folder is connectors; rename it if you meant that folder\n" +
		"warning: " + filepath.Join(dir, "tool") + ": is not read: the name of the folder is tools; rename it if you meant that folder\n"
	for _, command := range []string{"lint", "test"} {
		_, messages, err := run(t, command, dir)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(messages, want), "%s: %s", command, messages)
	}
	out, messages, err := run(t, "lint", dir, "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, "[]", out, "nothing is wrong")
	require.Contains(t, messages, want)

	p := newProject(t)
	p.kind = "test"
	p.addDeployment(`"status":"deployed","is_live":true`)
	p.streams = []func(http.ResponseWriter, string){endedAtOnce}
	_, messages, err = p.agentctl("deploy", "--upload", dir)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(messages, want), messages)

	says, changed, stop := p.runDev(dir, unchanged)
	says.waitFor(t, "live in staging")
	writeTestFile(t, filepath.Join(dir, "agents/hello.yaml"), helloAgent+"description: Better\n")
	changed <- struct{}{}
	for strings.Count(says.content(), "live in staging") < 2 {
		<-says.more
	}
	require.NoError(t, stop())
	require.Equal(t, 1, strings.Count(says.content(), want), "the warning appears once")

	_, messages, err = run(t, "lint", folderWith(t, map[string]string{"agent/hello.yaml": helloAgent}))
	require.Equal(t, exitOutcome, exitCode(err), "there is no agent")
	require.Contains(t, messages, "agent: is not read: the name of the folder is agents")
}
