// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	adktool "google.golang.org/adk/v2/tool"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// CodeToolNameTaken is of a run whose agent has two tools of one name, one of them by a link
// to a connector.
const CodeToolNameTaken = "tool_name_taken"

// Outbound sends payloads to outbound connectors.
type Outbound interface {
	// Send sends what a request says, under the run's claim: its token is not set. A
	// *dispatchapi.RejectedError is the agent's to hear of; any other error ends the attempt.
	Send(ctx context.Context, req dispatchapi.SendRequest) (dispatchapi.SendResponse, error)
}

// errUnsent is of a payload of which nobody knows whether it was sent: a later attempt asks
// again, from the same position.
var errUnsent = errors.New("sending to a connector")

// sendTools are the tools by which the run's agent sends, for one of the agents in its tree
// that has tools of these names itself. What an attempt before has called is among them also
// where its link is gone since: the model has seen it.
func (s *scope) sendTools(own []string) (tools []adktool.Tool, err error) {
	if s.in.Outbound == nil {
		return nil, nil
	}
	actions := slices.Clone(s.in.Actions)
	for _, name := range s.journal.sentBy() {
		if !slices.ContainsFunc(actions, func(a dispatchapi.Action) bool { return a.Name == name }) {
			actions = append(actions, dispatchapi.Action{Name: name})
		}
	}
	for _, action := range actions {
		if slices.Contains(own, action.Name) {
			return nil, &failure{code: CodeToolNameTaken, message: fmt.Sprintf(
				"agent %q has a tool %q of its own, and another one by the link to connector %q; give the link another actionName", s.agent.Name, action.Name, action.Connector)}
		}
		tools = append(tools, &journaledTool{scope: s, tool: s.sendTool(action)})
	}
	return tools, nil
}

// sendTool is the tool of an action.
func (s *scope) sendTool(action dispatchapi.Action) Tool {
	return Tool{
		Name:        action.Name,
		Description: fmt.Sprintf("Sends a JSON payload to %q. It is delivered in the background, more than once if need be.", action.Connector),
		Parameters: map[string]any{
			"type": "object",
			"properties": map[string]any{
				"payload": map[string]any{"description": "The JSON body to send: any value, an object most often."},
			},
			"required": []string{"payload"}, "additionalProperties": false,
		},
		Idempotent: true, // from one position of the journal it sends once
		send: func(ctx context.Context, position int64, args map[string]any) (map[string]any, error) {
			payload, ok := args["payload"]
			if !ok || len(args) > 1 {
				return nil, errors.New("this tool takes one argument, payload")
			}
			return s.send(ctx, dispatchapi.SendRequest{Mode: dispatchapi.SendByTool, Name: action.Name, Position: position}, payload)
		},
	}
}

const (
	// sendConnector is what middleware calls its function to send.
	sendConnector = "send_connector"
	// middlewareCalls begins the ids of calls that middleware makes; none of a model's does.
	middlewareCalls = "middleware:"
)

// sendConnector sends a payload to the connector of a name over a link of the mode
// middleware, as the number-th call of the agent's middleware, from 1: the same call in each
// attempt. Its first error ends the attempt; a refusal is for the middleware to deal with.
func (s *scope) sendConnector(ctx context.Context, number int, connector string, payload any) (result map[string]any, refused, err error) {
	if s.in.Outbound == nil {
		return nil, errors.New("nothing can be sent from here"), nil
	}
	t := &journaledTool{scope: s, tool: Tool{
		Name: sendConnector, Idempotent: true,
		send: func(ctx context.Context, position int64, _ map[string]any) (map[string]any, error) {
			return s.send(ctx, dispatchapi.SendRequest{Mode: dispatchapi.SendByMiddleware, Name: connector, Position: position}, payload)
		},
	}}
	got, err := t.call(ctx, fmt.Sprintf("%s%s:%d", middlewareCalls, s.path, number), map[string]any{"action_name": connector, "payload": payload})
	switch {
	case err != nil:
		return nil, nil, s.stop(err)
	case got.Error != "":
		return nil, errors.New(got.Error), nil
	}
	return got.Result, nil, nil
}

// send sends a payload, and answers what a tool does.
func (s *scope) send(ctx context.Context, req dispatchapi.SendRequest, payload any) (map[string]any, error) {
	var err error
	if req.Payload, err = json.Marshal(payload); err != nil {
		return nil, errors.New("the payload cannot be written as JSON")
	}
	if len(req.Payload) > dispatchapi.MaxPayload {
		return nil, fmt.Errorf("the payload has %d bytes of JSON, at most %d are sent; send less at once", len(req.Payload), dispatchapi.MaxPayload)
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

// reserved says whether an id is none that a model's call may have.
func reserved(callID string) bool { return strings.HasPrefix(callID, middlewareCalls) }
