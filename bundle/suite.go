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
	// Agent is the name of the agent that is tested.
	Agent string `yaml:"agent"`
	// Mocks are of all cases; those of a case come before them.
	Mocks Mocks   `yaml:"mocks"`
	Cases []*Case `yaml:"cases"`

	source *node
}

// Case is an input of an agent and what is expected of its runs.
type Case struct {
	// Name is unique among the cases of an agent.
	Name string `yaml:"name"`
	// Payload is what the agent is asked, any JSON value.
	Payload any `yaml:"payload"`
	// Files are the attachments, by their paths below tests/.
	Files   []string    `yaml:"files"`
	Context CaseContext `yaml:"context"`
	// Runs is how often the case is run, SuccessThreshold the share of the runs
	// that must be as expected.
	Runs             int     `yaml:"runs" min:"1" max:"100"`
	SuccessThreshold float64 `yaml:"success_threshold" min:"0.01" max:"1"`
	// TimeoutSeconds is of one run.
	TimeoutSeconds int   `yaml:"timeout_s" min:"1" max:"900"`
	Mocks          Mocks `yaml:"mocks"`
	// ExpectedResult is a CEL expression on how a run ended; "" expects that it
	// completed.
	ExpectedResult      string         `yaml:"expected_result"`
	ExpectedToolCalls   []ExpectedCall `yaml:"expected_tool_calls"`
	ExpectedNoToolCalls []string       `yaml:"expected_no_tool_calls"`
	// ApprovalDecisions are what people say when the agent asks them; the engine
	// refuses them as long as it has no approvals.
	ApprovalDecisions any `yaml:"approval_decisions"`

	source *node
}

// CaseContext is what a run knows of its event beside the input.
type CaseContext struct {
	// Headers are those of the event, by names in any case of letters.
	Headers map[string]string `yaml:"headers"`
}

// Mocks answer in place of models and tools.
type Mocks struct {
	// Models are by reference, provider/model, as the agents name them.
	Models map[string]ModelMock `yaml:"models"`
	Tools  map[string]ToolMock  `yaml:"tools"`
}

// ModelMock is a script that answers in place of a model: Reference names one of the
// folder models/, or Script is written in place.
type ModelMock struct {
	Reference string
	Script    *Script
}

// ToolMock is what a tool answers: a result or an error.
type ToolMock struct {
	Result map[string]any `yaml:"result"`
	Error  string         `yaml:"error"`
}

// ExpectedCall is a call of a tool that a run must make.
type ExpectedCall struct {
	Tool string `yaml:"tool"`
	// Arguments must be among those of the call; of maps inside them also a part is
	// enough.
	Arguments map[string]any `yaml:"arguments"`
	// Times is how many such calls there must be; 0 for at least one.
	Times int `yaml:"times" min:"1" max:"1000" without:"at least one"`
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
