// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"regexp"
	"strings"

	"github.com/agentplatform/agentplatform/internal/pattern"
)

// Script holds the answers of a scripted model: the first step that fits the turn and the conversation. See
// docs/spec/scripted-model.md.
type Script struct {
	Steps []Step `yaml:"steps" required:"true" example:"[{text: Hello}]" doc:"Answers. The model gives the first one that fits the turn and the conversation."`

	// SourcePath is the file.
	SourcePath string
}

// Step is one answer of a scripted model.
type Step struct {
	// Turn is 0 if the step fits every turn.
	Turn int `yaml:"turn" min:"1" without:"every turn" example:"1" doc:"Number of the answer to the agent, counted from 1."`
	// Match is nil if the step fits every conversation.
	Match     *Pattern   `yaml:"match" example:"hello" doc:"Regular expression (RE2) that must match in the conversation."`
	Text      string     `yaml:"text" example:"Hello" doc:"The answer. ${1} and ${name} stand for groups of match, ${0} for the whole match, $$ for a dollar sign."`
	ToolCalls []ToolCall `yaml:"tool_calls" doc:"Tools to call. Text in arguments is expanded like the answer. An argument that is only ${name:json} is the JSON value of the group."`
	// FinishReason is "" for the reason that fits the answer.
	FinishReason string     `yaml:"finish_reason" enum:"stop,length,content_filter,tool_calls" without:"'tool_calls' with 'tool_calls', else 'stop'" example:"length" doc:"Why the answer ends: 'length' is an answer that a limit of tokens cut off."`
	Delay        Duration   `yaml:"delay" example:"0.1" doc:"Delay before the answer."`
	Error        *StepError `yaml:"error" doc:"Error of the provider, in place of an answer."`
	// Tokens is nil if the words of the answer are counted.
	Tokens *Tokens `yaml:"tokens" doc:"Usage to report. Without it the model counts words."`
}

// ToolCall asks for a tool.
type ToolCall struct {
	Name      string         `yaml:"name" required:"true" example:"current_time" doc:"Name of the tool."`
	Arguments map[string]any `yaml:"arguments" example:"{timezone: UTC}" doc:"Arguments of the call."`
}

// StepError makes a request fail as it would fail at a provider.
type StepError struct {
	Status  int    `yaml:"status" required:"true" min:"400" max:"599" example:"503" doc:"HTTP status. The agent retries after 408, 409, 429 and 5xx."`
	Message string `yaml:"message" example:"overloaded" doc:"Message of the provider."`
	// Times is 0 for all.
	Times int `yaml:"times" min:"0" example:"1" doc:"Number of attempts that fail before the step answers. 0 means all."`
}

// Tokens are a model's usage of one answer.
type Tokens struct {
	Input       int64 `yaml:"input" min:"0" example:"4" doc:"Tokens of the request."`
	Output      int64 `yaml:"output" min:"0" example:"3" doc:"Tokens of the answer."`
	Thinking    int64 `yaml:"thinking" min:"0" example:"2" doc:"Tokens of the model's reasoning."`
	CachedInput int64 `yaml:"cached_input" min:"0" example:"1" doc:"Tokens of the request that the provider read from its cache."`
}

// Pattern is a regular expression in RE2's syntax.
type Pattern struct{ *regexp.Regexp }

func (m *Pattern) unmarshalNode(d *decoder, n *node, path string) {
	text, ok := n.scalar.(string)
	if !ok {
		d.reportMismatch(n, path, "a regular expression in quotes")
		return
	}
	compiled, size, err := pattern.Compile(text)
	if err != nil {
		d.report(n.pos, "%q is not a valid regular expression (RE2): %v", path, err)
		return
	}
	if d.countPatterns(n, size, path) {
		m.Regexp = compiled
	}
}

// countPatterns adds the instructions of regular expressions. It reports the problem of too many.
func (d *decoder) countPatterns(n *node, size int, path string) bool {
	if *d.patterns += size; *d.patterns > maxPatterns {
		d.report(n.pos, "%q: the regular expressions of the repository have more than %d instructions together", path, maxPatterns)
		return false
	}
	return true
}

func (p *repoParser) parseScript(file string) {
	source := p.parseYAMLFile(file)
	if source == nil {
		return
	}
	name := strings.TrimSuffix(strings.TrimPrefix(file, "models/"), ".yaml")
	s := &Script{SourcePath: file}
	p.decoder().decode(source, s, "")
	p.project.Scripts[name] = s
	steps := source.findNode("steps")
	for i, step := range s.Steps {
		p.checkStep(steps.items[i], step)
	}
}

func (p *repoParser) checkStep(source *node, s Step) {
	if s.Text == "" && len(s.ToolCalls) == 0 && s.Error == nil {
		p.problems.add(source.pos, `a step needs "text", "tool_calls" or "error"`)
	}
}
