// SPDX-License-Identifier: Apache-2.0

package scripts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/internal/testenv/scripttest"
	"github.com/agentplatform/agentplatform/internal/tracecontext"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/httptool"
	"github.com/agentplatform/agentplatform/runner/engine/scripts"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/script"
)

func TestMain(m *testing.M) { scripttest.Main(m) }

// canary is the text of a sensitive variable.
const canary = "CANARY-sk-4711"

// shop is a service that keeps a ledger of its requests.
type shop struct {
	mu           sync.Mutex
	ledger       []string // method, path and body
	auth         []string
	traceparents []string
	status       int
	bare         bool // the response shows the credentials without their scheme
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if size, found := strings.CutPrefix(r.URL.Path, "/escaped/"); found {
		count, _ := strconv.Atoi(size)
		_, _ = fmt.Fprintf(w, `{"text":%q}`, strings.Repeat("<", count))
		return
	}
	if size, found := strings.CutPrefix(r.URL.Path, "/large/"); found {
		count, _ := strconv.Atoi(size)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"text":%q}`, strings.Repeat("x", count))
		return
	}
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger = append(s.ledger, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	s.auth = append(s.auth, r.Header.Get("Authorization"))
	s.traceparents = append(s.traceparents, r.Header.Values(tracecontext.Header)...)
	w.Header().Set("Content-Type", "application/json")
	if s.status != 0 {
		w.WriteHeader(s.status)
	}
	auth := r.Header.Get("Authorization")
	if s.bare {
		_, auth, _ = strings.Cut(auth, " ")
	}
	_, _ = fmt.Fprintf(w, `{"n":%d,"id":9007199254740993,"auth":%q}`, len(s.ledger), auth)
}

// writes returns the requests that changed something.
func (s *shop) writes() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.ledger {
		if !strings.HasPrefix(line, "GET ") {
			out = append(out, line)
		}
	}
	return out
}

// bench runs an agent with one script.
type bench struct {
	engine  *engine.Engine
	project *bundle.Project
	shop    *shop
	url     string
	files   []engine.File
	// kept has the saved files of all attempts.
	kept rejectingFiles
}

// rejectingFiles rejects saves with these codes in turn, and accepts a save whose code is empty. It accepts all further ones.
type rejectingFiles struct {
	engine.MemoryFiles
	rejections []httpserver.Code
}

func (f *rejectingFiles) Save(ctx context.Context, entries []dispatchapi.JournalEntry, data []byte) error {
	if len(f.rejections) > 0 {
		code := f.rejections[0]
		if f.rejections = f.rejections[1:]; code != "" {
			return &dispatchapi.RejectedError{Detail: "of the platform", Code: code}
		}
	}
	return f.MemoryFiles.Save(ctx, entries, data)
}

// memory is a journal.
type memory struct{ entries []dispatchapi.JournalEntry }

func (m *memory) Append(_ context.Context, entries []dispatchapi.JournalEntry) error {
	m.entries = append(m.entries, entries...)
	return nil
}

func newBench(t *testing.T, source, calls string) *bench {
	t.Helper()
	pool, err := script.NewPool(script.Options{})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := &bench{shop: &shop{}}
	server := httptest.NewServer(b.shop)
	t.Cleanup(server.Close)
	b.url = server.URL
	rules, err := egress.Flags{Allow: "tool=127.0.0.0/8"}.Rules()
	require.NoError(t, err)
	variables := func() (runnerconfig.Variables, error) {
		return runnerconfig.Variables{Variables: []runnerconfig.Variable{
			{Name: "SHOP", Value: server.URL}, {Name: "TOKEN", Value: canary, Sensitive: true},
		}}, nil
	}
	client := egress.New(rules).Client(egress.Tool, egress.ClientOptions{MaxResponse: dispatchapi.MaxSavedFile})
	t.Cleanup(client.CloseIdleConnections)
	feature := scripts.New(scripts.Config{Pool: pool, Variables: variables, HTTP: httptool.New(httptool.Config{Client: client, Variables: variables})})
	b.engine = engine.New(engine.Config{Models: &model.Registry{}, Features: []engine.Feature{feature}})
	b.project, err = bundle.Parse(bundle.Files{
		"agents/main.yaml": []byte("name: main\nmodel: scripted/main\ntools: [t.run]\nsystem_prompt: '{note}'\n"),
		"models/main.yaml": []byte("steps: [{turn: 1, tool_calls: [" + calls + "]}, {match: '(?s)tool t_run: (?P<r>.*)', text: '${r}'}]"),
		"tools/t.star":     []byte(source),
	})
	require.NoError(t, err)
	return b
}

// addKeys adds keys to the agent.
func (b *bench) addKeys(t *testing.T, keys string) {
	t.Helper()
	files := maps.Clone(b.project.Files)
	files["agents/main.yaml"] = append(slices.Clone(files["agents/main.yaml"]), keys...)
	var err error
	b.project, err = bundle.Parse(files)
	require.NoError(t, err)
}

// setModel replaces the scripted model.
func (b *bench) setModel(t *testing.T, text string) {
	t.Helper()
	files := maps.Clone(b.project.Files)
	files["models/main.yaml"] = []byte(text)
	var err error
	b.project, err = bundle.Parse(files)
	require.NoError(t, err)
}

// execute runs an attempt and returns its outcome and the whole journal.
func (b *bench) execute(t *testing.T, prior []dispatchapi.JournalEntry) (engine.Outcome, []dispatchapi.JournalEntry) {
	t.Helper()
	var journal memory
	b.kept.Journal = &journal
	out := b.engine.Execute(t.Context(), engine.Input{
		SavedFiles: &b.kept, RunID: "r1", AgentName: "main", Project: b.project, Message: "hi", Journal: &journal, Prior: prior, Context: map[string]any{"customer": "acme"},
		Files: b.files,
	})
	return out, slices.Concat(prior, journal.entries, out.Trailing)
}

const threePosts = `
def run(order):
    """Refunds an order.

    Args:
      order (integer): Number.
    """
    answers = []
    for step in ["check", "book", "notify"]:
        got = http.post(env("SHOP") + "/" + step, json = {"order": order, "at": time.now(), "key": uuid.new()},
            headers = {"Authorization": "Bearer " + env("TOKEN")})
        answers.append(got["json"]["id"])
    state = http.get(env("SHOP") + "/state", params = {"q": "a b"})
    return {"ids": answers, "state": state["status"]}
`

// A script that is resumed from any position of its journal continues where it was. Each request happens once.
func TestScript_ResumesBetweenRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t, threePosts, "{name: t_run, arguments: {order: 9007199254740995}}")
	out, journal := b.execute(t, nil)
	require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
	require.JSONEq(t, `{"ids":[9007199254740993,9007199254740993,9007199254740993],"state":200}`, out.Output)
	require.Len(t, b.shop.writes(), 3)
	for _, e := range journal {
		isRequest := e.Kind == dispatchapi.JournalToolResult && strings.Contains(string(e.Data), `"tool":"http.request"`)
		require.Equal(t, isRequest, strings.Contains(string(e.Data), `"server":{"address":"127.0.0.1","port":`), "%s", e.Data)
	}
	require.Equal(t, []string{"Bearer " + canary}, slices.Compact(slices.DeleteFunc(slices.Clone(b.shop.auth), func(a string) bool { return a == "" })))
	whole := b.shop.writes()
	for cut := range journal {
		t.Run(fmt.Sprint("resumed after entry ", cut), func(t *testing.T) {
			b.shop.ledger = nil
			prior := slices.Clone(journal[:cut])
			again, _ := b.execute(t, prior)
			if again.ErrorCode == runerror.ToolInterrupted {
				require.Equal(t, dispatchapi.JournalToolStarted, prior[cut-1].Kind, "only a request that is itself in flight")
				require.Empty(t, b.shop.writes())
				return
			}
			require.Equal(t, out.Output, again.Output, "%s %v", again.Error, again.Cause)
			done := 0
			for _, e := range prior {
				if e.Kind == dispatchapi.JournalToolResult && strings.Contains(string(e.Data), `"http.request"`) && e.Unsafe {
					done++
				}
			}
			if cut > 1 { // the time and the UUIDs are recorded with the begin of the script
				require.Equal(t, strings.Join(whole[done:], "\n"), strings.Join(b.shop.writes(), "\n"))
			} else {
				require.Len(t, b.shop.writes(), 3)
			}
		})
	}
}

// Each request of a script continues the trace of its run with a span of its own, the same in each attempt.
func TestScript_ContinuesTrace(t *testing.T) {
	t.Parallel()
	b := newBench(t, `
def run():
    """Asks twice."""
    http.post(env("SHOP") + "/a")
    http.post(env("SHOP") + "/b")
    http.get(env("SHOP") + "/c", headers = {"Traceparent": "own"})
`, "{name: t_run}")
	var want []string
	for range 2 {
		out, _ := b.execute(t, nil)
		require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
		want = append(want, tracecontext.TraceparentOf("", "r1", "call_1_0/2"), tracecontext.TraceparentOf("", "r1", "call_1_0/3"), "own")
	}
	require.Equal(t, want, b.shop.traceparents)
}

// With on_interrupted: tell, the model learns of a script whose request was interrupted. No request happens after it.
func TestScript_TellsInterruptedRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t, threePosts, "{name: t_run, arguments: {order: 1}}")
	b.addKeys(t, "tool_options: {on_interrupted: tell}\n")
	out, journal := b.execute(t, nil)
	require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
	interrupted := 0
	for cut := range journal {
		t.Run(fmt.Sprint("resumed after entry ", cut), func(t *testing.T) {
			b.shop.ledger = nil
			prior := slices.Clone(journal[:cut])
			again, whole := b.execute(t, prior)
			require.Equal(t, engine.Completed, again.Status, "%s %v", again.Error, again.Cause)
			if cut == 0 || prior[cut-1].Kind != dispatchapi.JournalToolStarted || !strings.Contains(string(prior[cut-1].Data), `"tells":true`) {
				require.Equal(t, out.Output, again.Output)
				return
			}
			interrupted++
			require.False(t, prior[cut-1].Unsafe, "the platform fails a run with an unsafe effect in flight")
			require.Contains(t, again.Output, "outcome_unknown")
			require.Empty(t, b.shop.writes())
			third, _ := b.execute(t, whole)
			require.Equal(t, again.Output, third.Output)
			require.Empty(t, b.shop.writes())
		})
	}
	require.Equal(t, 3, interrupted)
}

// No byte of a sensitive variable is in the journal, the trace, the output or an error.
func TestScript_HidesSensitiveVariables(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"echoed by the service": `return http.post(env("SHOP") + "/", headers = {"Authorization": env("TOKEN")})`,
		"in an error":           `return http.post(env("SHOP") + "/fail", headers = {"Authorization": env("TOKEN")}, fail = True)`,
		"as a result":           `return env("TOKEN")`,
		"in a log line":         `print(env("TOKEN"))`,
		"in a failure":          `fail(env("TOKEN"))`,
		"in a URL":              `return http.get(env("SHOP") + "/?t=" + env("TOKEN"))`,
		"in a body":             `return http.post(env("SHOP") + "/", json = {"t": env("TOKEN")})`,
		"encoded":               `return http.get(env("SHOP") + "/", headers = {"Authorization": "Basic " + base64.encode("u:" + env("TOKEN"))})`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "def run():\n    \"\"\"Does it.\"\"\"\n    "+body+"\n", "{name: t_run}")
			if name == "in an error" {
				b.shop.status = http.StatusTeapot
			}
			out, journal := b.execute(t, nil)
			text, err := json.Marshal(journal)
			require.NoError(t, err)
			traced, err := json.Marshal(traceOf(t, journal))
			require.NoError(t, err)
			require.Contains(t, string(traced), "execute_tool t_run")
			for _, place := range []string{string(text), string(traced), out.Output, out.Error, fmt.Sprint(out.Cause)} {
				require.NotContains(t, place, canary)
				require.NotContains(t, place, "dTpDQU5BUlk", "base64 of the variable")
			}
			for _, line := range b.shop.ledger {
				require.NotContains(t, line, canary)
			}
		})
	}
}

func traceOf(t *testing.T, journal []dispatchapi.JournalEntry) runtrace.Trace {
	t.Helper()
	entries := make([]runtrace.Entry, len(journal))
	for i, e := range journal {
		entries[i] = runtrace.NewEntry(e.Sequence, e.Kind, e.Data, time.Time{})
	}
	trace, err := runtrace.ComputeTrace(runtrace.Run{ID: "r", AgentName: "main"}, entries)
	require.NoError(t, err)
	return trace
}

// The lines of a script beyond the limits of the run's log are counted.
func TestScript_CountsDroppedLines(t *testing.T) {
	t.Parallel()
	b := newBench(t, "def run():\n    \"\"\"Logs.\"\"\"\n    for i in range(520):\n        print(i)\n", "{name: t_run}")
	out, journal := b.execute(t, nil)
	require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
	trace := traceOf(t, journal)
	require.Len(t, trace.Lines, 500)
	require.Equal(t, 20, trace.MoreLines)
	require.Regexp(t, `^tools/t\.star:4:\d+$`, trace.Lines[0].Position)
}

// The outcome of a script is the result that the model sees.
func TestScript_Outcomes(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		body   string
		output string
		code   runerror.Code
	}{
		"object":       {`return {"a": 1}`, `{"a":1}`, ""},
		"other value":  {`return [1, 2]`, `{"result":[1,2]}`, ""},
		"nothing":      {`pass`, `{"result":null}`, ""},
		"fail":         {`fail("no such order")`, `{"error":"no such order"}`, ""},
		"stop":         {`stop("We are closed.")`, `We are closed.`, ""},
		"status 400":   {`return http.get(env("SHOP") + "/")`, `{"error":"http.request: the service responded with the status 418: {\"n\":1,\"id\":9007199254740993,\"auth\":\"\"}"}`, ""},
		"bad URL":      {`return http.get("ftp://x")`, `{"error":"http.request: the URL must be an http or https URL with a host"}`, ""},
		"two bodies":   {`return http.post(env("SHOP"), json = 1, body = "a")`, `{"error":"http.request: at most one of json, form and body can be sent"}`, ""},
		"not variable": {`return env("NONE")`, `{"error":"env: the environment has no variable NONE"}`, ""},
		"forbidden":    {`return http.get("http://169.254.169.254/")`, `{"error":"http.request: the address of the tool is not allowed; the platform operator can open it for the egress purpose tool"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "def run():\n    \"\"\"Does it.\"\"\"\n    "+row.body+"\n", "{name: t_run}")
			b.shop.status = http.StatusTeapot
			out, journal := b.execute(t, nil)
			require.Equal(t, row.code, out.ErrorCode)
			require.Equal(t, row.output, out.Output, "%s %v", out.Error, out.Cause)
			again, _ := b.execute(t, journal)
			require.Equal(t, out.Output, again.Output, "from its journal")
		})
	}
}

// A script changes the run's context. Later calls and attempts see the change, and values of the event stay.
func TestScript_ChangesContext(t *testing.T) {
	t.Parallel()
	b := newBench(t, `
def run(context):
    """Counts."""
    context["note"] = context.get("note", 0) + 1
    return {"note": context["note"], "customer": context["customer"]}
`, "{name: t_run}")
	out, journal := b.execute(t, nil)
	require.JSONEq(t, `{"note":1,"customer":"acme"}`, out.Output, "%s %v", out.Error, out.Cause)
	require.Contains(t, string(journal[2].Data), `"context":{"note":1}`)
	again, _ := b.execute(t, journal[:len(journal)-1])
	require.Equal(t, out.Output, again.Output)
}

// Three scripts beyond their limits fail the run.
func TestScript_LimitsFailRun(t *testing.T) {
	t.Parallel()
	b := newBench(t, "def run():\n    \"\"\"Loops.\"\"\"\n    for i in range(1000000000):\n        pass\n", "{name: t_run}, {name: t_run}, {name: t_run}, {name: t_run}")
	out, _ := b.execute(t, nil)
	require.Equal(t, runerror.ScriptLimit, out.ErrorCode, "%s %v", out.Error, out.Cause)
	require.Contains(t, out.Error, "3 times")
}

// Calls of one answer that run at the same time keep their changes of the context apart. They are joined in the order of
// the calls, so that each attempt has the same context.
func TestScript_ParallelCallsKeepContextApart(t *testing.T) {
	t.Parallel()
	b := newBench(t, `
def run(name, context):
    """Sets values.

    Args:
      name (string): Name.
    """
    seen = [key for key in ["a", "b"] if key in context]
    context[name] = 1
    context["last"] = name
    return {"seen": seen}
`, "{name: t_run, arguments: {name: a}}, {name: t_run, arguments: {name: b}}")
	b.project, _ = bundle.Parse(bundle.Files{
		"agents/main.yaml": []byte("name: main\ntype: sequential\nagents: [one, two]\n"),
		"agents/one.yaml":  []byte("name: one\nmodel: scripted/main\ntools: [t.run]\n"),
		"agents/two.yaml":  []byte("name: two\nmodel: scripted/main\nsystem_prompt: '{a} {b} {last}'\ntools: [t.run]\n"),
		"models/main.yaml": []byte("steps: [{turn: 1, tool_calls: [{name: t_run, arguments: {name: a}}, {name: t_run, arguments: {name: b}}]}, {text: done}]"),
		"tools/t.star":     b.project.Files["tools/t.star"],
	})
	require.NotNil(t, b.project)
	for range 5 {
		out, journal := b.execute(t, nil)
		require.Equal(t, "done", out.Output, "%s %v", out.Error, out.Cause)
		var seen []string
		for _, e := range journal {
			if e.Kind == dispatchapi.JournalToolResult {
				seen = append(seen, string(e.Data))
			}
		}
		require.Len(t, seen, 4)
		for i, text := range seen {
			require.Equal(t, i >= 2, strings.Contains(text, `"seen":["a","b"]`), text)
		}
	}
}

// A response that has a variable alone, without the text that the script joined it with, does not show it either.
func TestScript_HidesVariableOfJoinedHeader(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]string{
		"joined":  `"Bearer " + env("TOKEN")`,
		"encoded": `"Basic " + base64.encode("u:" + env("TOKEN"))`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "def run():\n    \"\"\"Does it.\"\"\"\n    got = http.get(env(\"SHOP\") + \"/\", headers = {\"Authorization\": "+header+
				"})\n    return {\"last\": got[\"json\"][\"auth\"].split(\" \")[-1]}\n", "{name: t_run}")
			b.shop.bare = true
			out, journal := b.execute(t, nil)
			text, err := json.Marshal(journal)
			require.NoError(t, err)
			require.Contains(t, out.Output, "[REDACTED]", out.Cause)
			require.NotContains(t, string(text), canary)
			require.NotContains(t, string(text), "dTpDQU5BUlk", "base64 of the variable")
		})
	}
}

// A tool that stops the run can keep outbound connectors from sending the result.
func TestScript_StopsQuietly(t *testing.T) {
	t.Parallel()
	b := newBench(t, "def run():\n    \"\"\"Does it.\"\"\"\n    stop(\"x\", publish_outbound = False)\n", "{name: t_run}")
	out, journal := b.execute(t, nil)
	require.Equal(t, "x", out.Output, out.Cause)
	require.True(t, out.Unpublished)
	again, _ := b.execute(t, journal)
	require.True(t, again.Unpublished)
}
