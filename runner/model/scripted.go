// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runtrace"
)

// scriptedModel answers from a script. It has no state: it reads the turn and the matches from the
// request.
type scriptedModel struct {
	name   string
	script *bundle.Script
}

// maxExpanded limits the expanded texts of an answer in bytes, because an answer is stored.
const maxExpanded = dispatchapi.MaxModelAnswer

// all matches any conversation.
var all = regexp.MustCompile(`(?s).*`)

// Name returns the reference, scripted/<file>.
func (m *scriptedModel) Name() string { return m.name }

// Server implements Model.
func (*scriptedModel) Server() *runtrace.Server { return nil }

// Generate implements Model.
func (m *scriptedModel) Generate(ctx context.Context, req *Request) (*Answer, error) {
	turn, conversation := ReadConversation(req.Contents)
	for _, step := range m.script.Steps {
		if step.Turn != 0 && step.Turn != turn {
			continue
		}
		pattern := all
		if step.Match != nil && step.Match.Regexp != nil {
			pattern = step.Match.Regexp
		}
		match := pattern.FindStringSubmatchIndex(conversation)
		if match == nil {
			continue
		}
		answer := &expansion{pattern: pattern, conversation: conversation, match: match, left: maxExpanded}
		response, err := m.playStep(ctx, step, turn, answer.expandTemplate, conversation)
		if err == nil && answer.left < 0 {
			return nil, &Error{Code: runerror.ModelRequestRejected, Message: fmt.Sprintf("%s: the answer has more than %d bytes when it is expanded; match less", m.script.SourcePath, maxExpanded)}
		}
		return response, err
	}
	return nil, &Error{Code: runerror.ModelRequestRejected, Message: fmt.Sprintf("%s has no step for turn %d and this conversation; add one without turn and match", m.script.SourcePath, turn)}
}

// playStep converts a step to an answer.
func (m *scriptedModel) playStep(ctx context.Context, step bundle.Step, turn int, expand func(string) string, conversation string) (*Answer, error) {
	if step.Delay > 0 {
		if err := pause.For(ctx, step.Delay.Std()); err != nil {
			return nil, err
		}
	}
	if e := step.Error; e != nil && (e.Times == 0 || attemptOf(ctx) <= e.Times) {
		return nil, statusError(e.Status, e.Message, 0)
	}
	content := &Content{Role: RoleModel}
	if step.Text != "" {
		content.Parts = append(content.Parts, &Part{Text: expand(step.Text)})
	}
	expandArgument := func(text string) any { return expandJSON(text, expand) }
	for i, call := range step.ToolCalls {
		args, _ := expandValue(call.Arguments, expandArgument).(map[string]any)
		content.Parts = append(content.Parts, &Part{Call: &Call{
			ID: fmt.Sprintf("call_%d_%d", turn, i), Name: call.Name, Args: args,
		}})
	}
	if len(content.Parts) == 0 { // The step only fails, and its failures are used up.
		content.Parts = append(content.Parts, &Part{Text: ""})
	}
	return &Answer{
		Content: content, FinishReason: cmp.Or(FinishReason(step.FinishReason), finishOf("", len(step.ToolCalls) > 0)),
		Usage: scriptedUsage(step.Tokens, conversation, content),
	}, nil
}

// expansion inserts the matches of a step into its texts, up to a limit for all of them.
type expansion struct {
	pattern      *regexp.Regexp
	conversation string
	match        []int
	left         int // remaining bytes, negative after the limit
}

// expandTemplate expands one reference at a time and stops when the text becomes too large.
func (e *expansion) expandTemplate(template string) string {
	var out []byte
	for template != "" && e.left >= 0 {
		piece := template[:untilReference(template)]
		template = template[len(piece):]
		before := len(out)
		out = e.pattern.ExpandString(out, piece, e.conversation, e.match)
		e.left -= len(out) - before
	}
	return string(out)
}

// untilReference returns the start of the second reference of a template, or of the first one if
// the template does not begin with a reference.
func untilReference(template string) int {
	if strings.HasPrefix(template, "$$") {
		return 2
	}
	if i := strings.IndexByte(template[1:], '$'); i >= 0 {
		return 1 + i
	}
	return len(template)
}

// jsonReference matches a text that is one reference whose match is a JSON value.
var jsonReference = regexp.MustCompile(`^\$\{(\w+):json\}$`)

// expandJSON returns the JSON value of the match if a text is a reference such as ${n:json}. It returns any other text, and a
// match that is no JSON, expanded.
func expandJSON(text string, expand func(string) string) any {
	reference := jsonReference.FindStringSubmatch(text)
	if reference == nil {
		return expand(text)
	}
	match := expand("${" + reference[1] + "}")
	var value any
	if exactjson.Decode([]byte(match), &value) != nil {
		return match
	}
	return value
}

func expandValue(v any, expand func(string) any) any {
	switch v := v.(type) {
	case string:
		return expand(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = expandValue(v[i], expand)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			out[key] = expandValue(v[key], expand)
		}
		return out
	default:
		return v
	}
}

// scriptedUsage returns the usage in the script, or the number of words.
func scriptedUsage(t *bundle.Tokens, conversation string, answer *Content) *dispatchapi.TokenUsage {
	if t == nil {
		words := 0
		for _, part := range answer.Parts {
			words += len(strings.Fields(part.Text))
		}
		t = &bundle.Tokens{Input: int64(len(strings.Fields(conversation))), Output: int64(words)}
	}
	return &dispatchapi.TokenUsage{
		InputTokens: clampCount(t.Input), OutputTokens: clampCount(t.Output),
		ThinkingTokens: clampCount(t.Thinking), CachedInputTokens: clampCount(t.CachedInput),
		TotalTokens: clampCount(t.Input + t.Output + t.Thinking),
	}
}

// ReadConversation returns the number of the requested answer, from 1, and the conversation as text. Each
// message is a line. Files are "file <name>: <type>, <size> bytes", tool results are "tool <name>:
// <JSON>". The model's own answers are left out.
func ReadConversation(contents []*Content) (turn int, conversation string) {
	turn = 1
	var lines []string
	for _, content := range contents {
		if content.Role == RoleModel {
			turn++
			continue
		}
		for _, part := range content.Parts {
			switch {
			case part.Text != "":
				lines = append(lines, part.Text)
			case part.File != nil:
				lines = append(lines, fmt.Sprintf("file %q: %s, %d bytes", part.File.Name, part.File.MIMEType, len(part.File.Data)))
			case part.Result != nil:
				result, err := json.Marshal(part.Result.Response)
				if err != nil {
					result = []byte("{}")
				}
				lines = append(lines, fmt.Sprintf("tool %s: %s", part.Result.Name, result))
			}
		}
	}
	return turn, strings.Join(lines, "\n")
}

// Scripted returns a model that answers from a script.
func Scripted(name string, script *bundle.Script) Model {
	return &scriptedModel{name: name, script: script}
}
