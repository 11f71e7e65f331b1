// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"regexp"
	"strings"

	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/genai"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/pause"
)

// scriptedModel answers from a script. It keeps no state: the turn and what a
// step matches are read from the request.
type scriptedModel struct {
	name   string
	script *bundle.Script
}

// maxExpanded is the most bytes of all text of an answer, expanded: what is stored of one.
const maxExpanded = dispatchapi.MaxModelAnswer

// all matches any conversation.
var all = regexp.MustCompile(`(?s).*`)

// Name is the reference, scripted/<file>.
func (m *scriptedModel) Name() string { return m.name }

// GenerateContent implements model.LLM.
func (m *scriptedModel) GenerateContent(ctx context.Context, req *adkmodel.LLMRequest, _ bool) iter.Seq2[*adkmodel.LLMResponse, error] {
	return func(yield func(*adkmodel.LLMResponse, error) bool) { yield(m.answer(ctx, req)) }
}

func (m *scriptedModel) answer(ctx context.Context, req *adkmodel.LLMRequest) (*adkmodel.LLMResponse, error) {
	turn, conversation := read(req.Contents)
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
		response, err := m.play(ctx, step, turn, answer.expand, conversation)
		if err == nil && answer.left < 0 {
			return nil, &Error{Code: CodeRejected, Message: fmt.Sprintf("%s: the answer has more than %d bytes when it is expanded; match less", m.script.SourcePath, maxExpanded)}
		}
		return response, err
	}
	return nil, &Error{Code: CodeRejected, Message: fmt.Sprintf("%s has no step for turn %d and this conversation; add one without turn and match", m.script.SourcePath, turn)}
}

// play turns a step into an answer.
func (m *scriptedModel) play(ctx context.Context, step bundle.Step, turn int, expand func(string) string, conversation string) (*adkmodel.LLMResponse, error) {
	if step.Delay > 0 {
		if err := pause.For(ctx, step.Delay.Std()); err != nil {
			return nil, err
		}
	}
	if e := step.Error; e != nil && (e.Times == 0 || attemptOf(ctx) <= e.Times) {
		return nil, statusError(e.Status, e.Message, 0)
	}
	content := &genai.Content{Role: genai.RoleModel}
	if step.Text != "" {
		content.Parts = append(content.Parts, genai.NewPartFromText(expand(step.Text)))
	}
	for i, call := range step.ToolCalls {
		args, _ := expandValue(call.Arguments, expand).(map[string]any)
		content.Parts = append(content.Parts, &genai.Part{FunctionCall: &genai.FunctionCall{
			ID: fmt.Sprintf("call_%d_%d", turn, i), Name: call.Name, Args: args,
		}})
	}
	if len(content.Parts) == 0 { // A step that only fails, and whose failures are over.
		content.Parts = append(content.Parts, genai.NewPartFromText(""))
	}
	return &adkmodel.LLMResponse{
		Content: content, TurnComplete: true, FinishReason: genai.FinishReasonStop,
		UsageMetadata: usage(step.Tokens, conversation, content),
	}, nil
}

// expansion puts what a step matched into its texts, as long as these are not too large
// together.
type expansion struct {
	pattern      *regexp.Regexp
	conversation string
	match        []int
	left         int // bytes that may still be made, negative where it was too much
}

// expand expands a reference at a time: of a text that becomes too large no more is made.
func (e *expansion) expand(template string) string {
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

// untilReference is where the second reference of a template begins, or the first one where
// it does not begin with one.
func untilReference(template string) int {
	if strings.HasPrefix(template, "$$") {
		return 2
	}
	if i := strings.IndexByte(template[1:], '$'); i >= 0 {
		return 1 + i
	}
	return len(template)
}

func expandValue(v any, expand func(string) string) any {
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

// usage is what the script says, or the number of words.
func usage(t *bundle.Tokens, conversation string, answer *genai.Content) *genai.GenerateContentResponseUsageMetadata {
	if t == nil {
		words := 0
		for _, part := range answer.Parts {
			words += len(strings.Fields(part.Text))
		}
		t = &bundle.Tokens{Input: int64(len(strings.Fields(conversation))), Output: int64(words)}
	}
	return &genai.GenerateContentResponseUsageMetadata{
		PromptTokenCount: clip(t.Input), CandidatesTokenCount: clip(t.Output),
		ThoughtsTokenCount: clip(t.Thinking), CachedContentTokenCount: clip(t.CachedInput),
		TotalTokenCount: clip(t.Input + t.Output + t.Thinking),
	}
}

// read returns the number of the answer that is asked for, from 1, and the
// conversation as text: one message a line, files as "file <name>: <type>, <size> bytes",
// tool results as "tool <name>: <JSON>".
// The model's own answers are left out.
func read(contents []*genai.Content) (turn int, conversation string) {
	turn = 1
	var lines []string
	for _, content := range contents {
		if content.Role == genai.RoleModel {
			turn++
			continue
		}
		for _, part := range content.Parts {
			switch {
			case part.Text != "":
				lines = append(lines, part.Text)
			case part.InlineData != nil:
				lines = append(lines, fmt.Sprintf("file %q: %s, %d bytes", part.InlineData.DisplayName, part.InlineData.MIMEType, len(part.InlineData.Data)))
			case part.FunctionResponse != nil:
				result, err := json.Marshal(part.FunctionResponse.Response)
				if err != nil {
					result = []byte("{}")
				}
				lines = append(lines, fmt.Sprintf("tool %s: %s", part.FunctionResponse.Name, result))
			}
		}
	}
	return turn, strings.Join(lines, "\n")
}
