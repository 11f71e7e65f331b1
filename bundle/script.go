// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"regexp"
	"strings"
)

// Script is what a scripted model answers: the first step that fits the turn
// and the conversation. See docs/spec/scripted-model.md.
type Script struct {
	Steps []Step `yaml:"steps"`

	// SourcePath is the file.
	SourcePath string
}

// Step is one answer of a scripted model.
type Step struct {
	// Turn counts the model's answers to one agent from 1; 0 fits every turn.
	Turn int `yaml:"turn" min:"1" without:"every turn"`
	// Match is a regular expression (RE2) on the conversation; nil fits all.
	Match *Pattern `yaml:"match"`
	// Text is the answer; ${name} and ${1} stand for groups of Match, ${0} for
	// all that it matched.
	Text string `yaml:"text"`
	// ToolCalls are the tools to call; text in arguments is expanded like Text.
	ToolCalls []ToolCall `yaml:"tool_calls"`
	// Delay is waited before the answer.
	Delay Duration `yaml:"delay"`
	// Error is given instead of an answer.
	Error *StepError `yaml:"error"`
	// Tokens are reported as used; counted as words when nil.
	Tokens *Tokens `yaml:"tokens"`
}

// ToolCall asks for a tool.
type ToolCall struct {
	Name      string         `yaml:"name"`
	Arguments map[string]any `yaml:"arguments"`
}

// StepError makes a request fail as a provider's would.
type StepError struct {
	// Status is the HTTP status; 408, 409, 429 and 5xx are tried again.
	Status  int    `yaml:"status" min:"400" max:"599"`
	Message string `yaml:"message"`
	// Times is how many attempts fail before the step answers; 0 means all.
	Times int `yaml:"times" min:"0"`
}

// Tokens are a model's usage of one answer.
type Tokens struct {
	Input       int64 `yaml:"input" min:"0"`
	Output      int64 `yaml:"output" min:"0"`
	Thinking    int64 `yaml:"thinking" min:"0"`
	CachedInput int64 `yaml:"cached_input" min:"0"`
}

// Pattern is a regular expression in RE2's syntax.
type Pattern struct{ *regexp.Regexp }

func (m *Pattern) unmarshalNode(d *decoder, n *node, path string) {
	text, ok := n.scalar.(string)
	if !ok {
		d.mismatch(n, path, "a regular expression in quotes")
		return
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		d.problems.add(n.pos, "%q is not a regular expression (RE2): %v", path, err)
		return
	}
	m.Regexp = compiled
}

func (p *parsing) script(file string) {
	source := parseYAML(file, p.files[file], &p.problems)
	if source == nil {
		return
	}
	name := strings.TrimSuffix(strings.TrimPrefix(file, "models/"), ".yaml")
	s := &Script{SourcePath: file}
	(&decoder{problems: &p.problems}).decode(source, s, "")
	p.project.Scripts[name] = s
	if len(s.Steps) == 0 {
		p.problems.add(source.pos, `a script needs "steps"`)
	}
	steps := source.path("steps")
	for i, step := range s.Steps {
		p.checkStep(steps.items[i], step)
	}
}

func (p *parsing) checkStep(source *node, s Step) {
	at := source.pos
	if s.Text == "" && len(s.ToolCalls) == 0 && s.Error == nil {
		p.problems.add(at, `a step needs "text", "tool_calls" or "error"`)
	}
	for _, call := range s.ToolCalls {
		if call.Name == "" {
			p.problems.add(at, `a tool call needs "name"`)
		}
	}
	if s.Error != nil && !source.written("error", "status") {
		p.problems.add(at, `"error" needs "status"`)
	}
}
