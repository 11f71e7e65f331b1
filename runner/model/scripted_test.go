// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/model"
)

// scripted returns the model for a script.
func scripted(t *testing.T, script string) model.Model {
	t.Helper()
	p, err := bundle.Parse(bundle.Files{
		"agents/a.yaml": []byte("name: a\nmodel: scripted/s\n"),
		"models/s.yaml": []byte(script),
	})
	require.NoError(t, err)
	llm, err := (&model.Registry{}).Resolve("scripted/s", p, model.Settings{})
	require.NoError(t, err)
	return llm
}

// ask returns the answer of a model.
func ask(ctx context.Context, llm model.Model, contents ...*model.Content) (*model.Answer, error) {
	return llm.Generate(ctx, &model.Request{Contents: contents})
}

func user(text string) *model.Content { return model.TextContent(model.RoleUser, text) }

func toolResult(name string, result map[string]any) *model.Content {
	return &model.Content{Role: model.RoleUser, Parts: []*model.Part{{Result: &model.Result{Name: name, Response: result}}}}
}

// An argument that is one reference with :json is the JSON value of the match, with all its digits.
func TestScripted_ConvertsArgumentsToJSON(t *testing.T) {
	t.Parallel()
	llm := scripted(t, `steps: [{match: '(?s)"n":(?P<n>\S+) (.*)', tool_calls: [{name: f, arguments: {n: '${n:json}', list: ['${2:json}'], text: '${n}', part: 'n=${n:json}'}}]}]`)
	for given, want := range map[string]string{
		`"n":9007199254740993 {"a":[1.50]}`: `{"n":9007199254740993,"list":[{"a":[1.50]}],"text":"9007199254740993","part":"n=${n:json}"}`,
		`"n":true x y`:                      `{"n":true,"list":["x y"],"text":"true","part":"n=${n:json}"}`,
	} {
		t.Run(given, func(t *testing.T) {
			answer, err := ask(t.Context(), llm, user(given))
			require.NoError(t, err)
			args, err := json.Marshal(answer.Content.Calls()[0].Args)
			require.NoError(t, err)
			require.JSONEq(t, want, string(args))
			require.Contains(t, string(args), strings.Fields(given)[0][4:]+",", "all digits are kept")
		})
	}
}

func TestScripted_SelectsStepByTurnAndMatch(t *testing.T) {
	t.Parallel()
	llm := scripted(t, `
steps:
  - turn: 1
    match: '"name": ?"(?P<name>[^"]+)"'
    tool_calls: [{name: current_time, arguments: {zone: UTC, who: ["${name}", 3]}}]
    tokens: {input: 11, output: 2, thinking: 3, cached_input: 4}
  - turn: 2
    match: '(?s)"name": ?"([^"]+)".*tool current_time: .*"time":"([^"]+)"'
    text: Hello ${1}, it is ${2}.
  - text: Hello, stranger, who said ${0}
`)
	first, err := ask(t.Context(), llm, user(`{"name": "Ada"}`))
	require.NoError(t, err)
	call := first.Content.Parts[0].Call
	require.Equal(t, "current_time", call.Name)
	require.NotEmpty(t, call.ID)
	require.Equal(t, map[string]any{"zone": "UTC", "who": []any{"Ada", json.Number("3")}}, call.Args)
	require.EqualValues(t, 11, first.Usage.InputTokens)
	require.EqualValues(t, 4, first.Usage.CachedInputTokens)
	require.EqualValues(t, 16, first.Usage.TotalTokens)

	second, err := ask(t.Context(), llm, user(`{"name": "Ada"}`), first.Content, toolResult("current_time", map[string]any{"time": "noon"}))
	require.NoError(t, err)
	require.Equal(t, "Hello Ada, it is noon.", second.Content.Parts[0].Text)

	other, err := ask(t.Context(), llm, user("hi there"))
	require.NoError(t, err)
	require.Equal(t, "Hello, stranger, who said hi there", other.Content.Parts[0].Text)
	require.EqualValues(t, 2, other.Usage.InputTokens)
	require.EqualValues(t, 6, other.Usage.OutputTokens)
}

func TestScripted_FailsWithoutMatchingStep(t *testing.T) {
	t.Parallel()
	_, err := ask(t.Context(), scripted(t, "steps: [{turn: 2, text: x}]"), user("hi"))
	failure, ok := model.AsError(err)
	require.True(t, ok)
	require.Equal(t, runerror.ModelRequestRejected, failure.Code)
	require.Contains(t, failure.Message, "models/s.yaml has no step for turn 1")
}

func TestScripted_DelayEndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := ask(ctx, scripted(t, "steps: [{text: x, delay: 1h}]"), user("hi"))
	require.ErrorIs(t, err, context.Canceled)
}

func TestRetry_FollowsPolicy(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script string
		waits  []time.Duration
		code   runerror.Code
	}{
		"succeeds at the third": {"steps: [{text: fine, error: {status: 503, times: 2}}]", []time.Duration{10 * time.Second, 20 * time.Second}, ""},
		"gives up":              {"steps: [{text: fine, error: {status: 429}}]", []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second}, runerror.ModelRateLimited},
		"not worth it":          {"steps: [{text: fine, error: {status: 400}}]", nil, runerror.ModelRequestRejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var waits []time.Duration
			llm := model.WithRetry(model.Policy{
				Attempts: 4, InitialDelay: 10 * time.Second, MaxDelay: 30 * time.Second,
				Sleep: func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil },
			}, scripted(t, tt.script))
			resp, err := ask(t.Context(), llm, user("hi"))
			require.Equal(t, tt.waits, waits)
			if tt.code == "" {
				require.NoError(t, err)
				require.Equal(t, "fine", resp.Content.Parts[0].Text)
				return
			}
			failure, ok := model.AsError(err)
			require.True(t, ok)
			require.Equal(t, tt.code, failure.Code)
		})
	}
}

func TestRetry_UsesFallbackModel(t *testing.T) {
	t.Parallel()
	broken, spare := scripted(t, "steps: [{error: {status: 401}}]"), scripted(t, "steps: [{text: spare}]")
	resp, err := ask(t.Context(), model.WithRetry(model.Policy{Attempts: 2}, broken, spare), user("hi"))
	require.NoError(t, err)
	require.Equal(t, "spare", resp.Content.Parts[0].Text)
}

func TestRetry_EndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	policy := model.Policy{Attempts: 3, InitialDelay: time.Hour, MaxDelay: time.Hour, Sleep: func(ctx context.Context, _ time.Duration) error {
		cancel()
		return ctx.Err()
	}}
	_, err := ask(ctx, model.WithRetry(policy, scripted(t, "steps: [{error: {status: 500}}]"), scripted(t, "steps: [{text: spare}]")), user("hi"))
	require.ErrorIs(t, err, context.Canceled)
}

// The limit applies to the text and the arguments together, for any number of references.
func TestScripted_LimitsExpandedText(t *testing.T) {
	t.Parallel()
	said := user(strings.Repeat("x", 60_000))
	for name, script := range map[string]string{
		"text":      "steps: [{text: '" + strings.Repeat("${0}", 15_000) + "'}]",
		"arguments": "steps: [{tool_calls: [" + strings.Repeat("{name: n, arguments: {a: '$0$0$0$0'}}, ", 5) + "]}]",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ask(t.Context(), scripted(t, script), said)
			var refused *model.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, runerror.ModelRequestRejected, refused.Code)
			require.ErrorContains(t, err, "models/s.yaml: the answer has more than 1048576 bytes when it is expanded")
		})
	}
	pattern := regexp.MustCompile("a(b)c")
	for _, template := range []string{"$$${1}$$1 $ ${a$1} $2 ${x}$0", "$", "plain", "$$", "$1x $1", "$$$", "a$$b$1$", "${1", "${", "$1$1$$$1é$0"} {
		response, err := ask(t.Context(), scripted(t, "steps: [{match: 'a(b)c', text: '"+template+"'}]"), user("abc"))
		require.NoError(t, err, template)
		require.Equal(t, pattern.ReplaceAllString("abc", template), response.Content.Parts[0].Text, template)
	}
}
