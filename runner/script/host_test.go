// SPDX-License-Identifier: Apache-2.0

package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// A script asks its host. The host's errors end the script, or the call.
func TestPool_ServesRequests(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	var got []Request
	host := hostFunc(func(_ context.Context, request Request) (json.RawMessage, error) {
		got = append(got, request)
		return json.RawMessage(`{"status":200,"n":12345678901234567890}`), nil
	})
	result, err := pool.Run(t.Context(), middlewareCall(
		`a = http.get("https://a.example", params = {"q": 1})["n"]`,
		`return [a, send_connector("crm", {"a": 1})["status"]]`), host)
	require.NoError(t, err)
	require.Equal(t, `[12345678901234567890,200]`, string(result.Value))
	require.Equal(t, []Request{
		{"http.request", json.RawMessage(`{"method":"GET","url":"https://a.example","params":{"q":1},"json":null,"form":null,"body":null,"timeout":30,"retry":0,"idempotency_key":null,"fail":true,"headers":{}}`), 1, false, bundle.Position{File: "tools/a.star", Line: 2, Column: 15}},
		{"send_connector", json.RawMessage(`{"action_name":"crm","payload":{"a":1}}`), 2, true, bundle.Position{File: "tools/a.star", Line: 3, Column: 28}},
	}, got)

	errGone := errors.New("the attempt is over")
	for name, tt := range map[string]struct {
		answer json.RawMessage
		err    error
		want   string
	}{
		"failure":     {nil, fmt.Errorf("wrapped: %w", Fail("503:\nbusy")), "script_error: send_connector: 503: busy"},
		"other error": {nil, errGone, errGone.Error()},
		"large":       {json.RawMessage(`"` + strings.Repeat("a", MaxInput) + `"`), nil, "script_error: send_connector: the answer has 1048578 bytes, at most 1048576 are allowed"},
		"no JSON":     {json.RawMessage(`{]`), nil, "encoding a message"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := pool.Run(t.Context(), middlewareCall(`print("before")`, `send_connector("crm", 1)`),
				hostFunc(func(context.Context, Request) (json.RawMessage, error) { return tt.answer, tt.err }))
			require.ErrorContains(t, err, tt.want)
			require.Len(t, result.Logs, 1)
		})
	}
}

// middlewareCall returns a call of a script that belongs to middleware, with the lines of its function.
func middlewareCall(lines ...string) Call {
	call := callOn(body(lines...), "")
	call.Owner = bundle.OwnerMiddleware
	return call
}

// Scripts can only call what their host offers.
func TestPool_OffersBuiltins(t *testing.T) {
	t.Parallel()
	call := callOn(body(`http.get("https://a.example")`), "")
	call.Offers = func(name string) bool { return name == "http.post" }
	_, err := newPool(t, Options{}).Run(t.Context(), call, nil)
	requireError(t, err, runerror.ScriptError, "http.get cannot be called here: the script belongs to a tool", "tools/a.star:2:11")
}

func TestPool_LimitsRequests(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	variables := Variables(func(string) (Variable, bool) { return Variable{Value: "s3cret", Sensitive: true}, true })
	host := hostFunc(func(_ context.Context, request Request) (json.RawMessage, error) {
		if value, handled, err := variables.Handle(request); handled {
			require.Zero(t, request.Number, "%s is counted", request.Name)
			return value, err
		}
		return json.RawMessage(`null`), nil
	})
	for name, tt := range map[string]struct {
		owner bundle.ScriptOwner
		line  string
		want  string
	}{
		"writes":                {bundle.OwnerMiddleware, `[send_connector("a", 1) for _ in range(51)]`, "the script asks for more than 50 effects"},
		"HTTP requests":         {bundle.OwnerTool, `[http.put("https://a.example") for _ in range(21)]`, "the script sends more than 20 HTTP requests"},
		"effects of guardrails": {bundle.OwnerGuardrail, `http.delete("https://a.example")`, "the script asks for more than 0 effects"},
		"reads of guardrails":   {bundle.OwnerGuardrail, `[http.get("https://a.example") for _ in range(6)]`, "the script asks for more than 5 reads"},
		"within":                {bundle.OwnerGuardrail, `[(env("A"), http.get("https://a.example")) for _ in range(5)]`, ""},
		"within, with a secret": {bundle.OwnerGuardrail, `[(hmac.sha256(env("A"), "t"), http.get("https://a.example")) for _ in range(5)]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := callOn(body(tt.line), "")
			call.Owner = tt.owner
			_, err := pool.Run(t.Context(), call, host)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			var failed *Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, runerror.ScriptLimit, failed.Code)
			require.Equal(t, tt.want, failed.Message)
		})
	}
}

// Sensitive variables never reach the script.
func TestPool_HidesSensitiveVariables(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	variables := Variables(func(name string) (Variable, bool) {
		v, ok := map[string]Variable{"URL": {Value: "https://a.example"}, "TOKEN": {Value: "s3cret", Sensitive: true}}[name]
		return v, ok
	})
	var header string
	host := hostFunc(func(_ context.Context, request Request) (json.RawMessage, error) {
		if value, handled, err := variables.Handle(request); handled {
			return value, err
		}
		var args struct{ Headers map[string]Text }
		require.NoError(t, json.Unmarshal(request.Args, &args))
		require.NotContains(t, string(request.Args), "s3cret")
		require.NotEmpty(t, variables.Secrets(args.Headers["a"]))
		require.Empty(t, variables.Secrets(args.Headers["b"]))
		var err error
		header, err = variables.Resolve(args.Headers["a"])
		return json.RawMessage(`{}`), err
	})
	const refused = "a sensitive variable can only be joined with texts and passed to headers of requests, hmac.sha256 and base64.encode"
	for name, tt := range map[string]struct{ line, result, header, message string }{
		"plain":        {`return env("URL") + "/x"`, `"https://a.example/x"`, "", ""},
		"unknown":      {`env("NONE")`, "", "", "env: the environment has no variable NONE"},
		"header":       {`http.get("u", headers = {"a": "Bearer " + env("TOKEN") + "!", "b": "x"})`, `null`, "Bearer s3cret!", ""},
		"basic":        {`http.get("u", headers = {"a": "Basic " + base64.encode("u:" + env("TOKEN")), "b": "x"})`, `null`, "Basic dTpzM2NyZXQ=", ""},
		"signature":    {`return hmac.sha256(env("TOKEN"), "text") == hmac.sha256("s3cret", "text")`, `true`, "", ""},
		"result":       {`return [env("TOKEN")]`, "", "", "the result: " + refused},
		"str":          {`return str(env("TOKEN"))`, "", "", refused},
		"format":       {`return "%s" % env("TOKEN")`, "", "", refused},
		"inner format": {`return "{}".format([env("TOKEN")])`, "", "", refused},
		"json":         {`return json.encode(env("TOKEN"))`, "", "", "json.encode: " + refused},
		"print":        {`print(env("TOKEN"))`, "", "", refused},
		"log":          {`log("x", f = env("TOKEN"))`, "", "", "log: " + refused},
		"log text":     {`log(env("TOKEN"))`, "", "", "log: text must be a string, not sensitive"},
		"fail":         {`fail(env("TOKEN"))`, "", "", "fail: text must be a string, not sensitive"},
		"body":         {`http.post("u", body = env("TOKEN"))`, "", "", "http.post: " + refused},
		"url":          {`http.post("u" + env("TOKEN"))`, "", "", "http.post: url must be a string, not sensitive"},
		"product":      {`return env("TOKEN") * 2`, "", "", refused},
		"key":          {`return {env("TOKEN"): 1}`, "", "", refused},
		"comparison":   {`return env("TOKEN") == "s3cret"`, "false", "", ""},
		"length":       {`return len(env("TOKEN"))`, "", "", "len: value of type sensitive has no len"},
		"index":        {`return env("TOKEN")[0]`, "", "", "unhandled index operation sensitive[int]"},
		"cached":       {`return env("URL") == env("URL")`, "true", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			header = ""
			result, err := pool.Run(t.Context(), callOn(body(tt.line), ""), host)
			if tt.message != "" {
				requireError(t, err, runerror.ScriptError, tt.message, positionIn(err))
				require.NotContains(t, fmt.Sprint(result, err), "s3cret")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.result, string(result.Value))
			require.Equal(t, tt.header, header)
		})
	}
}

// positionIn returns the position of an error, which must be in the second line if there is one.
func positionIn(err error) string {
	var failed *Error
	if errors.As(err, &failed) && (failed.Position().Line == 2 || failed.Position().Line == 0) {
		return failed.Position().String()
	}
	return "line 2"
}
