// SPDX-License-Identifier: Apache-2.0

package localrun_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/internal/testenv/scripttest"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/localrun"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/script"
	"github.com/agentplatform/agentplatform/runner/suite"
)

func TestMain(m *testing.M) { scripttest.Main(m) }

// answering are models that answer by a function.
type answering func(system string, req *model.Request) (string, error)

// Resolve implements engine.Models.
func (a answering) Resolve(reference string, _ *bundle.Project, _ model.Settings) (model.Model, error) {
	return &answerer{reference, a}, nil
}

type answerer struct {
	name   string
	answer answering
}

func (a *answerer) Name() string { return a.name }

func (a *answerer) Server() *runtrace.Server { return nil }

func (a *answerer) Generate(_ context.Context, req *model.Request) (*model.Answer, error) {
	text, err := a.answer(req.Instructions, req)
	if err != nil {
		return nil, err
	}
	return &model.Answer{
		Content: model.TextContent(model.RoleModel, text), FinishReason: model.FinishStop,
		Usage: &dispatchapi.TokenUsage{InputTokens: 4, OutputTokens: 2, TotalTokens: 6},
	}, nil
}

// project returns a repository.
func project(t *testing.T, pairs ...string) (bundle.Files, *bundle.Project) {
	t.Helper()
	files := bundle.Files{}
	for i := 0; i < len(pairs); i += 2 {
		files[pairs[i]] = []byte(pairs[i+1])
	}
	parsed, err := bundle.Parse(files)
	require.NoError(t, err)
	return files, parsed
}

// pair are two agents in sequence with the same model.
var pair = []string{
	"agents/pair.yaml", "name: pair\ntype: sequential\nagents: [first, second]\n",
	"agents/first.yaml", "name: first\nmodel: openai/gpt-5\nsystem_prompt: first\nretry_options: {attempts: 2, initial_delay: 0}\n",
	"agents/second.yaml", "name: second\nmodel: openai/gpt-5\nsystem_prompt: second\n",
}

// The answers of several agents with one model are recorded so that each agent gets its own. A request that was repeated has
// the answer of its last attempt.
func TestTestCase_TellsAgentsApart(t *testing.T) {
	t.Parallel()
	files, p := project(t, pair...)
	failures := 0
	result, err := localrun.Run(t.Context(), localrun.Options{
		Project: p, Agent: "pair", Payload: []byte(`{"a": 1.50}`), HTTP: &http.Client{}, Headers: map[string]string{"X-Event": "push"},
		Prices: runnerconfig.Prices{Prices: map[string]runnerconfig.Price{"openai/gpt-5": {Currency: "USD", Input: 1_000_000, Output: 2_000_000}}},
		Models: answering(func(system string, _ *model.Request) (string, error) {
			if failures++; failures == 1 {
				return "", &model.Error{Code: runerror.ModelUnavailable, Message: "the model answered 503: busy", Retryable: true}
			}
			return "${answer} of " + system, nil
		}),
	})
	require.NoError(t, err)
	require.Equal(t, engine.Completed, result.Status, result.Error)
	require.Equal(t, "${answer} of second", result.Output)
	require.Equal(t, []dispatchapi.Cost{{Currency: "USD", Nanos: 2 * 8000}}, result.Costs)

	text, notes, err := result.TestCase("both", nil)
	require.NoError(t, err)
	require.Empty(t, notes)
	require.Contains(t, string(text), "text: $${answer} of first\n")
	require.Contains(t, string(text), "a: 1.50\n")
	require.NotContains(t, string(text), "busy")
	require.EqualValues(t, 12, requirePasses(t, files, text).Usage.TotalTokens)
}

// roundTrip answers all requests.
type roundTrip func(req *http.Request) *http.Response

func (r roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return r(req), nil }

// A tool that an agent calls without a model is recorded with its reference and its request.
func TestTestCase_RecordsToolAgents(t *testing.T) {
	t.Parallel()
	files, p := project(t, "agents/a.yaml", "name: a\ntype: tool\ntool_name: orders.look\n",
		"tools/orders.yaml", "base_url: https://shop.example\ntools:\n  look: {description: Looks, parameters: {id: {type: integer}}, request: 'GET /orders/{id}'}\n")
	result, err := localrun.Run(t.Context(), localrun.Options{
		Project: p, Agent: "a", Payload: []byte(`{"id": 12345678901234567890}`),
		HTTP: &http.Client{Transport: roundTrip(func(req *http.Request) *http.Response {
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
				Body: io.NopCloser(strings.NewReader(`{"total": 1.50}`)),
			}
		})},
	})
	require.NoError(t, err)
	require.Equal(t, engine.Completed, result.Status, result.Error)
	text, notes, err := result.TestCase("tool", nil)
	require.NoError(t, err)
	require.Empty(t, notes)
	require.Contains(t, string(text), "request: GET https://shop.example/orders/12345678901234567890\n")
	require.Contains(t, string(text), "tool: orders.look\n")
	requirePasses(t, files, text)
}

// The model finds a tool, so that the case names a discoverable tool by its reference. A script may read any header of a response.
func TestTestCase_RecordsDiscoveredTools(t *testing.T) {
	t.Parallel()
	files, p := project(t, "agents/a.yaml", "name: a\nmodel: scripted/a\ndiscoverable_tools: [orders.look]\n",
		"models/a.yaml", "steps:\n  - {turn: 1, tool_calls: [{name: use_tool, arguments: {name: orders_look, arguments: {id: 3}}}]}\n  - {text: found}\n",
		"hooks/a.star", "def after(tool, params, result, context):\n    return {\"total\": result[\"headers\"][\"x-total\"]} if \"headers\" in result else None\n",
		"tools/orders.yaml", "base_url: https://shop.example\ntools:\n  look: {description: Looks, parameters: {id: {type: integer}}, request: 'GET /orders/{id}'}\n")
	pool, err := script.NewPool(script.Options{})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	result, err := localrun.Run(t.Context(), localrun.Options{
		Project: p, Agent: "a", Models: &model.Registry{}, Payload: []byte(`{}`), Scripts: pool,
		HTTP: &http.Client{Transport: roundTrip(func(req *http.Request) *http.Response {
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}, "X-Total": {"7"}}, Request: req,
				Body: io.NopCloser(strings.NewReader(`{"total": 7}`)),
			}
		})},
	})
	require.NoError(t, err)
	require.Equal(t, engine.Completed, result.Status, result.Error)
	text, _, err := result.TestCase("found", nil)
	require.NoError(t, err)
	require.Contains(t, string(text), "tool: orders.look\n")
	require.Contains(t, string(text), "X-Total: \"7\"\n")
	files["tests/recorded.yaml"] = text
	tested, err := bundle.Parse(files)
	require.NoError(t, err, string(text))
	require.Empty(t, suite.Check(tested))
}

// requirePasses tests the case of a file without any service.
func requirePasses(t *testing.T, files bundle.Files, text []byte) suite.Result {
	t.Helper()
	files["tests/recorded.yaml"] = text
	tested, err := bundle.Parse(files)
	require.NoError(t, err, string(text))
	require.Empty(t, suite.Check(tested))
	results, err := suite.Run(t.Context(), suite.Options{Project: tested, Models: &model.Registry{}})
	require.NoError(t, err)
	require.True(t, results[0].Passed, "%s\n%s", results[0].Explain(), text)
	return results[0]
}

// A failed run is recorded with the status of the error, and a long output with its beginning.
func TestTestCase_RecordsEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer answering
		want   string
	}{
		"failed": {func(string, *model.Request) (string, error) {
			return "", &model.Error{Code: runerror.ModelRequestRejected, Message: "the model answered 422: no"}
		}, `expected_result: status == "failed"`},
		"long": {func(string, *model.Request) (string, error) { return strings.Repeat("ü\"", 3000), nil }, `expected_result: output.startsWith("ü\"ü\"`},
	} {
		t.Run(name, func(t *testing.T) {
			files, p := project(t, "agents/a.yaml", "name: a\nmodel: openai/gpt-5\n")
			result, err := localrun.Run(t.Context(), localrun.Options{Project: p, Agent: "a", Payload: []byte(`"x"`), HTTP: &http.Client{}, Models: c.answer})
			require.NoError(t, err)
			text, _, err := result.TestCase("end", nil)
			require.NoError(t, err)
			require.Contains(t, string(text), c.want)
			requirePasses(t, files, text)
		})
	}
}

// A secret in the input or in the answer of a model is in no step and in no case.
func TestTestCase_HidesSecrets(t *testing.T) {
	t.Parallel()
	_, p := project(t, "agents/a.yaml", "name: a\nmodel: openai/gpt-5\n")
	result, err := localrun.Run(t.Context(), localrun.Options{
		Project: p, Agent: "a", Payload: []byte(`{"key-123456": ["key-123456"], "n": 7771234567}`), HTTP: &http.Client{}, Secrets: []string{"key-123456", "7771234567"},
		Models: answering(func(string, *model.Request) (string, error) { return "a2V5LTEyMzQ1Ng== is key-123456", nil }),
	})
	require.NoError(t, err)
	text, _, err := result.TestCase("secret", nil)
	require.NoError(t, err)
	shown := string(text)
	for _, s := range result.Steps {
		shown += s.Text
	}
	require.Contains(t, shown, "[REDACTED]")
	require.NotContains(t, shown, "123456")
	require.NotContains(t, shown, "a2V5")
}
