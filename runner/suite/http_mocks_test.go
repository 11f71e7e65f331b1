// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/suite"
)

// shop has an agent with two HTTP tools, and a script that calls the first one.
var shop = []string{
	"agents/clerk.yaml", "name: clerk\nmodel: scripted/clerk\ntools: ['orders.*']\n",
	"models/clerk.yaml", "steps:\n- {turn: 1, tool_calls: [{name: orders_look, arguments: {id: 9007199254740993, q: a b}}]}\n" +
		"- {match: '(?s).*tool orders_look: (.*)', text: '${1}'}\n",
	"tools/orders.yaml", `base_url: ${SHOP_URL}/v1
headers: {Authorization: 'Bearer ${SHOP_TOKEN}'}
tools:
  look:
    description: An order
    parameters: {id: {type: integer}, q: {type: string}}
    request: GET /orders/{id}
    query: {q: '{q}', token: '${SHOP_TOKEN}'}
  drop: {description: Deletes all orders, request: DELETE /orders}
`,
}

// A mock answers the requests that its method, path and query fit.
func TestHTTPMocks_AnswerRequests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ mocks, output string }{
		"path":             {`[{request: GET /orders/9007199254740993, json: {id: 9007199254740993}}]`, `{"body":{"id":9007199254740993},"status":200}`},
		"whole path":       {`[{request: GET /v1/orders/9007199254740993, text: hello}]`, `{"body":"hello","status":200}`},
		"query":            {`[{request: 'GET /orders/9007199254740993?token=mock&q=a%20b', status: 202}]`, `{"body":null,"status":202}`},
		"URL":              {`[{request: 'GET https://shop.example/v1/orders/9007199254740993', json: [1]}]`, `{"body":[1],"status":200}`},
		"first of several": {`[{request: POST /orders, text: a}, {request: GET /other, text: b}, {request: GET /orders/9007199254740993, text: c}, {request: GET /orders/9007199254740993, text: d}]`, `{"body":"c","status":200}`},
		"status":           {`[{request: GET /orders/9007199254740993, status: 503, text: closed}]`, "the service responded with the status 503: closed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "agent: clerk\ncases:\n- {name: a, payload: x, mocks: {http: " + c.mocks + "}, expected_tool_calls: [{tool: orders.look, arguments: {id: 9007199254740993}, times: 1}], expected_no_tool_calls: [orders.drop]," +
				" expected_result: 'output.contains(context.want)'}\n"
			text = strings.ReplaceAll(text, "payload: x", "payload: {want: '"+c.output+"'}")
			results, err := suite.Run(t.Context(), suite.Options{
				Project: project(t, text, shop...), Models: &model.Registry{},
				Variables: func() (runnerconfig.Variables, error) {
					return runnerconfig.Sorted([]runnerconfig.Variable{{Name: "SHOP_URL", Value: "https://shop.example"}, {Name: "SHOP_TOKEN", Value: "t0p-secret", Sensitive: true}}), nil
				},
			})
			require.NoError(t, err)
			require.True(t, results[0].Passed, results[0].Explain())
		})
	}
}

// A request without a mock fails the case, also if the run is as expected. Variables are not needed, and the value of a
// sensitive one is not shown.
func TestHTTPMocks_FailOtherRequests(t *testing.T) {
	t.Parallel()
	for name, mocks := range map[string]string{
		"none":         "[]",
		"other method": "[{request: POST /orders/9007199254740993}]",
		"other path":   "[{request: GET /orders/900719925474099}]",
		"other query":  "[{request: 'GET /orders/9007199254740993?q=a'}]",
		"other host":   "[{request: 'GET https://other.example/v1/orders/9007199254740993'}]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "agent: clerk\nmocks: {http: " + mocks + "}\ncases:\n- {name: a, payload: x, runs: 2}\n"
			r := ran(t, text, shop...)
			require.False(t, r.Passed)
			require.Len(t, r.Findings, 1)
			require.Equal(t, "no mock answers GET /orders/9007199254740993?q=a+b&token=mock", r.Findings[0].Got)
			require.Equal(t, "tests/t.yaml:4:4", r.Findings[0].At.String())
		})
	}
}

// A mock of a tool takes precedence, by the reference of the tool.
func TestHTTPMocks_ToolMocksTakePrecedence(t *testing.T) {
	t.Parallel()
	r := ran(t, "agent: clerk\ncases:\n- {name: a, payload: x, mocks: {tools: {orders.look: {result: {id: 1}}}}, expected_result: 'output.contains(\"\\\"id\\\":1\")'}\n", shop...)
	require.True(t, r.Passed, r.Explain())
}
