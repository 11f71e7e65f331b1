// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Defaults of test cases.
const (
	DefaultTestRuns       = 1
	DefaultTestThreshold  = 1
	DefaultTestTimeoutSec = 60
)

// Suite is a file of tests/ with test cases of one agent. See docs/spec/tests.md.
type Suite struct {
	Agent string  `yaml:"agent" required:"true" example:"support" doc:"Name of the agent under test."`
	Mocks Mocks   `yaml:"mocks" doc:"Mocks of models and tools in all cases. Mocks of a case take precedence."`
	Cases []*Case `yaml:"cases" required:"true" example:"[{name: greeting, payload: Hello}]" doc:"Inputs of the agent, each with the expected result."`

	source *node
}

// Case is an input of an agent and the expected result of its runs.
type Case struct {
	Name    string      `yaml:"name" required:"true" form:"name" example:"greeting" doc:"Name of the case, unique among the cases of the agent: at most 63 lower-case letters, digits and inner dashes."`
	Payload any         `yaml:"payload" example:"{question: Hello}" doc:"Input of the agent: any value, like the JSON body of a webhook."`
	Files   []string    `yaml:"files" example:"[files/invoice.txt]" doc:"Attachments, by their paths below tests/, such as files/invoice.pdf."`
	Context CaseContext `yaml:"context" doc:"Facts about the event that a run knows beside its input."`
	// Runs and SuccessThreshold go together: see enough in runner/suite.
	Runs             int     `yaml:"runs" min:"1" max:"100" example:"2" doc:"Number of runs of the case."`
	SuccessThreshold float64 `yaml:"success_threshold" min:"0.01" max:"1" example:"0.5" doc:"Share of the runs that must have the expected result."`
	TimeoutSeconds   int     `yaml:"timeout_s" min:"1" max:"900" example:"30" doc:"Time limit of one run in seconds, beside the agent's own timeout."`
	Mocks            Mocks   `yaml:"mocks" doc:"Mocks of models and tools."`
	// ExpectedResult is "" if a run only has to complete.
	ExpectedResult      string         `yaml:"expected_result" example:"output != ''" doc:"CEL expression over output, status, error and context that must be true. Without it the run must complete."`
	ExpectedToolCalls   []ExpectedCall `yaml:"expected_tool_calls" doc:"Calls that a run must make, in any order."`
	ExpectedNoToolCalls []string       `yaml:"expected_no_tool_calls" example:"[current_time]" doc:"Tools that a run must not call."`
	ApprovalDecisions   any            `yaml:"approval_decisions" unsupported:"true" example:"[approve]" doc:"Decisions of the people whom the agent asks."`

	source *node
}

// CaseContext holds the facts about an event that a run knows beside its input.
type CaseContext struct {
	// Headers are by names in any case of letters.
	Headers map[string]string `yaml:"headers" example:"{x-event: push}" doc:"Headers of the event, by their names."`
}

// Mocks answer in place of models and tools.
type Mocks struct {
	Models map[string]ModelMock `yaml:"models" example:"{openai/gpt-5: scripted/spare}" doc:"Models, by the names that agents use: scripted/<file> of models/, or a script in place."`
	Tools  map[string]ToolMock  `yaml:"tools" example:"{current_time: {result: {time: noon}}, look: {error: broken}}" doc:"Tools, by their names, each with a result or an error."`
	HTTP   []HTTPMock           `yaml:"http" doc:"HTTP requests of tools. The first mock that fits a request answers it, and a request without a mock fails the case: no test sends a request to a service."`
	MCP    []MCPMock            `yaml:"mcp" doc:"Calls of tools of MCP servers. The first mock that fits a call answers it, and a call without a mock fails the case: no test connects to a server."`
}

// ModelMock is a script that answers in place of a model: Reference names one in models/, or Script holds one.
type ModelMock struct {
	Reference string
	Script    *Script
}

// ToolMock is the answer of a tool: a result or an error.
type ToolMock struct {
	Result map[string]any `yaml:"result" example:"{time: noon}" doc:"Result of the tool, as keys and values."`
	Error  string         `yaml:"error" example:"broken" doc:"Error of the tool, in place of a result."`
}

// MCPMock answers calls of a tool of an MCP server.
type MCPMock struct {
	Server    string         `yaml:"server" required:"true" example:"shop" doc:"Name of the server."`
	Tool      string         `yaml:"tool" required:"true" example:"get_customer" doc:"Name of the tool at the server, without the 'prefix'."`
	Arguments map[string]any `yaml:"arguments" example:"{id: 7}" without:"any arguments" doc:"Arguments that the call must have, beside any others. A part of a map is enough."`
	Result    map[string]any `yaml:"result" example:"{name: Ada}" doc:"Result of the tool, as keys and values."`
	Error     string         `yaml:"error" doc:"Error of the tool, in place of a result."`
}

// ExpectedCall is a call of a tool that a run must make.
type ExpectedCall struct {
	Tool      string         `yaml:"tool" required:"true" example:"current_time" doc:"Name of the tool."`
	Arguments map[string]any `yaml:"arguments" example:"{timezone: UTC}" doc:"Arguments that the call must have, beside any others. A part of a map is enough."`
	// Times is 0 for at least one.
	Times int `yaml:"times" min:"1" max:"1000" without:"at least one" example:"1" doc:"Exact number of such calls."`
}

// newCase returns a case with the defaults of all keys.
func newCase() Case {
	return Case{Runs: DefaultTestRuns, SuccessThreshold: DefaultTestThreshold, TimeoutSeconds: DefaultTestTimeoutSec}
}

func (c *Case) unmarshalNode(d *decoder, n *node, path string) {
	type plain Case
	*c = newCase()
	c.source = n
	d.decode(n, (*plain)(c), path)
}

func (m *ModelMock) unmarshalNode(d *decoder, n *node, path string) {
	switch reference, isText := n.scalar.(string); {
	case isText:
		m.Reference = reference
	case n.kind == kindMap:
		m.Script = &Script{SourcePath: n.pos.File}
		d.decode(n, m.Script, path)
	default:
		d.reportMismatch(n, path, "a script, scripted/<file>, or its steps")
	}
}

// Has reports whether a key is written and not null.
func (c *Case) Has(key string) bool { return c.source.hasValue(key) }

// At returns the position of a key of the case, or of a key inside it. For a missing key it is the position of the deepest
// written key above it.
func (c *Case) At(keys ...string) Position {
	at, within := c.source.pos, c.source
	for _, key := range keys {
		e := within.findEntry(key)
		if e == nil {
			break
		}
		at, within = e.pos, e.value
	}
	return at
}

// TestFile returns the path of an attachment in the repository. Cases name attachments by their paths below tests/.
func TestFile(name string) string { return "tests/" + name }

// Steps returns an agent and the agents that it runs, each once.
func (p *Project) Steps(agent string) (out []*Agent) {
	queue := []string{agent}
	for len(queue) > 0 {
		a := p.byName[queue[0]]
		queue = queue[1:]
		if a != nil && !slices.Contains(out, a) {
			out = append(out, a)
			queue = append(queue, a.subagents()...)
		}
	}
	return out
}

// HTTPMock answers HTTP requests in a test.
type HTTPMock struct {
	Request string `yaml:"request" required:"true" example:"GET /orders/4711" doc:"Method and path of the requests, or method and URL. A path also fits a longer path that ends with it. With a query the parameters must be equal, without one they may be any."`
	// Status is 0 for 200.
	Status  int               `yaml:"status" min:"200" max:"599" without:"200" example:"404" doc:"Status of the response."`
	JSON    any               `yaml:"json" example:"{state: sent}" doc:"JSON body of the response."`
	Text    string            `yaml:"text" doc:"Body of the response, in place of 'json'."`
	Headers map[string]string `yaml:"headers" example:"{X-Total: '2'}" doc:"Headers of the response."`
}

// mockedRequest is the form of HTTPMock.Request: a method and a path or URL.
var mockedRequest = regexp.MustCompile(`^([A-Z]+) +((?:/|https?://)\S*)$`)

// ParseMockedRequest returns the method of an HTTPMock.Request and its path or URL. The host of the URL is "" for a path.
// The method is "" if the text is invalid, which a build rejects.
func ParseMockedRequest(text string) (method string, target *url.URL) {
	parts := mockedRequest.FindStringSubmatch(text)
	if parts == nil {
		return "", &url.URL{}
	}
	target, err := url.Parse(parts[2])
	if err != nil {
		return "", &url.URL{}
	}
	return parts[1], target
}

// linkHTTPMocks checks the mocks of HTTP requests, and that the agent can send requests.
func (p *repoParser) linkHTTPMocks(source *node, mocks Mocks, agent string, known reachable) {
	for i := range mocks.HTTP {
		n := source.findNode("mocks", "http").items[i]
		at, m := n.pos, &mocks.HTTP[i]
		switch method, target := ParseMockedRequest(m.Request); {
		case m.Request == "": // Reported as missing.
		case !slices.Contains(methods, method):
			p.problems.add(at, `"request" must be a method and a path or URL, such as GET /orders/4711; the methods are %s`, strings.Join(methods, ", "))
		case target.Host != "" && target.Scheme == "":
			p.problems.add(at, `"request" has a path that begins with //`)
		case n.isWritten("json") && n.isWritten("text"):
			p.problems.add(at, `a mock has either "json" or "text"; remove one`)
		case !known.sendsHTTP:
			p.problems.add(at, "agent %q has no tool and no script that sends HTTP requests; remove the mock", agent)
		}
	}
}
