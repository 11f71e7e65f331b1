// SPDX-License-Identifier: Apache-2.0

package script

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

func TestPool_ReturnsResult(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	call := callOn("load(\"//tools/lib/money.star\", \"eur\")\n\ndef run(amount, note = None):\n  print(\"paying\", amount)\n  log(\"done\", level = \"warn\", order = [1])\n  return {\"text\": eur(amount), \"note\": note}\n", `{"amount": 12345678901234567890}`)
	sources := call.Sources()
	sources["tools/lib/money.star"] = "def eur(x):\n  return str(x) + \" EUR\"\n"
	call.Sources = func() map[string]string { return sources }
	result, err := pool.Run(t.Context(), call, nil)
	require.NoError(t, err)
	require.Equal(t, `{"text":"12345678901234567890 EUR","note":null}`, string(result.Value))
	require.NotZero(t, result.Steps)
	require.Equal(t, []LogLine{
		{Level: "info", Text: "paying 12345678901234567890", Position: bundle.Position{File: "tools/a.star", Line: 4, Column: 8}},
		{Level: "warn", Text: "done", Fields: json.RawMessage(`{"order":[1]}`), Position: bundle.Position{File: "tools/a.star", Line: 5, Column: 6}},
	}, result.Logs)
}

// The error for models has no path. The detail for logs has the position and the stack.
func TestPool_ReportsErrors(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	for name, tt := range map[string]struct {
		call              Call
		code              runerror.Code
		message, position string
	}{
		"operation":       {callOn(body(`return 1 + "a"`), ""), runerror.ScriptError, "unknown binary op: int + string", "tools/a.star:2:12"},
		"fail":            {callOn(body(`fail("no\nsuch order")`), ""), runerror.ScriptError, "no such order", "tools/a.star:2:7"},
		"missing":         {callOn("def run(x): pass\n", "{}"), runerror.ScriptError, "function run missing 1 argument (x)", "tools/a.star:1:1"},
		"unknown":         {callOn("def run(): pass\n", `{"x": 1}`), runerror.ScriptError, `function run accepts no arguments (1 given)`, "tools/a.star:1:1"},
		"no function":     {callOn("x = 1\n", ""), runerror.ScriptError, "the script cannot be loaded", ""},
		"start":           {callOn("x = [][0]\n", ""), runerror.ScriptError, "the script cannot be loaded", "tools/a.star:1:7"},
		"effect at start": {callOn("x = time.now()\n", ""), runerror.ScriptError, "the script cannot be loaded", "tools/a.star:1:13"},
		"recursion":       {callOn("def run(): return run()\n", ""), runerror.ScriptError, "function run called recursively", "tools/a.star:1:19"},
		"function":        {callOn(body("return run"), ""), runerror.ScriptError, "the result: a value of type function is no JSON value", ""},
		"set":             {callOn(body("return set([1])"), ""), runerror.ScriptError, "the result: a value of type set is no JSON value", ""},
		"bytes":           {callOn(body("return b'a'"), ""), runerror.ScriptError, "the result: a value of type bytes is no JSON value", ""},
		"NaN":             {callOn(body("return float('nan')"), ""), runerror.ScriptError, "the result: NaN and infinite numbers are no JSON values", ""},
		"infinite":        {callOn(body("return float('inf')"), ""), runerror.ScriptError, "the result: NaN and infinite numbers are no JSON values", ""},
		"key":             {callOn(body("return {1: 2}"), ""), runerror.ScriptError, "the result: a key of type int is no JSON key", ""},
		"depth":           {callOn(body("x = []", "for _ in range(64): x = [x]", "return x"), ""), runerror.ScriptError, "the result: the value has more than 64 nested lists and maps", ""},
		"itself":          {callOn(body("x = []", "x.append(x)", "return x"), ""), runerror.ScriptError, "the result: the value has more than 64 nested lists and maps", ""},
		"global":          {callOn("x = []\ndef run(): x.append(1)\n", ""), runerror.ScriptError, "append: cannot append to frozen list", "tools/a.star:2:20"},
		"steps":           {callOn(body("for _ in range(1000000000): pass"), ""), runerror.ScriptLimit, "the script needs more than 50000000 steps", "tools/a.star:2:3"},
		"result":          {callOn(body(`return "a" * 300000`), ""), runerror.ScriptLimit, "the result has more than 262144 bytes", ""},
		"input":           {callOn("def run(x): pass\n", `{"x": "`+strings.Repeat("a", MaxInput)+`"}`), runerror.ScriptLimit, "the arguments have 1048585 bytes, at most 1048576 are allowed", ""},
		"abort in a tool": {callOn(body("abort(1)"), ""), runerror.ScriptError, "abort cannot be called here: the script belongs to a tool", "tools/a.star:2:8"},
		"no such keyword": {callOn(body(`json.encode(1, indent=2)`), ""), runerror.ScriptError, "json.encode has no parameter indent; it has value", "tools/a.star:2:14"},
		"no argument":     {callOn(body(`re.match("a")`), ""), runerror.ScriptError, "re.match needs the argument text", "tools/a.star:2:11"},
		"type":            {callOn(body(`re.match("a", 1)`), ""), runerror.ScriptError, "re.match: text must be a string, not int", "tools/a.star:2:11"},
		"twice":           {callOn(body(`re.match("a", "b", text="c")`), ""), runerror.ScriptError, "re.match got two values for text", "tools/a.star:2:11"},
		"too many":        {callOn(body(`time.now(1)`), ""), runerror.ScriptError, "time.now takes at most 0 arguments ()", "tools/a.star:2:11"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := pool.Run(t.Context(), tt.call, nil)
			requireError(t, err, tt.code, tt.message, tt.position)
			require.Nil(t, result.Value)
		})
	}
}

func TestError_DetailHasCallStack(t *testing.T) {
	t.Parallel()
	_, err := newPool(t, Options{}).Run(t.Context(), callOn("def run():\n  return inner({})\n\ndef inner(x):\n  return x[\"a\"]\n", ""), nil)
	var failed *Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, `script_error: key "a" not in dict`, failed.Error())
	require.Equal(t, "tools/a.star:5:11: key \"a\" not in dict\n  in inner at tools/a.star:5:11\n  in run at tools/a.star:2:15", failed.Detail())
}

// A script changes the context of its run, except for read-only keys.
func TestPool_ReturnsChangedContext(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	for name, tt := range map[string]struct{ line, context, message string }{
		"unchanged":        {`context["tier"] = "g" + "old"`, "", ""},
		"changed":          {`context["tier"] = context["run_id"]`, `{"tier":"r1","list":[1]}`, ""},
		"added":            {`context.update(extra = 1)`, `{"tier":"gold","list":[1],"extra":1}`, ""},
		"inner":            {`context["list"].append(2)`, `{"tier":"gold","list":[1,2]}`, ""},
		"removed":          {`context.pop("tier")`, `{"list":[1]}`, ""},
		"read":             {`if len(context) != 4 or "tier" not in context or context.get("payload")["a"] != 1: fail("wrong")`, "", ""},
		"read-only":        {`context["run_id"] = "x"`, "", `context["run_id"] is read-only`},
		"read-only update": {`context.update(run_id = "x")`, "", "context.update changes a read-only key"},
		"read-only pop":    {`context.pop("run_id")`, "", "context.pop changes a read-only key"},
		"read-only clear":  {`context.clear()`, "", "context.clear changes a read-only key"},
		"read-only inner":  {`context["payload"]["a"] = 2`, "", "cannot insert into frozen hash table"},
		"comparison":       {`context["same"] = context == {}`, `{"tier":"gold","list":[1],"same":false}`, ""},
		"no JSON":          {`context["f"] = len`, "", "the context: a value of type builtin_function_or_method is no JSON value"},
		"large":            {`context["x"] = "a" * 70000`, "", "the context has more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := callOn("def run(context):\n  "+tt.line+"\n", "")
			call.TakesContext, call.Context, call.ReadOnly = true, json.RawMessage(`{"tier":"gold","list":[1]}`), json.RawMessage(`{"run_id":"r1","payload":{"a":1}}`)
			result, err := pool.Run(t.Context(), call, nil)
			if tt.message != "" {
				var failed *Error
				require.ErrorAs(t, err, &failed)
				require.Equal(t, tt.message, failed.Message)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.context, string(result.Context))
		})
	}
}

func TestPool_StopsAndAborts(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	for name, tt := range map[string]struct {
		line string
		want Result
	}{
		"stop":    {`stop("closed")`, Result{Stop: &Stop{"closed", true}}},
		"quietly": {`stop("closed", publish_outbound = False)`, Result{Stop: &Stop{"closed", false}}},
		"abort":   {`abort({"a": 1})`, Result{Abort: json.RawMessage(`{"a":1}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := callOn(strings.Replace(body(tt.line), "run", bundle.StageBefore, 1), "")
			call.Owner, call.Function = bundle.OwnerHook, bundle.StageBefore
			result, err := pool.Run(t.Context(), call, nil)
			require.NoError(t, err)
			result.Steps = 0
			require.Equal(t, tt.want, result)
		})
	}
}

// The lines of a run are limited. Lines beyond the limit are counted.
func TestPool_LimitsLogs(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	call := callOn(body(`for i in range(100000): print(i)`), "")
	call.Logs = LogBudget{Lines: 3, Bytes: 1 << 20}
	result, err := pool.Run(t.Context(), call, nil)
	require.NoError(t, err)
	require.Len(t, result.Logs, 3)
	require.Equal(t, 99_997, result.DroppedLogs)

	call = callOn(body(`print("é" * 3000)`, `print("b" * 4000)`, `log("x", f = "a" * 5000)`), "")
	call.Logs = LogBudget{Lines: 10, Bytes: 5000}
	result, err = pool.Run(t.Context(), call, nil)
	require.NoError(t, err)
	require.Len(t, result.Logs, 2)
	require.Equal(t, strings.Repeat("é", 2048), result.Logs[0].Text)
	require.JSONEq(t, `{"omitted":"the fields are too large"}`, string(result.Logs[1].Fields))
	require.Equal(t, 1, result.DroppedLogs)
}

// A call that gets an idle child which has ended runs in another one, and does not count as a script beyond its limits.
func TestPool_ReplacesDeadIdleChild(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	for range 3 {
		result, err := pool.Run(t.Context(), callOn(body("return 1"), ""), nil)
		require.NoError(t, err)
		require.Equal(t, "1", string(result.Value))
		pool.mu.Lock()
		require.Len(t, pool.idle, 1)
		pool.idle[0].killChild()
		_, err = pool.idle[0].out.ReadByte() // The pipe ends with the process.
		pool.mu.Unlock()
		require.ErrorIs(t, err, io.EOF)
	}
}
