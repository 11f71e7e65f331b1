// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/testenv/scripttest"
	"github.com/agentplatform/agentplatform/runner/localrun"
	"github.com/agentplatform/agentplatform/runner/oauth/oauthtest"
)

func TestMain(m *testing.M) {
	// Repositories of tests have models of openai. Lint warns of models without a key.
	if err := os.Setenv("OPENAI_API_KEY", "sk-test"); err != nil {
		panic(err)
	}
	scripttest.Main(m)
}

// canary is a secret of the environment that no output and no file may contain.
const canary = "canary-9f8e7d"

// deskFiles are a repository with an HTTP tool, a script and an MCP server.
var deskFiles = []string{
	"agents/desk.yaml", `name: desk
model: my-own/large
system_prompt: Help {env.TEAM}.
tools: [orders.look_up, refunds.refund, current_time]
mcp_servers:
  - {name: crm, url: '${CRM_URL}/mcp', prefix: crm_, headers: {X-Key: '${CRM_ACCESS}'}}
`,
	"tools/orders.yaml", `base_url: ${SHOP_URL}
headers: {Authorization: 'Bearer ${SHOP_ACCESS}'}
tools:
  look_up:
    description: State of an order.
    parameters: {order: {type: string}}
    request: GET /orders/{order}
    query: {key: '${SHOP_ACCESS}'}
`,
	"tools/refunds.star", `def refund(order, amount):
    """Refunds an order.

    Args:
      order (integer): Number of the order.
      amount (number): Amount.
    """
    log("refunding", order = order)
    done = http.post(env("SHOP_URL") + "/refunds", json = {"order": order}, headers = {"X-Token": env("SHOP_ACCESS")})
    return {"refund": done["json"]["id"], "trace": done["headers"]["x-trace"]}
`,
}

// desk are the services of deskFiles.
type desk struct {
	dir, shop, crm, model string

	mu      sync.Mutex
	answers []string // of the model, in order
	seen    []string // requests with the key of the shop
}

// newDesk starts the services. The model gives the answers in order.
func newDesk(t *testing.T, answers ...string) *desk {
	t.Helper()
	d := &desk{dir: repository(t, deskFiles...), answers: answers}
	start := func(handler http.HandlerFunc) string {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		return server.URL
	}
	d.shop, d.crm, d.model = start(d.serveShop), start(serveCRM), start(d.serveModel)
	t.Setenv("MY_OWN_BASE_URL", d.model+"/v1")
	t.Setenv("MY_OWN_API_KEY", "key-"+canary)
	return d
}

// args are the arguments of a run of the desk.
func (d *desk) args(more ...string) []string {
	return append([]string{
		"run", "desk", "--folder", d.dir, "--input", `{"question": "Refund order 12345678901234567890 for $5, please"}`, "--env", "TEAM=support",
		"--env", "SHOP_URL=" + d.shop + "/base", "--env", "SHOP_ACCESS=shop-" + canary, "--env", "CRM_URL=" + d.crm, "--env", "CRM_ACCESS=crm-" + canary,
	}, more...)
}

func (d *desk) serveShop(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.seen = append(d.seen, r.Method+" "+r.URL.Path)
	d.mu.Unlock()
	w.Header().Set("X-Trace", "t-1")
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id": "r-1", "token": "`+r.Header.Get("X-Token")+`"}`)
		return
	}
	_, _ = io.WriteString(w, `{"id": 12345678901234567890, "state": "paid", "sent": "`+r.Header.Get("Authorization")+`", "query": "`+r.URL.RawQuery+`"}`)
}

// serveCRM is an MCP server without sessions.
func serveCRM(w http.ResponseWriter, r *http.Request) {
	var call struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	_ = json.NewDecoder(r.Body).Decode(&call)
	result := map[string]string{
		"initialize": `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"crm","version":"1"}}`,
		"tools/list": `{"tools":[{"name":"get.customer","description":"Gets a customer","inputSchema":{"type":"object","properties":{"id":{"type":"integer"}}}}]}`,
		"tools/call": `{"content":[],"structuredContent":{"name":"Ada","key":"` + r.Header.Get("X-Key") + `"}}`,
	}[call.Method]
	switch {
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case len(call.ID) == 0:
		w.WriteHeader(http.StatusAccepted)
	case result == "":
		http.Error(w, "unknown method", http.StatusBadRequest)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, result)
	}
}

// serveModel is a service with the API of OpenAI. Without another answer it rejects the key.
func (d *desk) serveModel(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	answer := ""
	if len(d.answers) > 0 {
		answer, d.answers = d.answers[0], d.answers[1:]
	}
	d.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if answer == "" {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error": {"message": "wrong key `+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")+`"}}`)
		return
	}
	_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant",`+answer+`},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}`)
}

// toolCalls returns the part of an answer that calls tools, given as names and arguments.
func toolCalls(pairs ...string) string {
	var calls []string
	for i := 0; i < len(pairs); i += 2 {
		arguments, _ := json.Marshal(pairs[i+1])
		calls = append(calls, fmt.Sprintf(`{"id":"c%d","type":"function","function":{"name":%q,"arguments":%s}}`, i, pairs[i], arguments))
	}
	return `"content":null,"tool_calls":[` + strings.Join(calls, ",") + "]"
}

// deskAnswers call each tool of the desk.
func deskAnswers() []string {
	return []string{
		toolCalls("orders_look_up", `{"order": "12345678901234567890"}`, "current_time", `{}`),
		toolCalls("refunds_refund", `{"order": 12345678901234567890, "amount": 5.50}`, "crm_get_customer", `{"id": 7}`),
		`"content":"Refunded $5 to Ada: r-1"`,
	}
}

// A run shows each step, and writes a case with mocks that passes without any service. Neither has a secret.
func TestRun_RecordsCase(t *testing.T) {
	d := newDesk(t, deskAnswers()...)
	file := filepath.Join(d.dir, "tests", "Recorded_1.yaml")
	out, messages, err := run(t, d.args("--record", file)...)
	require.NoError(t, err, messages)
	require.Equal(t, "Refunded $5 to Ada: r-1\n", out)
	for _, want := range []string{
		"agent desk\n", "model my-own/large, turn 1, ", ", 7 + 3 tokens", `call orders_look_up {"order":"12345678901234567890"}`,
		"http GET " + d.shop + "/base/orders/12345678901234567890?key=[REDACTED], ", "s: 200\n", "http POST " + d.shop + "/base/refunds, ",
		`log info: refunding {"order":12345678901234567890} (tools/refunds.star:8:8)`, `result of refunds_refund {"refund":"r-1","trace":"t-1"}`,
		`result of crm_get_customer {"key":"[`, "completed in ", ": 3 answers of models, 4 tool calls, 30 tokens\n", "recorded " + file + "; the case passes\n",
	} {
		require.Contains(t, messages, want)
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, out+messages+string(text), canary)
	require.NotContains(t, out+messages, "\x1b", "colors are for terminals")
	for _, want := range []string{
		"name: recorded-1\n", "my-own/large:\n", "request: GET /orders/12345678901234567890\n", "request: POST /refunds\n", "X-Trace: t-1\n",
		"id: 12345678901234567890\n", "server: crm\n", "tool: get.customer\n", "tool: refunds.refund\n", "text: 'Refunded $$5 to Ada: r-1'\n", "current_time:\n",
	} {
		require.Contains(t, string(text), want)
	}

	t.Setenv("MY_OWN_BASE_URL", "")
	t.Setenv("MY_OWN_API_KEY", "")
	d.mu.Lock()
	before := len(d.seen)
	d.mu.Unlock()
	out, messages, err = run(t, "test", d.dir, "--env", "TEAM=support")
	require.NoError(t, err, out+messages)
	require.Equal(t, "1 test case passed\n", messages)
	require.Contains(t, out, "ok   desk/recorded-1 ")
	d.mu.Lock()
	defer d.mu.Unlock()
	require.Len(t, d.seen, before, "a test sends no request")
}

// The result for programs is one document with all steps.
func TestRun_PrintsJSON(t *testing.T) {
	d := newDesk(t, deskAnswers()...)
	out, _, err := run(t, d.args("-o", "json")...)
	require.NoError(t, err)
	var result runResult
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	require.Equal(t, "completed", result.Status)
	require.Equal(t, "Refunded $5 to Ada: r-1", result.Output)
	require.Nil(t, result.Error)
	require.EqualValues(t, 30, result.TokenUsage.TotalTokens)
	kinds := map[string]int{}
	for _, s := range result.Steps {
		kinds[string(s.Kind)]++
	}
	require.Equal(t, map[string]int{"agent_started": 1, "model_answer": 3, "tool_started": 4, "tool_result": 4, "http_request": 2, "log": 1}, kinds)
	require.NotContains(t, out, canary)
}

// A failed run has exit code 2, with the code of the error and a remedy.
func TestRun_ReportsFailures(t *testing.T) {
	d := newDesk(t)
	for name, c := range map[string]struct {
		args []string
		want []string
		exit int
	}{
		"unauthorized": {d.args("--record", filepath.Join(d.dir, "tests", "failed.yaml")), []string{"the run failed with model_unauthorized: ", "correct the key of the service"}, exitOutcome},
		"variable":     {d.args("--sensitive", "TEAM"), []string{"variable_unavailable", "--env NAME=VALUE"}, exitOutcome},
		"no agent":     {[]string{"run", "dask", "--folder", d.dir}, []string{`no agent is named "dask"; there is desk`}, exitFailed},
		"no input":     {d.args("--input", "{question"), []string{"--input: the text is neither JSON nor the name of a file"}, exitFailed},
		"no file":      {d.args("--input", "none.json"), []string{"--input: open none.json"}, exitFailed},
		"model":        {d.args("--model", "openai/gpt-5=scripted/x"), []string{`--model: no agent has the model "openai/gpt-5"; there is my-own/large`}, exitFailed},
		"script":       {d.args("--model", "my-own/large=scripted/x"), []string{"--model: the repository has no script models/x.yaml"}, exitFailed},
		"old file":     {d.args("--record", filepath.Join(d.dir, "agents", "desk.yaml")), []string{"desk.yaml exists; name a new file"}, exitFailed},
		"case":         {d.args("--case", "x"), []string{"--case needs --record"}, exitFailed},
		"header":       {d.args("--header", "x"), []string{"--header: must be NAME=VALUE"}, exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			out, messages, err := run(t, c.args...)
			require.Equal(t, c.exit, exitCode(err), "%v", err)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			require.Empty(t, out)
			require.NotContains(t, messages+err.Error(), canary)
		})
	}
	text, err := os.ReadFile(filepath.Join(d.dir, "tests", "failed.yaml"))
	require.NoError(t, err)
	require.NotContains(t, string(text), canary)
	require.Contains(t, string(text), "status: 401\n")
	_, messages, err := run(t, "test", d.dir, "--env", "TEAM=support")
	require.NoError(t, err, messages)
}

// A scripted model replaces the model of an agent. Text that is not JSON is a text for the agent.
func TestRun_ReplacesModels(t *testing.T) {
	t.Parallel()
	dir := repository(t, "agents/a.yaml", "name: a\nmodel: openai/gpt-5\n", "models/b.yaml", "steps: [{match: '^hello you$', text: hi}]\n")
	input := filepath.Join(t.TempDir(), "in.txt")
	require.NoError(t, os.WriteFile(input, []byte("hello you\n"), 0o600))
	for _, other := range []string{"scripted/b", "models/b.yaml"} {
		t.Run(other, func(t *testing.T) {
			out, messages, err := run(t, "run", "a", "--folder", dir, "--input", input, "--model", "openai/gpt-5="+other)
			require.NoError(t, err, messages)
			require.Equal(t, "hi\n", out)
		})
	}
}

// The end of the context, as by Ctrl-C, ends the run and the processes of its scripts.
func TestRun_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	reached := make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(reached)
		<-r.Context().Done()
	}))
	t.Cleanup(service.Close)
	dir := repository(t, "agents/a.yaml", "name: a\nmodel: scripted/a\ntools: [t.wait]\n", "models/a.yaml", "steps: [{turn: 1, tool_calls: [{name: t_wait}]}, {text: done}]\n",
		"tools/t.star", "def wait():\n    \"\"\"Waits.\"\"\"\n    return http.get(env(\"URL\"), timeout = 600)\n")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-reached
		cancel()
	}()
	var stdout, stderr bytes.Buffer
	root := newRootCommand("agentctl")
	root.SetArgs([]string{"run", "a", "--folder", dir, "--env", "URL=" + service.URL})
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	err := root.ExecuteContext(ctx)
	require.Equal(t, exitOutcome, exitCode(err), "%v", err)
	require.ErrorContains(t, err, "the run failed with interrupted: context canceled")
	require.Empty(t, stdout.String())
}

// Each step has the time since the begin of the run.
func TestRun_ShowsTimes(t *testing.T) {
	t.Parallel()
	dir := repository(t, "agents/a.yaml", "name: a\nmodel: scripted/a\n", "models/a.yaml", "steps: [{text: done}]\n")
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cmd := newRunCommandAt(func() time.Time { now = now.Add(time.Second); return now })
	var stdout, stderr bytes.Buffer
	cmd.SetArgs([]string{"a", "--folder", dir})
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	require.Equal(t, "agent a\n     1.00s \n     4.00s model scripted/a, turn 1, 1.00s, 1 + 1 tokens: done\ncompleted in 5.00s: 1 answer of models, 0 tool calls, 2 tokens\n",
		strings.Replace(stderr.String(), "agent a\n", "agent a\n     1.00s \n", 1))
}

// appFiles are a repository whose HTTP tool and MCP server name an OAuth app.
var appFiles = []string{
	"agents/desk.yaml", "name: desk\nmodel: scripted/desk\ntools: [orders.look_up]\nmcp_servers:\n  - {name: crm, url: '${CRM_URL}/mcp', oauth_app: my-crm}\n",
	"models/desk.yaml", "steps:\n- {turn: 1, tool_calls: [{name: orders_look_up}, {name: get_customer, arguments: {id: 7}}]}\n- {match: '(?s)(.*)', text: '${1}'}\n",
	"tools/orders.yaml", "base_url: ${SHOP_URL}\noauth_app: my-crm\ntools: {look_up: {description: L, request: GET /orders}}\n",
}

// A run gets the token of an app that environment variables configure. No output and no recorded case has it.
func TestRun_AuthorizesWithOAuthApp(t *testing.T) {
	authority := oauthtest.NewServer(t)
	protect := func(next http.HandlerFunc) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !authority.Accepts(r) {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next(w, r)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	shop := protect(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "paid, "+r.Header.Get("Authorization"))
	})
	t.Setenv("MY_CRM_TOKEN_URL", authority.URL+"/token")
	t.Setenv("MY_CRM_CLIENT_ID", oauthtest.ClientID)
	t.Setenv("MY_CRM_CLIENT_SECRET", oauthtest.Secret)
	t.Setenv("MY_CRM_SCOPES", "crm.read crm.write")
	t.Setenv("MY_CRM_AUDIENCE", "crm")
	dir := repository(t, appFiles...)
	file := filepath.Join(dir, "tests", "recorded.yaml")
	out, messages, err := run(t, "run", "desk", "--folder", dir, "--env", "SHOP_URL="+shop, "--env", "CRM_URL="+protect(serveCRM), "--record", file)
	require.NoError(t, err, messages)
	require.Contains(t, out, "paid, Bearer [REDACTED]")
	require.NotContains(t, messages, "warning")
	require.Equal(t, 1, authority.Issued(), "the tool and the server share a token")
	require.Equal(t, "crm.read crm.write", authority.Requests()[0].Get("scope"))
	require.Equal(t, "crm", authority.Requests()[0].Get("audience"))
	recorded, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, out+messages+string(recorded), oauthtest.Canary)
}

func TestReadOAuthApps_ReportsProblems(t *testing.T) {
	t.Parallel()
	project, err := bundle.Parse(bundle.Files{
		"agents/a.yaml": []byte("name: a\nmodel: openai/gpt-5\n"),
		"tools/t.yaml":  []byte("base_url: https://a.example\noauth_app: my-crm\ntools: {x: {description: X, request: GET /x}}\n"),
	})
	require.NoError(t, err)
	read := func(values map[string]string) (bundle.Problems, error) {
		_, missing, err := readOAuthApps(project, func(name string) string { return values[name] })
		return missing, err
	}
	missing, err := read(nil)
	require.NoError(t, err)
	require.Len(t, missing, 1)
	require.Equal(t, `tools/t.yaml:2:12: requests with the OAuth app "my-crm" will fail; set MY_CRM_TOKEN_URL, MY_CRM_CLIENT_ID and MY_CRM_CLIENT_SECRET`, missing[0].String())
	for _, row := range []struct{ name, url, secret, want string }{
		{"secret", "https://login.example.com", "", "MY_CRM_CLIENT_SECRET: is missing; an OAuth app needs MY_CRM_TOKEN_URL, MY_CRM_CLIENT_ID and MY_CRM_CLIENT_SECRET"},
		{"address", "login.example.com", canary, "MY_CRM_TOKEN_URL: must be a URL without credentials, such as https://login.example.com/token"},
		{"credentials", "https://me:" + canary + "@login.example.com", canary, "MY_CRM_TOKEN_URL: must be a URL without credentials, such as https://login.example.com/token"},
		{"http", "http://login.example.com", canary, "MY_CRM_TOKEN_URL: the client secret would cross the network unencrypted; use https"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := read(map[string]string{"MY_CRM_TOKEN_URL": row.url, "MY_CRM_CLIENT_ID": "me", "MY_CRM_CLIENT_SECRET": row.secret})
			require.EqualError(t, err, row.want)
		})
	}
}

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
