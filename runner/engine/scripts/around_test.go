// SPDX-License-Identifier: Apache-2.0

package scripts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// outbox keeps what a run sends, once for each position.
type outbox struct {
	mu   sync.Mutex
	sent map[int64]dispatchapi.SendRequest
	// fail is the error of each request.
	fail error
}

func (o *outbox) Send(_ context.Context, req dispatchapi.SendRequest) (dispatchapi.SendResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sent == nil {
		o.sent = map[int64]dispatchapi.SendRequest{}
	}
	o.sent[req.Position] = req
	return dispatchapi.SendResponse{Status: dispatchapi.SendQueued}, o.fail
}

// payloads returns what was sent, in the order of the positions.
func (o *outbox) payloads() (all []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, position := range slices.Sorted(func(yield func(int64) bool) {
		for p := range o.sent {
			if !yield(p) {
				return
			}
		}
	}) {
		all = append(all, o.sent[position].Name+" "+string(o.sent[position].Payload))
	}
	return all
}

// aroundBench runs agents with middleware and hooks.
type aroundBench struct {
	*bench
	outbox *outbox
	files  []engine.File
	values func() map[string]any
	last   map[string]any
}

// newAround returns a bench with files of a repository, as pairs of path and text.
func newAround(t *testing.T, files ...string) *aroundBench {
	t.Helper()
	b := &aroundBench{bench: newBench(t, "def run():\n    \"\"\"R.\"\"\"\n    return 1\n", "{name: t_run}"), outbox: &outbox{}}
	repository := bundle.Files{}
	for i := 0; i < len(files); i += 2 {
		repository[files[i]] = []byte(files[i+1])
	}
	p, err := bundle.Parse(repository)
	require.NoError(t, err)
	require.Empty(t, b.engine.Check(p))
	b.project = p
	b.values = func() map[string]any {
		return map[string]any{"input": map[string]any{"customer": "acme"}, "customer": "acme"}
	}
	return b
}

// run executes an attempt and returns its outcome and the whole journal.
func (b *aroundBench) run(t *testing.T, prior []dispatchapi.JournalEntry) (engine.Outcome, []dispatchapi.JournalEntry) {
	t.Helper()
	var journal memory
	b.last = b.values()
	out := b.engine.Execute(t.Context(), engine.Input{
		RunID: "r1", AgentName: "main", Project: b.project, Message: "hi", Journal: &journal, Prior: prior, Context: b.last,
		Files: b.files, Outbound: b.outbox, Attempt: 1 + min(len(prior), 1),
	})
	return out, slices.Concat(prior, journal.entries, out.Trailing)
}

// logOf returns the log lines of the steps of a journal.
func logOf(t *testing.T, journal []dispatchapi.JournalEntry) (lines []engine.LogLine) {
	t.Helper()
	for _, e := range journal {
		if e.Kind == dispatchapi.JournalStep {
			var step struct{ Log []engine.LogLine }
			require.NoError(t, exactjson.Decode(e.Data, &step))
			lines = append(lines, step.Log...)
		}
	}
	return lines
}

const echo = "steps: [{match: '(?s)(?P<all>.*)', text: 'answer to ${all}', tokens: {input: 3, output: 2}}]"

// Middleware sees the payload and changes what the model sees and what the caller gets. What it sets in the context reaches
// prompts, later scripts and the outcome.
func TestMiddleware_ChangesContent(t *testing.T) {
	t.Parallel()
	b := newAround(t, "agents/main.yaml", "name: main\nmodel: scripted/main\nsystem_prompt: 'for {tier}'\n", "models/main.yaml", echo,
		"middleware/lib/words.star", "def loud(text):\n    return text.upper()\n",
		"middleware/main.star", `
load("//middleware/lib/words.star", "loud")
def before(content, context):
    log("before", customer = context["payload"]["customer"])
    context["tier"] = "gold"
    content["parts"].append({"text": " and " + loud(context["customer"])})
    return content
def after(response, context):
    usage = context["token_usage"]
    context["spent"] = usage["input_tokens"] + usage["output_tokens"]
    if context["duration_ms"] < 0 or context["attempt"] != 1:
        fail("wrong facts")
    return {"role": "model", "parts": [{"text": "[" + response["parts"][0]["text"] + "]"}]}
`)
	out, journal := b.run(t, nil)
	require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
	require.Equal(t, "[answer to hi\n and ACME]", out.Output)
	require.JSONEq(t, `{"tier":"gold","spent":5}`, string(out.Context))
	require.Equal(t, []engine.LogLine{{
		Level: "info", Text: "before", Fields: json.RawMessage(`{"customer":"acme"}`), Position: "middleware/main.star:4:8",
	}}, logOf(t, journal))
}

// effects is middleware with every kind of effect.
const effects = `
def before(content, context):
    first = http.post(env("SHOP") + "/before", json = {"key": uuid.new(), "at": time.now()})["json"]["n"]
    send_connector("crm", {"payload": {"n": first}})
    context["first"] = first
    return content
def after(response, context):
    state = http.get(env("SHOP") + "/state")["json"]["id"]
    sent = send_connector("crm", {"payload": [state, context["token_usage"]["total_tokens"], context["attempt"]]})
    http.post(env("SHOP") + "/after", json = {"status": sent["status"]})
    return {"parts": [{"text": response["parts"][0]["text"] + " " + str(context["first"])}]}
`

// effectHooks are hooks with effects.
const effectHooks = `
def before(tool, params, context):
    http.post(env("SHOP") + "/hook", json = {"tool": tool, "zone": params.get("timezone")})
    return {"timezone": "Europe/Paris"}
def after(tool, params, result, context):
    http.post(env("SHOP") + "/hooked", json = params)
    context["zone"] = result["timezone"]
    return {"zone": result["timezone"]}
`

func newEffects(t *testing.T) *aroundBench {
	t.Helper()
	return newAround(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [current_time]\n",
		"models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: current_time, arguments: {timezone: UTC}}], tokens: {input: 1}}, {match: '(?s)tool current_time: (?P<r>.*)', text: '${r}'}]",
		"middleware/main.star", effects, "hooks/main.star", effectHooks)
}

// A run with middleware and hooks that is resumed from any position of its journal gives the same output, and has each
// effect once.
func TestAround_ResumesAtEachEntry(t *testing.T) {
	t.Parallel()
	b := newEffects(t)
	out, journal := b.run(t, nil)
	require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
	require.Equal(t, `{"zone":"Europe/Paris"} 1`, out.Output)
	writes, sent := b.shop.writes(), b.outbox.payloads()
	require.Len(t, writes, 4)
	require.Equal(t, []string{`crm {"n":1}`, `crm [9007199254740993,6,1]`}, sent)
	for cut := range journal {
		t.Run(fmt.Sprint("after entry ", cut), func(t *testing.T) {
			if last := journal[max(cut-1, 0)]; cut > 0 && last.Kind == dispatchapi.JournalToolStarted && last.Unsafe {
				again, _ := b.run(t, slices.Clone(journal[:cut]))
				require.Equal(t, runerror.ToolInterrupted, again.ErrorCode)
				return
			}
			before := len(b.shop.writes())
			known := 0
			for _, e := range journal[:cut] {
				if e.Kind == dispatchapi.JournalToolStarted && e.Unsafe {
					known++
				}
			}
			again, _ := b.run(t, slices.Clone(journal[:cut]))
			require.Equal(t, engine.Completed, again.Status, "%s %v", again.Error, again.Cause)
			require.Len(t, b.shop.writes(), before+len(writes)-known, "only the missing writes happen")
			if cut > 3 { // the first write is known
				require.Equal(t, out.Output, again.Output)
				require.Equal(t, string(out.Context), string(again.Context))
			}
		})
	}
}

// Errors of middleware and hooks fail the run with their code, and the log has the position and the call stack. An attempt
// that finds the failed step fails in the same way.
func TestAround_Failures(t *testing.T) {
	t.Parallel()
	agent := []string{"agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [current_time]\n",
		"models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: current_time}]}, {text: done}]"}
	for name, row := range map[string]struct {
		file, source string
		code         runerror.Code
		message      string
	}{
		"no result": {"middleware/main.star", "def before(content, context):\n    pass\n", runerror.MiddlewareFailed,
			"before of middleware/main.star failed: it must return a map with the keys role and parts"},
		"error": {"middleware/main.star", "def after(response, context):\n    return response[\"x\"]\n", runerror.MiddlewareFailed,
			`after of middleware/main.star failed: key "x" not in dict`},
		"unknown file": {"middleware/main.star", "def before(content, context):\n    return {\"parts\": [{\"file\": \"f2\"}]}\n", runerror.MiddlewareFailed,
			"before of middleware/main.star failed: parts[0]: the run has no file with this ID"},
		"same file twice": {"middleware/main.star", "def before(content, context):\n    return {\"parts\": [{\"file\": \"f1\"}, {\"file\": \"f1\"}]}\n", runerror.MiddlewareFailed,
			"before of middleware/main.star failed: parts[1]: the message has this file already; name each file once"},
		"other role": {"middleware/main.star", "def before(content, context):\n    content[\"role\"] = \"model\"\n    return content\n", runerror.MiddlewareFailed,
			`before of middleware/main.star failed: the role must stay "user"`},
		"read-only": {"middleware/main.star", "def before(content, context):\n    context[\"payload\"] = 1\n    return content\n", runerror.MiddlewareFailed,
			`before of middleware/main.star failed: context["payload"] is read-only`},
		"limit": {"middleware/main.star", "def before(content, context):\n    stop(\"x\" * 1048577)\n", runerror.MiddlewareFailed,
			"before of middleware/main.star failed: the message of stop has more than 1048576 bytes"},
		"invalid arguments": {"hooks/main.star", "def before(tool, params, context):\n    return {\"timezone\": 1}\n", runerror.HookFailed,
			"before of hooks/main.star failed: the arguments do not fit: timezone"},
		"wrong arguments": {"hooks/main.star", "def before(tool, params, context):\n    return [1]\n", runerror.HookFailed,
			"before of hooks/main.star failed: it must return a map with the parameters of the tool, or None"},
		"abort after the call": {"hooks/main.star", "def refuse():\n    abort(1)\n\ndef after(tool, params, result, context):\n    refuse()\n", runerror.HookFailed,
			"after of hooks/main.star failed: abort is for the hook before, because the tool has run; return the result that the model sees"},
		"hook": {"hooks/main.star", "def after(tool, params, result, context):\n    fail(\"no\")\n", runerror.HookFailed, "after of hooks/main.star failed: no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newAround(t, append(slices.Clone(agent), row.file, row.source)...)
			b.files = []engine.File{{Name: "a.txt", MIMEType: "text/plain", Data: []byte("a")}}
			out, journal := b.run(t, nil)
			require.Equal(t, row.code, out.ErrorCode, "%s %v", out.Output, out.Cause)
			require.True(t, strings.HasPrefix(out.Error, row.message), out.Error)
			lines := logOf(t, journal)
			require.NotEmpty(t, lines)
			require.Contains(t, lines[len(lines)-1].Position, row.file)
			again, _ := b.run(t, journal)
			require.Equal(t, out.Error, again.Error)
		})
	}
}

// stop ends the run as completed. Its result is published unless the script says otherwise. abort takes the place of a tool.
func TestAround_StopsAndAborts(t *testing.T) {
	t.Parallel()
	agent := []string{"agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [current_time]\n",
		"models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: current_time}]}, {match: '(?s)tool current_time: (?P<r>.*)', text: '${r}'}]"}
	for name, row := range map[string]struct {
		file, source, output string
		unpublished          bool
	}{
		"before":  {"middleware/main.star", "def before(content, context):\n    stop(\"closed\")\n", "closed", false},
		"quietly": {"middleware/main.star", "def before(content, context):\n    stop(\"closed\", publish_outbound = False)\n", "closed", true},
		"after":   {"middleware/main.star", "def after(response, context):\n    stop(\"late\", False)\n", "late", true},
		"hook":    {"hooks/main.star", "def after(tool, params, result, context):\n    stop(tool, False)\n", "current_time", true},
		"abort":   {"hooks/main.star", "def before(tool, params, context):\n    abort({\"no\": tool})\n", `{"no":"current_time"}`, false},
		"abort with null": {"hooks/main.star", "def before(tool, params, context):\n    abort(None)\ndef after(tool, params, result, context):\n    fail(\"called\")\n",
			`{"result":null}`, false},
		"replaced result": {"hooks/main.star", "def after(tool, params, result, context):\n    return \"noon\"\n", `{"result":"noon"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newAround(t, append(slices.Clone(agent), row.file, row.source)...)
			out, journal := b.run(t, nil)
			require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
			require.Equal(t, row.output, out.Output)
			require.Equal(t, row.unpublished, out.Unpublished)
			for cut := range journal {
				again, _ := b.run(t, slices.Clone(journal[:cut]))
				require.Equal(t, out.Output, again.Output, "%s %v", again.Error, again.Cause)
				require.Equal(t, row.unpublished, again.Unpublished)
			}
		})
	}
}

// Hooks that return None keep the arguments and the result.
func TestHooks_KeepWhatTheyDoNotChange(t *testing.T) {
	t.Parallel()
	b := newAround(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [t.add]\n",
		"models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: t_add, arguments: {n: 9007199254740993}}]}, {match: '(?s)tool t_add: (?P<r>.*)', text: '${r}'}]",
		"tools/t.star", "def add(n):\n    \"\"\"A.\n\n    Args:\n      n (integer): N.\n    \"\"\"\n    return n + 1\n",
		"hooks/main.star", "def before(tool, params, context):\n    context[tool] = params[\"n\"]\ndef after(tool, params, result, context):\n    log(str(result[\"result\"]))\n")
	out, journal := b.run(t, nil)
	require.Equal(t, `{"result":9007199254740994}`, out.Output, "%s %v", out.Error, out.Cause)
	require.JSONEq(t, `{"t.add":9007199254740993}`, string(out.Context))
	require.Equal(t, "9007199254740994", logOf(t, journal)[0].Text)
}

// Of a sequence, the files of each agent run in its own place.
func TestMiddleware_OfSteps(t *testing.T) {
	t.Parallel()
	mark := func(name string) string {
		return "def before(content, context):\n    context[\"trail\"] = context.get(\"trail\", \"\") + \"" + name + "( \"\n    return content\n" +
			"def after(response, context):\n    context[\"trail\"] += \")" + name + " \"\n    response[\"parts\"][0][\"text\"] += \"" + name + "\"\n    return response\n"
	}
	for name, main := range map[string]string{
		"agents": "agents: [one, two]\n",
		"steps":  "steps: [{agent: one, as: a}, {agent: two, input: {a: a}}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newAround(t, "agents/main.yaml", "name: main\ntype: sequential\n"+main,
				"agents/one.yaml", "name: one\nmodel: scripted/one\n", "agents/two.yaml", "name: two\nmodel: scripted/two\n",
				"models/one.yaml", "steps: [{text: x}]", "models/two.yaml", "steps: [{match: '(?s).*(?P<last>x1)\\b.*', text: '${last}'}, {text: none}]",
				"middleware/main.star", mark("0"), "middleware/one.star", mark("1"), "middleware/two.star", mark("2"))
			out, journal := b.run(t, nil)
			require.Equal(t, "x120", out.Output, "%s %v", out.Error, out.Cause)
			require.JSONEq(t, `{"trail":"0( 1( )1 2( )2 )0 "}`, string(out.Context))
			for cut := range journal {
				again, _ := b.run(t, slices.Clone(journal[:cut]))
				require.Equal(t, out.Output, again.Output)
				require.Equal(t, string(out.Context), string(again.Context))
			}
		})
	}
}

// The data of an attachment is read when a script reads it, whatever its size.
func TestMiddleware_ReadsFiles(t *testing.T) {
	t.Parallel()
	b := newAround(t, "agents/main.yaml", "name: main\nmodel: scripted/main\n", "models/main.yaml", echo,
		"middleware/main.star", `
def before(content, context):
    files = context["payload"]["files"]
    if [f["name"] for f in files] != ["a.txt", "b.bin"] or sorted(files[0].keys()) != ["data", "field_name", "mime_type", "name", "size"]:
        fail(str(files[0].keys()))
    if json.decode(json.encode(files[0]))["data"] != "aGVsbG8=" or files[0].get("data") != "aGVsbG8=":
        fail("wrong data")
    kept = [p for p in content["parts"] if p.get("file") != "f2"]
    return {"role": content["role"], "parts": kept + [{"text": " " + base64.decode(files[0]["data"]) + " " + str(len(files[1]["data"]))}]}
`)
	large := make([]byte, 1<<20+1) // several parts
	b.files = []engine.File{{Name: "a.txt", MIMEType: "text/plain", Data: []byte("hello")}, {Name: "b.bin", MIMEType: "text/plain", Data: large}}
	b.values = func() map[string]any {
		return map[string]any{"input": map[string]any{"files": []any{
			map[string]any{"name": "a.txt", "field_name": "f", "mime_type": "text/plain", "size": 5},
			map[string]any{"name": "b.bin", "field_name": "f", "mime_type": "text/plain", "size": len(large)},
		}}}
	}
	out, _ := b.run(t, nil)
	require.Equal(t, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
	require.Contains(t, out.Output, fmt.Sprintf("hello %d", (len(large)+2)/3*4))
}

// Sending by middleware is rejected with a message for the script, and interrupted by an unavailable service.
func TestMiddleware_Sends(t *testing.T) {
	t.Parallel()
	source := "def before(content, context):\n    send_connector(\"crm\", %s)\n    return content\n"
	for name, row := range map[string]struct {
		argument string
		fail     error
		status   engine.Status
		message  string
	}{
		"sent":        {`{"payload": None}`, nil, engine.Completed, ""},
		"not wrapped": {`{"order": 1}`, nil, engine.Failed, "the second argument must be a map with the key payload alone"},
		"more keys":   {`{"payload": 1, "url": "x"}`, nil, engine.Failed, "the second argument must be a map"},
		"rejected":    {`{"payload": 1}`, &dispatchapi.RejectedError{Detail: "no link"}, engine.Failed, "send_connector: no link"},
		"unavailable": {`{"payload": 1}`, errors.New("away"), engine.Unfinished, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newAround(t, "agents/main.yaml", "name: main\nmodel: scripted/main\n", "models/main.yaml", echo,
				"middleware/main.star", fmt.Sprintf(source, row.argument))
			b.outbox.fail = row.fail
			out, _ := b.run(t, nil)
			require.Equal(t, row.status, out.Status, "%s %v", out.Error, out.Cause)
			require.Contains(t, out.Error, row.message)
		})
	}
}
