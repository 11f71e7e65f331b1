// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/runner/model"
)

// service is a Chat Completions service.
type service struct {
	status   int
	header   http.Header
	answer   string
	requests []map[string]any
	bodies   []string // request bodies
	auth     string
	path     string
	query    string
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var request map[string]any
	_ = json.Unmarshal(body, &request)
	s.requests, s.bodies = append(s.requests, request), append(s.bodies, string(body))
	s.auth, s.path, s.query = r.Header.Get("Authorization"), r.URL.Path, r.URL.RawQuery
	for key, values := range s.header {
		w.Header()[key] = values
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(s.status)
	_, _ = io.WriteString(w, s.answer)
}

// reached returns a registry with a provider at a base URL.
func reached(t *testing.T, baseURL, key string) *model.Registry {
	t.Helper()
	ranges, err := egress.Flags{Allow: loopback}.Rules()
	require.NoError(t, err)
	client := egress.New(ranges).Client(egress.Model, egress.ClientOptions{MaxResponse: 1 << 10})
	t.Cleanup(client.CloseIdleConnections)
	return &model.Registry{HTTP: client, Providers: func() (runnerconfig.Providers, error) {
		return runnerconfig.Providers{Providers: []runnerconfig.Provider{{Prefix: "ours", Type: "openai", BaseURL: baseURL, APIKey: key}}}, nil
	}}
}

// The query of the base URL is part of each request.
func TestOpenAI_SendsQueryOfBaseURL(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, base, path, query string }{
		{"none", "/v1", "/v1/chat/completions", ""},
		{"query", "/azure/v1?api-version=2024-02-01", "/azure/v1/chat/completions", "api-version=2024-02-01"},
		{"after a slash", "/v1/?a=1&b=%2F&a=2", "/v1/chat/completions", "a=1&b=%2F&a=2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := &service{status: 200, answer: `{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"Hi"}}]}`}
			server := httptest.NewServer(s)
			t.Cleanup(server.Close)
			llm, err := reached(t, server.URL+row.base, "").Resolve("ours/m", nil, model.Settings{})
			require.NoError(t, err)
			for range 2 {
				_, err := llm.Generate(t.Context(), &model.Request{Contents: []*model.Content{model.TextContent(model.RoleUser, "Hi")}})
				require.NoError(t, err)
				require.Equal(t, row.path, s.path)
				require.Equal(t, row.query, s.query)
			}
		})
	}
}

// The answer of a model has the name that the service gives to the model, in a limited size and without the key.
func TestOpenAI_ReportsModelOfAnswer(t *testing.T) {
	t.Parallel()
	for reported, want := range map[string]string{
		`"gpt-5-2026-01-01"`: "gpt-5-2026-01-01", `"gpt-sk-testkey"`: "********", `null`: "", `"` + strings.Repeat("x", 300) + `"`: strings.Repeat("x", 200),
	} {
		t.Run(fmt.Sprintf("%.20s", reported), func(t *testing.T) {
			t.Parallel()
			s := &service{status: 200, answer: `{"model":` + reported + `,"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"Hi"}}]}`}
			server := httptest.NewServer(s)
			t.Cleanup(server.Close)
			llm, err := reached(t, server.URL+"/v1?key=secret", "sk-testkey").Resolve("ours/m", nil, model.Settings{})
			require.NoError(t, err)
			answer, err := llm.Generate(t.Context(), &model.Request{Contents: []*model.Content{model.TextContent(model.RoleUser, "Hi")}})
			require.NoError(t, err)
			require.Equal(t, want, answer.ResponseModel)
			to, err := url.Parse(server.URL)
			require.NoError(t, err)
			require.Equal(t, runtrace.ServerOf(to), llm.Server())
		})
	}
}

// A key that cannot be sent is not a network error, and a retry does not help.
func TestRegistry_RefusesKeyThatCannotBeSent(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, key, sent string
	}{
		{"line break at the end", "sk-test\n", "Bearer sk-test"},
		{"line break inside", "sk-\ntest", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := &service{status: 200, answer: `{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"Hi"}}]}`}
			server := httptest.NewServer(s)
			t.Cleanup(server.Close)
			llm, err := reached(t, server.URL+"/v1", row.key).Resolve("ours/m", nil, model.Settings{})
			if row.sent == "" {
				refused, ok := model.AsError(err)
				require.True(t, ok)
				require.Equal(t, runerror.ModelUnauthorized, refused.Code)
				require.False(t, refused.Retryable)
				require.ErrorContains(t, err, `the API key of model provider "ours" contains a line break`)
				require.Empty(t, s.requests)
				return
			}
			require.NoError(t, err)
			_, err = llm.Generate(t.Context(), &model.Request{Contents: []*model.Content{model.TextContent(model.RoleUser, "Hi")}})
			require.NoError(t, err)
			require.Equal(t, row.sent, s.auth)
		})
	}
}

func openAI(t *testing.T, s *service, allowed string) model.Model {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	ranges, err := egress.Flags{Allow: allowed}.Rules()
	require.NoError(t, err)
	client := egress.New(ranges).Client(egress.Model, egress.ClientOptions{MaxResponse: 1 << 10})
	t.Cleanup(client.CloseIdleConnections)
	registry := &model.Registry{HTTP: client, Providers: func() (runnerconfig.Providers, error) {
		return runnerconfig.Providers{Providers: []runnerconfig.Provider{
			{Prefix: "ours", Type: "openai", BaseURL: server.URL + "/v1", APIKey: "sk-test"},
			{Prefix: "other", Type: "gemini"},
		}}, nil
	}}
	llm, err := registry.Resolve("ours/team/model-1", nil, model.Settings{ReasoningEffort: "low"})
	require.NoError(t, err)
	require.Equal(t, "ours/team/model-1", llm.Name())
	_, err = registry.Resolve("other/x", nil, model.Settings{})
	require.ErrorContains(t, err, "use openai")
	_, err = registry.Resolve("none/x", nil, model.Settings{})
	require.ErrorContains(t, err, `no model provider has the prefix "none"`)
	return llm
}

const loopback = "model=127.0.0.0/8"

func TestOpenAI_SendsConversation(t *testing.T) {
	t.Parallel()
	s := &service{status: 200, answer: `{"model":"m","choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"Hi"}}],
		"usage":{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":5}}}`}
	llm := openAI(t, s, loopback)
	req := &model.Request{
		Contents: []*model.Content{
			user("What time is it?"),
			{Role: model.RoleModel, Parts: []*model.Part{{Call: &model.Call{ID: "c1", Name: "current_time", Args: map[string]any{"zone": "UTC"}}}}},
			{Role: model.RoleUser, Parts: []*model.Part{{Result: &model.Result{ID: "c1", Name: "current_time", Response: map[string]any{"time": "noon"}}}}},
			{Role: model.RoleUser, Parts: []*model.Part{{Text: "Look"}, {File: &model.File{MIMEType: "image/png", Data: []byte{1}}}}},
		},
		Instructions: "Be brief.",
		Temperature:  new(0.1),
		Tools:        []model.ToolDeclaration{{Name: "current_time", Description: "The time", Parameters: map[string]any{"type": "object"}}},
	}
	resp, err := llm.Generate(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, "Hi", resp.Content.Parts[0].Text)
	require.Equal(t, &dispatchapi.TokenUsage{
		InputTokens: 10, OutputTokens: 2, ThinkingTokens: 5, CachedInputTokens: 4, TotalTokens: 17,
	}, resp.Usage)
	require.Equal(t, "Bearer sk-test", s.auth)
	require.Equal(t, "/v1/chat/completions", s.path)
	sent, err := json.Marshal(s.requests[0])
	require.NoError(t, err)
	require.JSONEq(t, `{"model":"team/model-1","temperature":0.1,"reasoning_effort":"low",
		"messages":[
			{"role":"system","content":"Be brief."},
			{"role":"user","content":"What time is it?"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"current_time","arguments":"{\"zone\":\"UTC\"}"}}]},
			{"role":"tool","tool_call_id":"c1","content":"{\"time\":\"noon\"}"},
			{"role":"user","content":[{"type":"text","text":"Look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AQ=="}}]}],
		"tools":[{"type":"function","function":{"name":"current_time","description":"The time","parameters":{"type":"object"}}}]}`, string(sent))
}

// OpenAI counts thinking tokens as part of the completion, Gemini separately, with or without a
// field.
func TestOpenAI_CountsThinkingTokens(t *testing.T) {
	t.Parallel()
	for usage, want := range map[string][2]int64{ // answer and thinking tokens
		`{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17,"completion_tokens_details":{"reasoning_tokens":5}}`:    {2, 5},
		`{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17}`:                                                       {7, 0},
		`{"prompt_tokens":10,"completion_tokens":7,"total_tokens":517}`:                                                      {7, 500},
		`{"prompt_tokens":10,"completion_tokens":7,"total_tokens":517,"completion_tokens_details":{"reasoning_tokens":500}}`: {7, 500},
		`{"prompt_tokens":10,"completion_tokens":7}`:                                                                         {7, 0},
	} {
		t.Run(fmt.Sprintf("%.60s", usage), func(t *testing.T) {
			llm := openAI(t, &service{status: 200, answer: `{"choices":[{"message":{"role":"assistant","content":"Hi"}}],"usage":` + usage + `}`}, loopback)
			resp, err := ask(t.Context(), llm, user("Hello"))
			require.NoError(t, err)
			require.Equal(t, want, [2]int64{resp.Usage.OutputTokens, resp.Usage.ThinkingTokens}, usage)
		})
	}
}

// Images are image parts. All other files are file parts with name and type, after the text and in
// order.
func TestOpenAI_SendsFilesAsParts(t *testing.T) {
	t.Parallel()
	file := func(name, mimeType, data string) *model.Part {
		return &model.Part{File: &model.File{Name: name, MIMEType: mimeType, Data: []byte(data)}}
	}
	for name, c := range map[string]struct {
		parts []*model.Part
		want  string
	}{
		"an image":            {[]*model.Part{file("a.heic", "image/heic", "a")}, `[{"type":"image_url","image_url":{"url":"data:image/heic;base64,YQ=="}}]`},
		"a PDF":               {[]*model.Part{file("a.pdf", "application/pdf", "%PDF")}, `[{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERg=="}}]`},
		"text":                {[]*model.Part{file("a.txt", "text/plain", "a")}, `[{"type":"file","file":{"filename":"a.txt","file_data":"data:text/plain;base64,YQ=="}}]`},
		"audio":               {[]*model.Part{file("a.mp3", "audio/mpeg", "a")}, `[{"type":"file","file":{"filename":"a.mp3","file_data":"data:audio/mpeg;base64,YQ=="}}]`},
		"a file without name": {[]*model.Part{file("", "text/csv", "a")}, `[{"type":"file","file":{"filename":"file","file_data":"data:text/csv;base64,YQ=="}}]`},
		"an empty file":       {[]*model.Part{file("a.txt", "text/plain", "")}, `[{"type":"file","file":{"filename":"a.txt","file_data":"data:text/plain;base64,"}}]`},
		"many beside the text": {
			[]*model.Part{{Text: "Look"}, file("b.csv", "text/csv", "b"), file("a.png", "image/png", "a")},
			`[{"type":"text","text":"Look"},{"type":"file","file":{"filename":"b.csv","file_data":"data:text/csv;base64,Yg=="}},
				{"type":"image_url","image_url":{"url":"data:image/png;base64,YQ=="}}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &service{status: 200, answer: `{"model":"m","choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"Hi"}}]}`}
			req := &model.Request{Contents: []*model.Content{{Role: model.RoleUser, Parts: c.parts}}}
			_, err := openAI(t, s, loopback).Generate(t.Context(), req)
			require.NoError(t, err)
			sent, err := json.Marshal(s.requests[0]["messages"])
			require.NoError(t, err)
			require.JSONEq(t, `[{"role":"user","content":`+c.want+`}]`, string(sent))
		})
	}
}

// The run fails at once with the message of the service.
func TestOpenAI_FailsOnUnsupportedFile(t *testing.T) {
	t.Parallel()
	s := &service{status: 400, answer: `{"error":{"message":"this model takes no files of type audio/mpeg","type":"invalid_request_error","code":"invalid_value"}}`}
	req := &model.Request{Contents: []*model.Content{{Role: model.RoleUser, Parts: []*model.Part{
		{Text: "Listen"}, {File: &model.File{Name: "a.mp3", MIMEType: "audio/mpeg", Data: []byte("a")}},
	}}}}
	_, failed := openAI(t, s, loopback).Generate(t.Context(), req)
	e, ok := model.AsError(failed)
	require.True(t, ok, "%v", failed)
	require.Equal(t, runerror.ModelRequestRejected, e.Code)
	require.False(t, e.Retryable)
	require.Contains(t, e.Message, "this model takes no files of type audio/mpeg")
	require.Len(t, s.requests, 1)
}

func TestOpenAI_ReadsToolCalls(t *testing.T) {
	t.Parallel()
	s := &service{status: 200, answer: `{"choices":[{"finish_reason":"tool_calls","message":{"tool_calls":[
		{"id":"a","type":"function","function":{"name":"f","arguments":"{\"n\":1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":""}}]}}]}`}
	resp, err := ask(t.Context(), openAI(t, s, loopback), user("hi"))
	require.NoError(t, err)
	require.Equal(t, &model.Call{ID: "a", Name: "f", Args: map[string]any{"n": json.Number("1")}}, resp.Content.Parts[0].Call)
	require.Equal(t, &model.Call{ID: "b", Name: "g", Args: map[string]any{}}, resp.Content.Parts[1].Call)
}

// A content is a text, null, or a list of parts whose text parts are the answer. Anything else is
// invalid.
func TestOpenAI_ReadsContent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ message, want, wrong string }{
		"a text":              {`{"content":"a [1] b"}`, "a [1] b", ""},
		"text parts":          {`{"content":[{"type":"text","text":"part one, "},{"type":"text","text":"part two"}]}`, "part one, part two", ""},
		"thinking and text":   {`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"answer"}]}`, "answer", ""},
		"a reference":         {`{"content":[{"type":"text","text":"answer"},{"type":"reference","reference_ids":[1]}]}`, "answer", ""},
		"a refusal":           {`{"content":null,"refusal":"I cannot"}`, "I cannot", ""},
		"a refusal as a part": {`{"content":[{"type":"refusal","refusal":"I cannot"}]}`, "I cannot", ""},
		"thinking alone":      {`{"content":[{"type":"thinking","thinking":[]}]}`, "", "is empty"},
		"an object":           {`{"content":{"a":1}}`, "", "a content that is not a text"},
		"a number":            {`{"content":42}`, "", "a content that is not a text"},
		"a bool":              {`{"content":true}`, "", "a content that is not a text"},
		"a list of texts":     {`{"content":["a"]}`, "", "invalid parts"},
		"a part without text": {`{"content":[{"type":"text","text":{"a":1}}]}`, "", "invalid parts"},
		"a refusal as a list": {`{"content":null,"refusal":["no"]}`, "", "a refusal that is not a text"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, err := ask(t.Context(), openAI(t, &service{status: 200, answer: `{"choices":[{"message":` + c.message + `}]}`}, loopback), user("hi"))
			if c.wrong == "" {
				require.NoError(t, err)
				require.Len(t, resp.Content.Parts, 1)
				require.Equal(t, c.want, resp.Content.Parts[0].Text)
				return
			}
			failure, ok := model.AsError(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, runerror.ModelAnswerInvalid, failure.Code)
			require.Contains(t, failure.Message, c.wrong)
		})
	}
}

// Numbers keep their digits on the way from the model and back to it.
func TestOpenAI_KeepsTheDigitsOfNumbers(t *testing.T) {
	t.Parallel()
	const arguments = `{"decimal":0.1000000000000000055511151231257827,"huge":99999999999999999999,"id":9007199254740993,"one":1.0}`
	s := &service{status: 200, answer: `{"choices":[{"finish_reason":"tool_calls","message":{"tool_calls":[
		{"id":"a","type":"function","function":{"name":"f","arguments":` + strconv.Quote(arguments) + `}}]}}]}`}
	llm := openAI(t, s, loopback)
	resp, err := ask(t.Context(), llm, user("hi"))
	require.NoError(t, err)
	var result map[string]any
	require.NoError(t, exactjson.Decode([]byte(arguments), &result))
	req := &model.Request{Contents: []*model.Content{
		user("hi"), resp.Content,
		{Role: model.RoleUser, Parts: []*model.Part{{Result: &model.Result{ID: "a", Name: "f", Response: result}}}},
	}, Tools: []model.ToolDeclaration{{
		Name: "f", Parameters: map[string]any{"type": "object", "properties": map[string]any{"id": map[string]any{"maximum": json.Number("9007199254740993")}}},
	}}}
	_, err = llm.Generate(t.Context(), req)
	require.NoError(t, err)
	sent := s.bodies[1]
	require.Contains(t, sent, `"arguments":`+strconv.Quote(arguments))
	require.Contains(t, sent, `"content":`+strconv.Quote(arguments))
	require.Contains(t, sent, `"maximum":9007199254740993}`)
}

// The model made a call that nobody can read. The call is an answer, so that the model learns of its mistake.
func TestOpenAI_MarksUnreadableArguments(t *testing.T) {
	t.Parallel()
	for name, arguments := range map[string]string{"cut": `{`, "list": `[1]`, "text": `"a"`, "two values": `{} {}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &service{status: 200, answer: `{"choices":[{"message":{"tool_calls":[
				{"id":"a","type":"function","function":{"name":"f","arguments":` + strconv.Quote(arguments) + `}}]}}]}`}
			answer, err := ask(t.Context(), openAI(t, s, loopback), user("hi"))
			require.NoError(t, err)
			require.Equal(t, []*model.Call{{ID: "a", Name: "f", Problem: "the arguments are not a JSON object"}}, answer.Content.Calls())
		})
	}
}

func TestOpenAI_ClassifiesErrors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		service   service
		allowed   string
		code      runerror.Code
		retryable bool
		after     time.Duration
		says      string
	}{
		"busy": {service: service{status: 429, header: http.Header{"Retry-After": {"7"}}, answer: `{"error":{"message":"slow down"}}`},
			code: runerror.ModelRateLimited, retryable: true, after: 7 * time.Second},
		"broken":        {service: service{status: 502, answer: `oops`}, code: runerror.ModelUnavailable, retryable: true},
		"key":           {service: service{status: 401, answer: `{"error":{"message":"bad key"}}`}, code: runerror.ModelUnauthorized},
		"key, repeated": {service: service{status: 401, answer: `{"error":{"message":"incorrect API key sk-test, see https://x.example/?key=sk-test"}}`}, code: runerror.ModelUnauthorized},
		"request":       {service: service{status: 400, answer: `{"error":{"message":"no such model"}}`}, code: runerror.ModelRequestRejected},
		"redirect":      {service: service{status: 302, header: http.Header{"Location": {"/elsewhere"}}}, code: runerror.ModelRequestRejected},
		"not JSON":      {service: service{status: 200, answer: `{"choices":`}, code: runerror.ModelAnswerInvalid, retryable: true},
		"no choice":     {service: service{status: 200, answer: `{"choices":[]}`}, code: runerror.ModelAnswerInvalid, retryable: true},
		"empty":         {service: service{status: 200, answer: `{"choices":[{"message":{"content":""}}]}`}, code: runerror.ModelAnswerInvalid, retryable: true},
		"filtered":      {service: service{status: 200, answer: `{"choices":[{"finish_reason":"content_filter","message":{"content":""}}]}`}, code: runerror.ModelRequestRejected},
		"not UTF-8":     {service: service{status: 200, answer: "{\"choices\":[{\"message\":{\"content\":\"caf\xe9\"}}]}"}, code: runerror.ModelAnswerInvalid, retryable: true},
		"name of a tool": {service: service{status: 200, answer: `{"choices":[{"message":{"tool_calls":[{"id":"a","type":"function","function":{"name":{"a":1},"arguments":"{}"}}]}}]}`},
			code: runerror.ModelAnswerInvalid, retryable: true},
		"200 and 429": {service: service{status: 200, header: http.Header{"Retry-After": {"7"}}, answer: `{"error":{"message":"Rate limit exceeded: free-models-per-day","code":429}}`},
			code: runerror.ModelRateLimited, retryable: true, after: 7 * time.Second, says: "Rate limit exceeded: free-models-per-day"},
		"200 and a status":  {service: service{status: 200, answer: `{"error":{"message":"Quota","code":"quota","status":"429"}}`}, code: runerror.ModelRateLimited, retryable: true, says: "429: Quota"},
		"200 and 402":       {service: service{status: 200, answer: `{"error":{"message":"Insufficient credits","code":402},"choices":null}`}, code: runerror.ModelRequestRejected, says: "402: Insufficient credits"},
		"200 and an object": {service: service{status: 200, answer: `{"object":"error","message":"The model does not exist","type":"NotFoundError","code":404}`}, code: runerror.ModelRequestRejected, says: "404: The model does not exist"},
		"200 and a text":    {service: service{status: 200, answer: `{"error":"quota exceeded for org with sk-test"}`}, code: runerror.ModelUnavailable, retryable: true, says: "quota exceeded for org"},
		"200 and no words":  {service: service{status: 200, answer: `{"error":{"type":"overloaded"}}`}, code: runerror.ModelUnavailable, retryable: true, says: `"overloaded"`},
		"too large":         {service: service{status: 200, answer: `{"choices":[{"message":{"content":"` + string(make([]byte, 2<<10)) + `"}}]}`}, code: runerror.ModelAnswerInvalid},
		"forbidden": {service: service{status: 200}, allowed: "git=127.0.0.0/8", code: runerror.ModelAddressForbidden,
			says: "the address of the model service is not allowed; the platform operator can open it for the egress purpose model"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.allowed == "" {
				tt.allowed = loopback
			}
			_, err := ask(t.Context(), openAI(t, &tt.service, tt.allowed), user("hi"))
			failure, ok := model.AsError(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, tt.code, failure.Code, failure.Message)
			require.Equal(t, tt.retryable, failure.Retryable)
			require.Equal(t, tt.after, failure.RetryAfter)
			require.Contains(t, failure.Message, tt.says)
			require.NotContains(t, failure.Error(), "sk-test")
			require.True(t, strings.HasPrefix(string(failure.Code), runerror.ModelPrefix))
		})
	}
}

// An answer has the reason for its end, whatever word the service has for it.
func TestOpenAI_FinishReason(t *testing.T) {
	t.Parallel()
	const text = `"message":{"role":"assistant","content":"Hi"}`
	const calls = `"message":{"tool_calls":[{"id":"a","type":"function","function":{"name":"look","arguments":"{}"}}]}`
	for _, row := range []struct {
		name, choice string
		want         model.FinishReason
	}{
		{"stop", `"finish_reason":"stop",` + text, model.FinishStop},
		{"missing", text, model.FinishStop},
		{"tool calls", `"finish_reason":"tool_calls",` + calls, model.FinishToolCalls},
		{"stop with calls", `"finish_reason":"stop",` + calls, model.FinishToolCalls},
		{"length", `"finish_reason":"length",` + text, model.FinishLength},
		{"length with calls", `"finish_reason":"length",` + calls, model.FinishLength},
		{"content filter", `"finish_reason":"content_filter",` + text, model.FinishContentFilter},
		{"own word", `"finish_reason":"eos",` + text, model.FinishOther},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := &service{status: 200, answer: `{"choices":[{` + row.choice + `}]}`}
			answer, err := ask(t.Context(), openAI(t, s, loopback), user("hi"))
			require.NoError(t, err)
			require.Equal(t, row.want, answer.FinishReason)
		})
	}
}

// Journals of earlier releases have other words.
func TestFinishReason_ReadsEarlierWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]model.FinishReason{
		"STOP": model.FinishStop, "MAX_TOKENS": model.FinishLength, "SAFETY": model.FinishContentFilter, "length": model.FinishLength, "": "",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var got model.FinishReason
			require.NoError(t, json.Unmarshal([]byte(`"`+text+`"`), &got))
			require.Equal(t, want, got)
		})
	}
}
