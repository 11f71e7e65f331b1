// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"regexp"
	"strings"

	"github.com/agentplatform/agentplatform/internal/pattern"
)

// Script is what a scripted model answers: the first step that fits the turn
// and the conversation. See docs/spec/scripted-model.md.
type Script struct {
	Steps []Step `yaml:"steps" required:"true" doc:"Answers: the first one that fits the turn and the conversation is given."`

	// SourcePath is the file.
	SourcePath string
}

// Step is one answer of a scripted model.
type Step struct {
	// Turn is 0 where every turn fits.
	Turn int `yaml:"turn" min:"1" without:"every turn" doc:"Which answer to the agent this is, counted from 1."`
	// Match is nil where all fits.
	Match     *Pattern   `yaml:"match" doc:"Regular expression (RE2) that must be found in the conversation."`
	Text      string     `yaml:"text" doc:"The answer; ${1} and ${name} stand for groups of match, ${0} for all that it matched, $$ for a dollar sign."`
	ToolCalls []ToolCall `yaml:"tool_calls" doc:"Tools to call; text in arguments is expanded like text."`
	Delay     Duration   `yaml:"delay" doc:"Wait before the answer."`
	Error     *StepError `yaml:"error" doc:"An error in place of an answer, as a provider's."`
	// Tokens are counted as words where it is nil.
	Tokens *Tokens `yaml:"tokens" doc:"Usage to report; without it words are counted."`
}

// ToolCall asks for a tool.
type ToolCall struct {
	Name      string         `yaml:"name" required:"true" doc:"Name of the tool."`
	Arguments map[string]any `yaml:"arguments" doc:"Arguments of the call."`
}

// StepError makes a request fail as a provider's would.
type StepError struct {
	Status  int    `yaml:"status" required:"true" min:"400" max:"599" doc:"HTTP status; 408, 409, 429 and 5xx are tried again."`
	Message string `yaml:"message" doc:"What the provider says."`
	// Times is 0 for all.
	Times int `yaml:"times" min:"0" doc:"How many attempts fail before the step answers; 0 means all."`
}

// Tokens are a model's usage of one answer.
type Tokens struct {
	Input       int64 `yaml:"input" min:"0" doc:"Tokens of the request."`
	Output      int64 `yaml:"output" min:"0" doc:"Tokens of the answer."`
	Thinking    int64 `yaml:"thinking" min:"0" doc:"Tokens of what the model thought."`
	CachedInput int64 `yaml:"cached_input" min:"0" doc:"Tokens of the request that the provider had already."`
}

// Pattern is a regular expression in RE2's syntax.
type Pattern struct{ *regexp.Regexp }

func (m *Pattern) unmarshalNode(d *decoder, n *node, path string) {
	text, ok := n.scalar.(string)
	if !ok {
		d.mismatch(n, path, "a regular expression in quotes")
		return
	}
	compiled, size, err := pattern.Compile(text)
	if err != nil {
		d.problems.add(n.pos, "%q is not a regular expression (RE2) that can be used: %v", path, err)
		return
	}
	if *d.patterns += size; *d.patterns > maxPatterns {
		d.problems.add(n.pos, "%q: the regular expressions of the repository are compiled to more than %d instructions together", path, maxPatterns)
		return
	}
	m.Regexp = compiled
}

func (p *parsing) script(file string) {
	source := p.parse(file)
	if source == nil {
		return
	}
	name := strings.TrimSuffix(strings.TrimPrefix(file, "models/"), ".yaml")
	s := &Script{SourcePath: file}
	p.decoder().decode(source, s, "")
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
