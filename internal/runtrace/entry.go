// SPDX-License-Identifier: Apache-2.0

package runtrace

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// The fields of journal entries that spans and lines need. The engine defines the entries. All fields are optional, because
// entries of earlier releases lack some of them.
type (
	answerEntry struct {
		Agent         string                 `json:"agent"`
		Turn          int                    `json:"turn"`
		Model         string                 `json:"model"`
		Server        *Server                `json:"server"`
		Temperature   *float64               `json:"temperature"`
		MaxOutput     int                    `json:"max_output_tokens"`
		Attempts      []attempt              `json:"attempts"`
		ResponseModel string                 `json:"response_model"`
		Content       *content               `json:"content"`
		FinishReason  string                 `json:"finish_reason"`
		Error         string                 `json:"error"` // of an unusable answer or a failed request
		Usage         dispatchapi.TokenUsage `json:"usage"`
		Cost          *dispatchapi.Cost      `json:"cost"`
		span
	}
	// attempt is a failed attempt of a model request.
	attempt struct {
		Model string `json:"model"`
		Error string `json:"error"`
		span
	}
	startedEntry struct {
		Agent     string          `json:"agent"`
		CallID    string          `json:"call_id"`
		Tool      string          `json:"tool"`
		Type      string          `json:"type"`
		Arguments json.RawMessage `json:"arguments"`
		Digest    string          `json:"digest"`
		span
	}
	resultEntry struct {
		Agent  string          `json:"agent"`
		CallID string          `json:"call_id"`
		Tool   string          `json:"tool"`
		Digest string          `json:"digest"`
		Result json.RawMessage `json:"result"`
		Error  string          `json:"error"`
		Code   string          `json:"code"`
		Server *Server         `json:"server"`
		MCP    *MCPCall        `json:"mcp"`
		logged
		span
	}
	stepEntry struct {
		ID      string          `json:"id"`
		Agent   string          `json:"agent"`
		Kind    string          `json:"kind"`
		Outcome string          `json:"outcome"`
		Result  json.RawMessage `json:"result"`
		logged
		span
	}
	waitEntry struct {
		ID    string    `json:"id"`
		Kind  string    `json:"kind"`
		Until time.Time `json:"until"`
	}

	// span is the time of an entry: its begin, and its duration in milliseconds.
	span struct {
		At           time.Time `json:"at"`
		Milliseconds *int64    `json:"ms"`
	}
	// logged are lines of an entry, and the number of lines that did not fit.
	logged struct {
		Log     []lineEntry `json:"log"`
		MoreLog int         `json:"more_log"`
	}
	lineEntry struct {
		Level    string          `json:"level"`
		Text     string          `json:"text"`
		Fields   json.RawMessage `json:"fields"`
		Position string          `json:"position"`
	}

	// content is a message of a model.
	content struct {
		Parts []struct {
			Text    string `json:"text"`
			Thought bool   `json:"thought"`
			Call    *struct {
				ID   string          `json:"id"`
				Name string          `json:"name"`
				Args json.RawMessage `json:"args"`
			} `json:"functionCall"`
		} `json:"parts"`
	}
)

// timesOf returns the begin and the end of an entry. An entry without its own time has the time of the store.
func (s span) timesOf(stored time.Time) (start, end time.Time) {
	var took time.Duration
	if s.Milliseconds != nil {
		took = durationOf(*s.Milliseconds)
	}
	if s.At.Year() < 1970 || s.At.Year() > maxYear { // JSON holds no time after the year 9999
		return stored.Add(-took), stored
	}
	return s.At, s.At.Add(took)
}

// The longest time that an entry can report, 30 days, and the last year: a foreign runner may have written others.
const (
	maxMilliseconds = 30 * 24 * 60 * 60 * 1000
	maxYear         = 9000
)

func durationOf(milliseconds int64) time.Duration {
	return time.Duration(min(max(0, milliseconds), maxMilliseconds)) * time.Millisecond
}

// The most tokens and the highest cost in billionths that a model request can report, as in the store. A foreign runner may have
// written others.
const (
	maxTokens = 1 << 40
	maxCost   = 1 << 44
)

// currencies are the currencies of prices.
var currencies = []string{"EUR", "USD"}

// boundUsage bounds the tokens and the cost of an answer. It drops a cost in another currency than the prices.
func (a *answerEntry) boundUsage() {
	for _, n := range []*int64{
		&a.Usage.InputTokens, &a.Usage.OutputTokens, &a.Usage.ThinkingTokens, &a.Usage.CachedInputTokens, &a.Usage.TotalTokens,
	} {
		*n = min(max(0, *n), maxTokens)
	}
	switch {
	case a.Cost == nil:
	case slices.Contains(currencies, a.Cost.Currency):
		a.Cost.Nanos = min(max(0, a.Cost.Nanos), maxCost)
	default:
		a.Cost = nil
	}
}

// Types of tools in a tool_started entry.
const (
	TypeMCP  = "mcp"
	TypeHTTP = "http"
	TypeSend = "send"
)

// toolTypes are the values of gen_ai.tool.type, by the type of the tool. Others are functions.
var toolTypes = map[string]string{TypeMCP: "extension", TypeHTTP: "extension", TypeSend: "extension"}

// message is a message in the form of OpenTelemetry's conventions.
type message struct {
	Role         string `json:"role"`
	Parts        []part `json:"parts"`
	FinishReason string `json:"finish_reason,omitempty"`
}

type part struct {
	Type      string          `json:"type"` // text or tool_call
	Content   string          `json:"content,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// outputMessages returns the answer as output messages, without the model's reasoning.
func (a *answerEntry) outputMessages() json.RawMessage {
	if a.Content == nil {
		return nil
	}
	out := message{Role: "assistant", Parts: []part{}, FinishReason: a.FinishReason}
	for _, p := range a.Content.Parts {
		switch {
		case p.Call != nil:
			out.Parts = append(out.Parts, part{Type: "tool_call", ID: p.Call.ID, Name: p.Call.Name, Arguments: p.Call.Args})
		case p.Text != "" && !p.Thought:
			out.Parts = append(out.Parts, part{Type: "text", Content: p.Text})
		}
	}
	data, err := json.Marshal([]message{out})
	if err != nil { // impossible: it was JSON
		return nil
	}
	return data
}
