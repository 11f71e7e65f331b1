// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// strict is a tool with an integer parameter.
func strict(t *testing.T, called *[]any) engine.Tool {
	t.Helper()
	parameters := map[string]any{
		"type": "object", "properties": map[string]any{"n": map[string]any{"type": "integer"}}, "required": []any{"n"}, "additionalProperties": false,
	}
	schema, err := engine.CompileArguments("strict", parameters)
	require.NoError(t, err)
	return engine.Tool{Name: "strict", Parameters: parameters, Schema: schema, Run: func(_ context.Context, call *engine.Call) (map[string]any, error) {
		*called = append(*called, call.Arguments["n"])
		return nil, nil
	}}
}

func callOf(name string, args map[string]any) *model.Content {
	return &model.Content{Role: model.RoleModel, Parts: []*model.Part{{Call: &model.Call{Name: name, Args: args}}}}
}

// The message about an unknown tool names the most similar tools of the request.
func TestArguments_NameSimilarTools(t *testing.T) {
	t.Parallel()
	var tools []engine.Tool
	for _, name := range []string{"ev_add", "ev_echo", "ev_get-env", "ev_get-image", "ev_long-running", "ev_zip", "ev_get-sum"} {
		tools = append(tools, engine.Tool{Name: name, Run: func(context.Context, *engine.Call) (map[string]any, error) { return nil, nil }})
	}
	h := &house{says: []*model.Content{callOf("ev_get_sum", nil), model.TextContent(model.RoleModel, "done")}}
	p := project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [ev_add, ev_echo, ev_get-env, ev_get-image, ev_long-running, ev_zip, ev_get-sum]\n",
		"models/main.yaml", "steps: [{text: x}]")
	out := engine.New(engine.Config{Models: h, Tools: tools}).Execute(t.Context(), input(p, h))
	require.Equal(t, engine.Completed, out.Status, out.Error)
	contents := h.requests[len(h.requests)-1].Contents
	require.Equal(t, `there is no tool "ev_get_sum"; call one of the tools of the request, such as ev_get-sum, ev_get-env, ev_echo, ev_get-image, ev_add`,
		contents[len(contents)-1].Parts[0].Result.Response["error"])
}

// A call with invalid arguments does not reach its tool. The model gets the problem. Three such calls of one tool in a
// row fail the run.
func TestArguments_ReturnProblemsToModel(t *testing.T) {
	t.Parallel()
	unreadable := &model.Content{Role: model.RoleModel, Parts: []*model.Part{{Call: &model.Call{Name: "strict", Problem: "the arguments are not a JSON object"}}}}
	wrong := func() *model.Content { return callOf("strict", map[string]any{"n": "x"}) }
	right := func() *model.Content { return callOf("strict", map[string]any{"n": json.Number("9007199254740993")}) }
	for name, row := range map[string]struct {
		answers []*model.Content
		called  []any
		results []string // texts of the errors that the model gets, "" for a result
		code    runerror.Code
	}{
		"wrong, then right": {[]*model.Content{wrong(), unreadable, right()}, []any{json.Number("9007199254740993")},
			[]string{"the arguments do not fit: n: must be of type integer, not string", "the arguments are not a JSON object", ""}, ""},
		"three in a row": {[]*model.Content{wrong(), wrong(), wrong(), right()}, nil,
			[]string{"the arguments do not fit: n: must be of type integer, not string", "the arguments do not fit: n: must be of type integer, not string"}, runerror.ToolArgumentsInvalid},
		"two twice": {[]*model.Content{wrong(), wrong(), right(), wrong(), wrong()}, []any{json.Number("9007199254740993")},
			[]string{"the arguments do not fit: n: must be of type integer, not string", "the arguments do not fit: n: must be of type integer, not string", "",
				"the arguments do not fit: n: must be of type integer, not string", "the arguments do not fit: n: must be of type integer, not string"}, ""},
		"unknown tools": {[]*model.Content{callOf("a", nil), callOf("a", nil), callOf("a", nil), callOf("a", nil)}, nil,
			[]string{`there is no tool "a"; call one of the tools of the request, such as strict`, `there is no tool "a"; call one of the tools of the request, such as strict`,
				`there is no tool "a"; call one of the tools of the request, such as strict`, `there is no tool "a"; call one of the tools of the request, such as strict`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var called []any
			h := &house{says: append(row.answers, model.TextContent(model.RoleModel, "done"))}
			p := project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [strict]\n", "models/main.yaml", "steps: [{text: x}]")
			out := engine.New(engine.Config{Models: h, Tools: []engine.Tool{strict(t, &called)}}).Execute(t.Context(), input(p, h))
			require.Equal(t, row.code, out.ErrorCode, out.Cause)
			require.Equal(t, row.called, called)
			var results []string
			for _, content := range h.requests[len(h.requests)-1].Contents {
				for _, part := range content.Parts {
					if part.Result != nil {
						text, _ := part.Result.Response["error"].(string)
						results = append(results, text)
					}
				}
			}
			require.Equal(t, row.results, results)
		})
	}
}
