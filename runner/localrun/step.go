// SPDX-License-Identifier: Apache-2.0

package localrun

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// Kind is the kind of a step.
type Kind string

// Kinds of steps.
const (
	// AgentStarted is the begin of an agent.
	AgentStarted Kind = "agent_started"
	// ModelAnswer is an answer of a model, ModelFailure a failed request.
	ModelAnswer  Kind = "model_answer"
	ModelFailure Kind = "model_failure"
	// ToolStarted is the begin of a tool call, ToolResult its result or error.
	ToolStarted Kind = "tool_started"
	ToolResult  Kind = "tool_result"
	// ToolRejected is a call whose arguments do not fit the tool, so that nothing happened.
	ToolRejected Kind = "tool_rejected"
	// Request is an HTTP request of a tool or script.
	Request Kind = "http_request"
	// ScriptEnded is the end of a script that is a step of an agent, middleware or a hook.
	ScriptEnded Kind = "script_ended"
	// Log is a line of a script's log.
	Log Kind = "log"
)

// Step is something that happened in a run. It has no secrets.
type Step struct {
	Kind Kind `json:"kind"`
	// AtMS is the time since the begin of the run, MS the duration of the step, in milliseconds.
	AtMS int64 `json:"at_ms"`
	MS   int64 `json:"ms,omitempty"`
	// Agent is the position in the tree of agents.
	Agent string `json:"agent,omitempty"`

	// Model, Turn, Text, Calls, FinishReason, Usage and Cost belong to requests of models.
	Model        string                  `json:"model,omitempty"`
	Turn         int                     `json:"turn,omitempty"`
	Text         string                  `json:"text,omitempty"`
	Calls        []engine.CallRecord     `json:"tool_calls,omitempty"`
	FinishReason model.FinishReason      `json:"finish_reason,omitempty"`
	Usage        *dispatchapi.TokenUsage `json:"token_usage,omitempty"`
	Cost         *dispatchapi.Cost       `json:"cost,omitempty"`

	// CallID, Tool, Arguments and Result belong to calls of tools.
	CallID    string         `json:"call_id,omitempty"`
	Tool      string         `json:"tool,omitempty"`
	Arguments map[string]any `json:"arguments,omitempty"`
	Result    map[string]any `json:"result,omitempty"`

	// Script is the reference of a step's script, or a function such as middleware.before. Outcome is ended, failed, stopped or
	// aborted. Value is the JSON result.
	Script  string          `json:"script,omitempty"`
	Outcome string          `json:"outcome,omitempty"`
	Value   json.RawMessage `json:"value,omitempty"`

	// Method, URL and Status belong to HTTP requests.
	Method string `json:"method,omitempty"`
	URL    string `json:"url,omitempty"`
	Status int    `json:"status,omitempty"`

	// Line is the line of a log.
	Line *engine.LogLine `json:"line,omitempty"`

	Error string `json:"error,omitempty"`
}

// addStep numbers, masks, keeps and shows a step.
func (o *observer) addStep(s Step) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.AtMS = o.now().Sub(o.began).Milliseconds()
	s.Text, s.Error, s.URL = o.mask.redactText(s.Text), o.mask.redactText(s.Error), o.mask.redactText(s.URL)
	if s.Value != nil {
		s.Value = json.RawMessage(o.mask.redactText(string(s.Value)))
	}
	s.Arguments, s.Result = o.mask.redactObject(s.Arguments), o.mask.redactObject(s.Result)
	s.Calls = slices.Clone(s.Calls)
	for i := range s.Calls {
		s.Calls[i].Arguments = o.mask.redactObject(s.Calls[i].Arguments)
	}
	if s.Line != nil {
		line := *s.Line
		line.Text, line.Fields = o.mask.redactText(line.Text), []byte(o.mask.redactText(string(line.Fields)))
		s.Line = &line
	}
	if s.Cost != nil {
		o.addCost(*s.Cost)
	}
	o.steps = append(o.steps, s)
	if o.show != nil {
		o.show(s)
	}
}

// addCost adds a cost to the total of its currency. The caller holds the lock.
func (o *observer) addCost(cost dispatchapi.Cost) {
	for i := range o.costs {
		if o.costs[i].Currency == cost.Currency {
			o.costs[i].Nanos += cost.Nanos
			return
		}
	}
	o.costs = append(o.costs, cost)
}

// elapsedSince returns the milliseconds since a time.
func (o *observer) elapsedSince(begin time.Time) int64 { return o.now().Sub(begin).Milliseconds() }
