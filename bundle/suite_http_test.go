// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

func TestParse_ReportsProblemsOfHTTPMocks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ tools, mock, want string }{
		"valid":       {"[t.x]", "{request: 'GET https://a.example/x?a=b', status: 404}", ""},
		"no path":     {"[t.x]", "{request: GET x}", `tests/s.yaml:3:41: "request" must be a method and a path or URL, such as GET /orders/4711`},
		"method":      {"[t.x]", "{request: TRACE /x}", `"request" must be a method and a path or URL`},
		"two slashes": {"[t.x]", "{request: GET //x}", `"request" has a path that begins with //`},
		"two bodies":  {"[t.x]", "{request: GET /x, json: {}, text: a}", `a mock has either "json" or "text"; remove one`},
		"status":      {"[t.x]", "{request: GET /x, status: 100}", `"cases[0].mocks.http[0].status" must be between 200 and 599`},
		"no request":  {"[t.x]", "{status: 200}", `missing key "cases[0].mocks.http[0].request"`},
		"no tool":     {"[]", "{request: GET /x}", `agent "a" has no tool and no script that sends HTTP requests; remove the mock`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bundle.Parse(toolRepository(c.tools, "tools/t.yaml", toolFile("", ""),
				"tests/s.yaml", "agent: a\ncases:\n- {name: a, payload: x, mocks: {http: ["+c.mock+"]}}\n"))
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Middleware and hooks send requests too, so that tests mock them.
func TestParse_MocksRequestsOfScriptsAround(t *testing.T) {
	t.Parallel()
	suite := "agent: a\ncases:\n- {name: a, payload: x, mocks: {http: [{request: GET /x}]}}\n"
	for file, text := range map[string]string{
		"middleware/a.star": "def before(content, context):\n    http.get(\"https://a.example/x\")\n    return content\n",
		"hooks/a.star":      "def before(tool, params, context):\n    http.get(\"https://a.example/x\")\n",
	} {
		t.Run(file, func(t *testing.T) {
			_, err := bundle.Parse(toolRepository("[]", "tools/t.yaml", toolFile("", ""), file, text, "tests/s.yaml", suite))
			require.NoError(t, err)
			_, err = bundle.Parse(toolRepository("[]", "tools/t.yaml", toolFile("", ""), file, "def before(*, context):\n    pass\n", "tests/s.yaml", suite))
			require.ErrorContains(t, err, "has no tool and no script that sends HTTP requests")
		})
	}
}

// Tests name tools by their references, also if the agent has a wildcard.
func TestParse_TestsNameHTTPTools(t *testing.T) {
	t.Parallel()
	suite := "agent: a\ncases:\n- {name: a, payload: x, mocks: {tools: {t.x: {error: no}}}, expected_tool_calls: [{tool: t.x}], expected_no_tool_calls: [t.y]}\n"
	_, err := bundle.Parse(toolRepository("['t.*']", "tools/t.yaml", toolFile("", ""), "tests/s.yaml", suite))
	require.EqualError(t, err, `tests/s.yaml:3:97: agent "a" has no tool "t.y"; its tools: t.x`)
}
