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
	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/genai"

	"github.com/agentplatform/agentplatform/internal/exactjson"
)

// toolParams translates the tools on offer.
func toolParams(tools []*genai.Tool) ([]openai.ChatCompletionToolUnionParam, error) {
	var out []openai.ChatCompletionToolUnionParam
	for _, t := range tools {
		for _, declaration := range t.FunctionDeclarations {
			function := shared.FunctionDefinitionParam{Name: declaration.Name}
			if declaration.Description != "" {
				function.Description = openai.String(declaration.Description)
			}
			if schema := declaration.ParametersJsonSchema; schema != nil {
				parameters, err := written(schema)
				if err != nil {
					return nil, &Error{Code: CodeRejected, Message: fmt.Sprintf("tool %q has parameters that are no JSON Schema", declaration.Name), err: err}
				}
				function.Parameters = parameters
			}
			out = append(out, openai.ChatCompletionFunctionTool(function))
		}
	}
	return out, nil
}

// written is a JSON Schema whose keywords are JSON already: the client's own encoder would make texts of
// numbers that are exact.
func written(schema any) (shared.FunctionParameters, error) {
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

// messagesOf translates one message; results of tools become one message each.
func messagesOf(content *genai.Content) ([]openai.ChatCompletionMessageParamUnion, error) {
	if content.Role == genai.RoleModel {
		return assistantMessage(content)
	}
	var out []openai.ChatCompletionMessageParamUnion
	var parts []openai.ChatCompletionContentPartUnionParam
	for _, part := range content.Parts {
		switch {
		case part.FunctionResponse != nil:
			result, err := json.Marshal(part.FunctionResponse.Response)
			if err != nil {
				return nil, &Error{Code: CodeRejected, Message: fmt.Sprintf("the result of tool %q is no JSON", part.FunctionResponse.Name), err: err}
			}
			out = append(out, openai.ToolMessage(string(result), part.FunctionResponse.ID))
		case part.InlineData != nil:
			parts = append(parts, filePart(part.InlineData))
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

func filePart(blob *genai.Blob) openai.ChatCompletionContentPartUnionParam {
	data := "data:" + blob.MIMEType + ";base64," + base64.StdEncoding.EncodeToString(blob.Data)
	if strings.HasPrefix(blob.MIMEType, "image/") {
		return openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: data})
	}
	name := blob.DisplayName
	if name == "" {
		name = "file"
	}
	return openai.FileContentPart(openai.ChatCompletionContentPartFileFileParam{
		Filename: openai.String(name), FileData: openai.String(data),
	})
}

func assistantMessage(content *genai.Content) ([]openai.ChatCompletionMessageParamUnion, error) {
	var message openai.ChatCompletionAssistantMessageParam
	if text := textOf(content); text != "" {
		message.Content.OfString = openai.String(text)
	}
	for _, part := range content.Parts {
		call := part.FunctionCall
		if call == nil {
			continue
		}
		args, err := json.Marshal(call.Args)
		if err != nil {
			return nil, &Error{Code: CodeRejected, Message: fmt.Sprintf("the arguments of tool %q are no JSON", call.Name), err: err}
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
		// Strict services refuse a message without content.
		message.Content = param.NullStruct[openai.ChatCompletionAssistantMessageParamContentUnion]()
	}
	return []openai.ChatCompletionMessageParamUnion{{OfAssistant: &message}}, nil
}

// readCompletion translates an answer; what one of no use has used is said with its error.
func readCompletion(c *openai.ChatCompletion) (*adkmodel.LLMResponse, error) {
	resp, err := readChoice(c)
	if failure, ok := AsError(err); ok {
		failure.Usage = tokens(c.Usage)
	}
	return resp, err
}

// readChoice translates the first choice.
func readChoice(c *openai.ChatCompletion) (*adkmodel.LLMResponse, error) {
	if len(c.Choices) == 0 {
		return nil, &Error{Code: CodeInvalidAnswer, Message: "the model's answer has no choices", Retryable: true}
	}
	choice := c.Choices[0]
	content := &genai.Content{Role: genai.RoleModel}
	text, err := answerOf(choice.Message)
	if err != nil {
		return nil, err
	}
	if text != "" {
		content.Parts = append(content.Parts, genai.NewPartFromText(text))
	}
	for _, call := range choice.Message.ToolCalls {
		if _, err := textIn("tool name", call.Function.JSON.Name.Raw()); err != nil {
			return nil, err
		}
		args := map[string]any{}
		if raw := call.Function.Arguments; strings.TrimSpace(raw) != "" {
			if err := exactjson.Decode([]byte(raw), &args); err != nil {
				return nil, &Error{Code: CodeInvalidAnswer, Message: fmt.Sprintf("the model called tool %q with arguments that are no JSON object", shorten(call.Function.Name)), Retryable: true, err: err}
			}
		}
		content.Parts = append(content.Parts, &genai.Part{FunctionCall: &genai.FunctionCall{ID: call.ID, Name: call.Function.Name, Args: args}})
	}
	reason := genai.FinishReasonStop
	switch choice.FinishReason {
	case "length":
		reason = genai.FinishReasonMaxTokens
	case "content_filter":
		reason = genai.FinishReasonSafety
	}
	if len(content.Parts) == 0 {
		if reason == genai.FinishReasonSafety {
			return nil, &Error{Code: CodeRejected, Message: "the model service filtered the answer"}
		}
		return nil, &Error{Code: CodeInvalidAnswer, Message: "the model's answer is empty", Retryable: true}
	}
	return &adkmodel.LLMResponse{
		Content: content, ModelVersion: c.Model, FinishReason: reason, TurnComplete: true, UsageMetadata: tokens(c.Usage),
	}, nil
}

// tokens translates usage: what was thought is counted apart from what was
// answered. OpenAI counts it among the completion's tokens, Gemini in the total alone.
func tokens(u openai.CompletionUsage) *genai.GenerateContentResponseUsageMetadata {
	beside := max(0, u.TotalTokens-u.PromptTokens-u.CompletionTokens)
	among := max(0, u.CompletionTokensDetails.ReasoningTokens-beside)
	return &genai.GenerateContentResponseUsageMetadata{
		PromptTokenCount:        clip(u.PromptTokens),
		CandidatesTokenCount:    clip(u.CompletionTokens - among),
		ThoughtsTokenCount:      clip(among + beside),
		CachedContentTokenCount: clip(u.PromptTokensDetails.CachedTokens),
		TotalTokenCount:         clip(u.TotalTokens),
	}
}

// clip keeps what a service claims within the type of genai.
func clip(n int64) int32 { return int32(min(max(n, 0), math.MaxInt32)) }
