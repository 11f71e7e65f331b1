// SPDX-License-Identifier: Apache-2.0

// Package model provides the models of agents as a small model.LLM: services with OpenAI's Chat
// Completions API, and scripted, a deterministic model that answers from a script of the
// repository. Only this package retries failed requests. An agent as a whole never runs twice.
package model

import (
	"context"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runtrace"
)

// Model answers requests. Implementations are safe for concurrent use and keep no state between requests.
type Model interface {
	// Name returns the reference, provider/model.
	Name() string
	// Server returns the server that requests are sent to; nil for none.
	Server() *runtrace.Server
	// Generate returns the answer to a request. It does not change the request. The error is an *Error, or the error of
	// the context.
	Generate(ctx context.Context, req *Request) (*Answer, error)
}

// Request asks a model for the next message of a conversation.
type Request struct {
	// Instructions are the system prompt, "" without one.
	Instructions string
	// Contents is the conversation. Its last message is not the model's.
	Contents []*Content
	// Tools are the tools that the model may call.
	Tools []ToolDeclaration
	// Temperature is nil for the default of the model.
	Temperature *float64
}

// ToolDeclaration describes a tool to a model.
type ToolDeclaration struct {
	Name, Description string
	// Parameters is the JSON Schema of the arguments; nil for none.
	Parameters any
}

// Answer is a model's answer.
type Answer struct {
	Content *Content
	// Model is the reference of the model that answered, Server its server.
	Model  string
	Server *runtrace.Server
	// ResponseModel is the name of the model in the answer of the service; "" without one.
	ResponseModel string
	FinishReason  FinishReason
	// Usage is nil if the service did not report it.
	Usage *dispatchapi.TokenUsage
}

// FinishReason is the reason for the end of an answer. "" is unknown.
type FinishReason string

// Reasons for the end of an answer.
const (
	// FinishStop is a complete answer without calls of tools, FinishToolCalls one with calls.
	FinishStop      FinishReason = "stop"
	FinishToolCalls FinishReason = "tool_calls"
	// FinishLength is an answer that a limit of tokens cut off.
	FinishLength FinishReason = "length"
	// FinishContentFilter is an answer that the service filtered.
	FinishContentFilter FinishReason = "content_filter"
	// FinishOther is any other reason of a service.
	FinishOther FinishReason = "other"
)

// UnmarshalText reads a reason of a journal. Journals of earlier releases have other words.
func (r *FinishReason) UnmarshalText(text []byte) error {
	switch *r = FinishReason(text); *r {
	case "STOP":
		*r = FinishStop
	case "MAX_TOKENS":
		*r = FinishLength
	case "SAFETY":
		*r = FinishContentFilter
	}
	return nil
}

// finishOf returns the reason that a service reports for an answer.
func finishOf(reported string, hasCalls bool) FinishReason {
	switch reason := FinishReason(reported); reason {
	case "", FinishStop, FinishToolCalls, "function_call":
		if hasCalls {
			return FinishToolCalls
		}
		return FinishStop
	case FinishLength, FinishContentFilter:
		return reason
	}
	return FinishOther
}

// Roles of messages.
const (
	RoleUser  = "user"
	RoleModel = "model"
)

// Content is one message of a conversation. Its JSON is a part of journals and never changes.
type Content struct {
	Parts []*Part `json:"parts,omitempty"`
	// Role is RoleUser, also for results of tools, or RoleModel.
	Role string `json:"role,omitempty"`
}

// Part is a part of a message: a text, a file, a call of a tool, or the result of a call.
type Part struct {
	File   *File   `json:"inlineData,omitempty"`
	Call   *Call   `json:"functionCall,omitempty"`
	Result *Result `json:"functionResponse,omitempty"`
	Text   string  `json:"text,omitempty"`
	// Thought marks a text as the model's reasoning, which is no part of its answer.
	Thought bool `json:"thought,omitempty"`
	// ThoughtSignature is data of the model service that belongs to its reasoning.
	ThoughtSignature []byte `json:"thoughtSignature,omitempty"`
}

// Call is a call of a tool.
type Call struct {
	// ID is unique in a run after the engine has recorded the answer.
	ID   string         `json:"id,omitempty"`
	Args map[string]any `json:"args,omitempty"`
	Name string         `json:"name,omitempty"`
	// Problem says why the arguments cannot be read; "" if they can. The model gets it as the result.
	Problem string `json:"problem,omitempty"`
}

// Result is the result of a call.
type Result struct {
	ID       string         `json:"id,omitempty"`
	Name     string         `json:"name,omitempty"`
	Response map[string]any `json:"response,omitempty"`
}

// File is an attachment.
type File struct {
	Name     string `json:"displayName,omitempty"`
	MIMEType string `json:"mimeType,omitempty"`
	Data     []byte `json:"data,omitempty"`
}

// TextContent returns a message with one text.
func TextContent(role, text string) *Content {
	return &Content{Role: role, Parts: []*Part{{Text: text}}}
}

// Text returns the texts of a message without the model's reasoning.
func (c *Content) Text() string {
	if c == nil {
		return ""
	}
	text := ""
	for _, part := range c.Parts {
		if !part.Thought {
			text += part.Text
		}
	}
	return text
}

// Calls returns the calls of tools in a message.
func (c *Content) Calls() (calls []*Call) {
	for _, part := range c.Parts {
		if part.Call != nil {
			calls = append(calls, part.Call)
		}
	}
	return calls
}
