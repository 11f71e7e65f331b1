// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
)

const (
	// MaxPayload is the maximum size of a payload that a run sends, in bytes of JSON.
	MaxPayload = 256 << 10
	// MaxSends is the maximum number of deliveries that a run creates while it runs.
	MaxSends = 1000
	// MaxSent is the maximum total size of these payloads in bytes of JSON.
	MaxSent = 16 << 20
)

// DeliveryKind is the kind of a delivery. Receivers see the same value.
type DeliveryKind string

// Kinds of deliveries.
const (
	// DeliverResult is the result of an ended run.
	DeliverResult DeliveryKind = "result"
	// DeliverPayload is a payload that a run sends while it runs.
	DeliverPayload DeliveryKind = "payload"
	// DeliverFailure is a notice of another delivery that failed.
	DeliverFailure DeliveryKind = StatusDeliveryFailed
	// DeliverTest is a test delivery that a user requested. It belongs to no run.
	DeliverTest DeliveryKind = "test"
)

// TooManySendsError means that a run has made MaxSends deliveries.
type TooManySendsError struct{}

// Error names the limit.
func (*TooManySendsError) Error() string {
	return fmt.Sprintf("the run has reached the limit of %d sends", MaxSends)
}

// TooMuchSentError means that a run would exceed MaxSent.
type TooMuchSentError struct{}

// Error names the limit.
func (*TooMuchSentError) Error() string {
	return fmt.Sprintf("the run would exceed the limit of %d MiB for all its payloads", MaxSent>>20)
}

// StorageFullError means that the project's storage is full.
type StorageFullError struct {
	// Stored and Limit are in bytes.
	Stored, Limit int64
}

// Error names both values.
func (e *StorageFullError) Error() string {
	return fmt.Sprintf("the project has stored %d bytes; the limit is %d", e.Stored, e.Limit)
}

// ActionTakenError means that the agent of a link has a tool with that name from an older link.
type ActionTakenError struct {
	Name   string
	Holder ObjectRef
}

// Error names agent and tool.
func (e *ActionTakenError) Error() string {
	return fmt.Sprintf("the agent already has a tool %q from %s", e.Name, e.Holder)
}

// Action is a tool with which an agent sends to an outbound connector.
type Action struct {
	AgentName string
	// Name is the name of the tool. Connector is the name of its connector.
	Name, Connector string
}

// Send is a payload that a run sends while it runs.
type Send struct {
	// Lease is the claim of the run.
	Lease Lease
	// Mode is the mode of the link, LinkAgentTool or LinkMiddleware. Name is the link's action name
	// or the connector's name.
	Mode LinkMode
	Name string
	// Position is the number of the journal entry that announced the send. A run sends once per
	// position.
	Position int64
	// Payload is JSON, which is sent unchanged.
	Payload json.RawMessage
}

// Check returns ErrTooLarge for a payload above MaxPayload. It returns ErrInvalid for a payload
// that is not JSON, an impossible position, or another mode.
func (s Send) Check() error {
	switch {
	case len(s.Payload) > MaxPayload:
		return fmt.Errorf("the payload has %d bytes of JSON; the limit is %d: %w", len(s.Payload), MaxPayload, ErrTooLarge)
	case !json.Valid(s.Payload):
		return fmt.Errorf("the payload is not JSON: %w", ErrInvalid)
	case s.Position < 1:
		return fmt.Errorf("the position is %d; journal entries start at 1: %w", s.Position, ErrInvalid)
	case s.Mode != LinkAgentTool && s.Mode != LinkMiddleware:
		return fmt.Errorf("links of the mode %.64q do not send: %w", string(s.Mode), ErrInvalid)
	}
	return nil
}

// Sent is the result of a Send.
type Sent struct {
	// DeliveryID is the ID of the connector run.
	DeliveryID uuid.UUID
	// Skipped is the reason if the payload is not sent; otherwise "".
	Skipped string
}

// Sends creates deliveries for runs in progress.
type Sends interface {
	// Send creates a delivery of a payload, once per position of a run. A repetition returns the
	// first result, even if the run may send no more. A delivery to a disabled or paused connector
	// is skipped, with the reason. It returns
	//
	//   - ErrFenced if the claim is not current;
	//   - ErrNotFound if the run's agent has no such link to an outbound connector of its
	//     environment;
	//   - *TooManySendsError, *TooMuchSentError and *StorageFullError;
	//   - the errors of Send.Check, and ErrInvalid for a position that is not in the journal.
	Send(ctx context.Context, s Send) (Sent, error)
	// Actions returns the tools with which agents send in an environment, at most MaxOutboundLinks
	// per agent, each name once, in the order of link creation.
	Actions(ctx context.Context, environment Key, agents []string) ([]Action, error)
}
