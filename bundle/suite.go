// SPDX-License-Identifier: Apache-2.0

package bundle

import "slices"

// Defaults of test cases.
const (
	DefaultTestRuns       = 1
	DefaultTestThreshold  = 1
	DefaultTestTimeoutSec = 60
)

// Suite is a file of tests/: cases of one agent. See docs/spec/tests.md.
type Suite struct {
	Agent string  `yaml:"agent" required:"true" doc:"Name of the agent that the cases are of."`
	Mocks Mocks   `yaml:"mocks" doc:"What answers in place of models and tools in all cases; those of a case come before them."`
	Cases []*Case `yaml:"cases" required:"true" doc:"What the agent is asked, and what is expected of it."`

	source *node
}

// Case is an input of an agent and what is expected of its runs.
type Case struct {
	Name    string      `yaml:"name" required:"true" form:"name" doc:"Name of the case, unique among those of the agent: at most 63 lower-case letters, digits and inner dashes."`
	Payload any         `yaml:"payload" doc:"What the agent is asked: any value, as the JSON body of a webhook."`
	Files   []string    `yaml:"files" doc:"Attachments, by their paths below tests/, such as files/invoice.pdf."`
	Context CaseContext `yaml:"context" doc:"What a run knows of its event beside the input."`
	// Runs and SuccessThreshold go together: see enough in runner/suite.
	Runs             int     `yaml:"runs" min:"1" max:"100" doc:"How often the case is run."`
	SuccessThreshold float64 `yaml:"success_threshold" min:"0.01" max:"1" doc:"Which share of the runs must be as expected."`
	TimeoutSeconds   int     `yaml:"timeout_s" min:"1" max:"900" doc:"How long one run may take, in seconds, beside the agent's own timeout."`
	Mocks            Mocks   `yaml:"mocks" doc:"What answers in place of models and tools."`
	// ExpectedResult is "" where a run must complete.
	ExpectedResult      string         `yaml:"expected_result" doc:"CEL expression over output, status, error and context that must be true; without it the run must complete."`
	ExpectedToolCalls   []ExpectedCall `yaml:"expected_tool_calls" doc:"Calls that a run must make, in any order."`
	ExpectedNoToolCalls []string       `yaml:"expected_no_tool_calls" doc:"Tools that a run must not call."`
	// ApprovalDecisions are refused by the engine as long as it has no approvals.
	ApprovalDecisions any `yaml:"approval_decisions" doc:"What people say when the agent asks them."`

	source *node
}

// CaseContext is what a run knows of its event beside the input.
type CaseContext struct {
	// Headers are by names in any case of letters.
	Headers map[string]string `yaml:"headers" doc:"Headers of the event, by their names."`
}

// Mocks answer in place of models and tools.
type Mocks struct {
	Models map[string]ModelMock `yaml:"models" doc:"Models, by the names that agents give them: scripted/<file> of models/, or a script written in place."`
	Tools  map[string]ToolMock  `yaml:"tools" doc:"Tools, by their names, each with a result or an error."`
}

// ModelMock is a script that answers in place of a model: Reference names one of the
// folder models/, or Script is written in place.
type ModelMock struct {
	Reference string
	Script    *Script
}

// ToolMock is what a tool answers: a result or an error.
type ToolMock struct {
	Result map[string]any `yaml:"result" doc:"What the tool answers, as keys and values."`
	Error  string         `yaml:"error" doc:"The error that the tool answers in place of a result."`
}

// ExpectedCall is a call of a tool that a run must make.
type ExpectedCall struct {
	Tool      string         `yaml:"tool" required:"true" doc:"Name of the tool."`
	Arguments map[string]any `yaml:"arguments" doc:"Arguments that the call must have, beside any others; of maps inside them a part is enough."`
	// Times is 0 for at least one.
	Times int `yaml:"times" min:"1" max:"1000" without:"at least one" doc:"How many such calls there must be, exactly."`
}

// newCase has the defaults that written keys replace.
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
		d.mismatch(n, path, "a script, scripted/<file>, or its steps")
	}
}

// Has says whether a key is written, and not null.
func (c *Case) Has(key string) bool { return c.source.has(key) }

// At is where a key of the case is written, or one inside it: as far down as it is written.
func (c *Case) At(keys ...string) Position {
	at, within := c.source.pos, c.source
	for _, key := range keys {
		e := within.get(key)
		if e == nil {
			break
		}
		at, within = e.pos, e.value
	}
	return at
}

// TestFile is the path in the repository of an attachment, which cases name below tests/.
func TestFile(name string) string { return "tests/" + name }

// Steps are an agent and the agents that it runs, each once.
func (p *Project) Steps(agent string) (out []*Agent) {
	queue := []string{agent}
	for len(queue) > 0 {
		a := p.byName[queue[0]]
		queue = queue[1:]
		if a != nil && !slices.Contains(out, a) {
			out = append(out, a)
			queue = append(queue, a.Agents...)
		}
	}
	return out
}
