// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// toolParams converts the available tools.
func toolParams(tools []ToolDeclaration) ([]openai.ChatCompletionToolUnionParam, error) {
	var out []openai.ChatCompletionToolUnionParam
	for _, declaration := range tools {
		function := shared.FunctionDefinitionParam{Name: declaration.Name}
		if declaration.Description != "" {
			function.Description = openai.String(declaration.Description)
		}
		if schema := declaration.Parameters; schema != nil {
			parameters, err := encodeSchema(schema)
			if err != nil {
				return nil, &Error{Code: runerror.ModelRequestRejected, Message: fmt.Sprintf("tool %q has parameters that are not a JSON Schema", declaration.Name), err: err}
			}
			function.Parameters = parameters
		}
		out = append(out, openai.ChatCompletionFunctionTool(function))
	}
	return out, nil
}

// encodeSchema converts a JSON Schema whose keywords are already JSON. The client's own encoder would
// convert exact numbers to texts.
func encodeSchema(schema any) (shared.FunctionParameters, error) {
	data, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	var keywords map[string]json.RawMessage
	if err := exactjson.Decode(data, &keywords); err != nil {
		return nil, err
	}
	out := shared.FunctionParameters{}
	for keyword, value := range keywords {
		out[keyword] = value
	}
	return out, nil
}

// messagesOf converts one message. Each tool result becomes a message.
func messagesOf(content *Content) ([]openai.ChatCompletionMessageParamUnion, error) {
	if content.Role == RoleModel {
		return assistantMessage(content)
	}
	var out []openai.ChatCompletionMessageParamUnion
	var parts []openai.ChatCompletionContentPartUnionParam
	for _, part := range content.Parts {
		switch {
		case part.Result != nil:
			result, err := json.Marshal(part.Result.Response)
			if err != nil {
				return nil, &Error{Code: runerror.ModelRequestRejected, Message: fmt.Sprintf("the result of tool %q is not JSON", part.Result.Name), err: err}
			}
			out = append(out, openai.ToolMessage(string(result), part.Result.ID))
		case part.File != nil:
			parts = append(parts, filePart(part.File))
		case part.Text != "":
			parts = append(parts, openai.TextContentPart(part.Text))
		}
	}
	switch {
	case len(parts) == 1 && parts[0].OfText != nil:
		out = append(out, openai.UserMessage(parts[0].OfText.Text))
	case len(parts) > 0:
		out = append(out, openai.UserMessage(parts))
	}
	return out, nil
}

func filePart(blob *File) openai.ChatCompletionContentPartUnionParam {
	data := "data:" + blob.MIMEType + ";base64," + base64.StdEncoding.EncodeToString(blob.Data)
	if strings.HasPrefix(blob.MIMEType, "image/") {
		return openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: data})
	}
	name := blob.Name
	if name == "" {
		name = "file"
	}
	return openai.FileContentPart(openai.ChatCompletionContentPartFileFileParam{
		Filename: openai.String(name), FileData: openai.String(data),
	})
}

func assistantMessage(content *Content) ([]openai.ChatCompletionMessageParamUnion, error) {
	var message openai.ChatCompletionAssistantMessageParam
	if text := content.Text(); text != "" {
		message.Content.OfString = openai.String(text)
	}
	for _, part := range content.Parts {
		call := part.Call
		if call == nil {
			continue
		}
		args, err := json.Marshal(call.Args)
		if err != nil {
			return nil, &Error{Code: runerror.ModelRequestRejected, Message: fmt.Sprintf("the arguments of tool %q are not JSON", call.Name), err: err}
		}
		if call.Args == nil {
			args = []byte("{}")
		}
		message.ToolCalls = append(message.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
				ID: call.ID,
				Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name: call.Name, Arguments: string(args),
				},
			},
		})
	}
	if len(message.ToolCalls) > 0 && !message.Content.OfString.Valid() {
		// Strict services reject a message without content.
		message.Content = param.NullStruct[openai.ChatCompletionAssistantMessageParamContentUnion]()
	}
	return []openai.ChatCompletionMessageParamUnion{{OfAssistant: &message}}, nil
}

// maxModelName limits the name of a model in the answer of a service, in bytes.
const maxModelName = 200

// readCompletion converts a response. The error for an unusable response contains its usage.
func (m *openAI) readCompletion(c *openai.ChatCompletion) (*Answer, error) {
	name := excerpt.Of(redactMessage(strings.ToValidUTF8(c.Model, ""), m.key), maxModelName, "")
	resp, err := readChoice(c)
	if failure, ok := AsError(err); ok {
		failure.Usage, failure.ResponseModel = tokenUsage(c.Usage), name
	} else if resp != nil {
		resp.ResponseModel = name
	}
	return resp, err
}

// readChoice converts the first choice.
func readChoice(c *openai.ChatCompletion) (*Answer, error) {
	if len(c.Choices) == 0 {
		return nil, &Error{Code: runerror.ModelAnswerInvalid, Message: "the model's answer has no choices", Retryable: true}
	}
	choice := c.Choices[0]
	content := &Content{Role: RoleModel}
	text, err := answerOf(choice.Message)
	if err != nil {
		return nil, err
	}
	if text != "" {
		content.Parts = append(content.Parts, &Part{Text: text})
	}
	for _, call := range choice.Message.ToolCalls {
		if _, err := fieldText("tool name", call.Function.JSON.Name.Raw()); err != nil {
			return nil, err
		}
		part := &Part{Call: &Call{ID: call.ID, Name: call.Function.Name, Args: map[string]any{}}}
		if raw := call.Function.Arguments; strings.TrimSpace(raw) != "" {
			if err := exactjson.Decode([]byte(raw), &part.Call.Args); err != nil {
				part.Call.Args, part.Call.Problem = nil, "the arguments are not a JSON object"
			}
		}
		content.Parts = append(content.Parts, part)
	}
	reason := finishOf(choice.FinishReason, len(choice.Message.ToolCalls) > 0)
	if len(content.Parts) == 0 {
		if reason == FinishContentFilter {
			return nil, &Error{Code: runerror.ModelRequestRejected, Message: "the model service filtered the answer"}
		}
		return nil, &Error{Code: runerror.ModelAnswerInvalid, Message: "the model's answer is empty", Retryable: true}
	}
	return &Answer{
		Content: content, FinishReason: reason, Usage: tokenUsage(c.Usage),
	}, nil
}

// tokenUsage converts usage and counts thinking tokens separately. OpenAI includes them in the
// completion tokens, Gemini only in the total.
func tokenUsage(u openai.CompletionUsage) *dispatchapi.TokenUsage {
	beside := max(0, u.TotalTokens-u.PromptTokens-u.CompletionTokens)
	among := max(0, u.CompletionTokensDetails.ReasoningTokens-beside)
	return &dispatchapi.TokenUsage{
		InputTokens:       clampCount(u.PromptTokens),
		OutputTokens:      clampCount(u.CompletionTokens - among),
		ThinkingTokens:    clampCount(among + beside),
		CachedInputTokens: clampCount(u.PromptTokensDetails.CachedTokens),
		TotalTokens:       clampCount(u.TotalTokens),
	}
}

// maxCount limits a number of tokens that a service reports, so that sums cannot overflow.
const maxCount = math.MaxInt32

func clampCount(n int64) int64 { return min(max(n, 0), maxCount) }
