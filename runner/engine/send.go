// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runtrace"
)

// Outbound sends payloads to outbound connectors.
type Outbound interface {
	// Send sends a payload under the run's claim. It sets the token of the request. The agent sees
	// a *dispatchapi.RejectedError. Any other error ends the attempt.
	Send(ctx context.Context, req dispatchapi.SendRequest) (dispatchapi.SendResponse, error)
}

// errUnsent is the error for a payload that may have been sent. A later attempt sends it again from
// the same position.
var errUnsent = errors.New("sending to a connector")

// sending is the feature of tools that send to outbound connectors, one for each link of the agent.
func sending() Feature {
	return Feature{
		Name: "a link to a connector",
		OfferedTools: func(_ context.Context, at *Scope) ([]Tool, error) {
			return at.sendTools(), nil
		},
	}
}

// sendTools returns the tools that send. It includes tools of earlier attempts whose link was deleted, because the model
// has seen them.
func (s *Scope) sendTools() (tools []Tool) {
	if s.in.Outbound == nil {
		return nil
	}
	actions := slices.Clone(s.in.Actions)
	for _, name := range s.journal.sendingTools() {
		if !slices.ContainsFunc(actions, func(a dispatchapi.Action) bool { return a.Name == name }) {
			actions = append(actions, dispatchapi.Action{Name: name})
		}
	}
	for _, action := range actions {
		tools = append(tools, s.sendTool(action))
	}
	return tools
}

// sendTool returns the tool for an action.
func (s *Scope) sendTool(action dispatchapi.Action) Tool {
	return Tool{
		Type:        runtrace.TypeSend,
		Name:        action.Name,
		Description: fmt.Sprintf("Sends a JSON payload to %q. It is delivered in the background, possibly more than once.", action.Connector),
		Parameters: map[string]any{
			"type": "object",
			"properties": map[string]any{
				"payload": map[string]any{"description": "The JSON body to send: any value, an object most often."},
			},
			"required": []string{"payload"}, "additionalProperties": false,
		},
		Idempotent: true, // each position of the journal sends once
		sends:      true,
		Run: func(ctx context.Context, call *Call) (map[string]any, error) {
			payload, ok := call.Arguments["payload"]
			if !ok || len(call.Arguments) > 1 {
				return nil, errors.New("this tool takes one argument, payload")
			}
			return s.sendPayload(ctx, dispatchapi.SendRequest{Mode: dispatchapi.SendByTool, Name: action.Name, Position: call.Position}, payload)
		},
	}
}

// sendPayload sends a payload and returns the result of a tool.
func (s *Scope) sendPayload(ctx context.Context, req dispatchapi.SendRequest, payload any) (map[string]any, error) {
	var err error
	if req.Payload, err = json.Marshal(payload); err != nil {
		return nil, errors.New("the payload cannot be written as JSON")
	}
	if len(req.Payload) > dispatchapi.MaxPayload {
		return nil, fmt.Errorf("the payload has %d bytes of JSON, the limit is %d; send less at once", len(req.Payload), dispatchapi.MaxPayload)
	}
	sent, err := s.in.Outbound.Send(ctx, req)
	var rejected *dispatchapi.RejectedError
	switch {
	case errors.As(err, &rejected):
		return nil, errors.New(rejected.Detail)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUnsent, err)
	}
	result := map[string]any{"delivery_id": sent.DeliveryID.String(), "status": sent.Status}
	if sent.Reason != "" {
		result["reason"] = sent.Reason
	}
	return result, nil
}
