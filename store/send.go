// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
)

const (
	// MaxPayload is how many bytes of JSON a run sends at once.
	MaxPayload = 256 << 10
	// MaxSends is how many deliveries a run makes at most while it runs.
	MaxSends = 1000
	// MaxSent is how many bytes of JSON it sends at most in all.
	MaxSent = 16 << 20
)

// DeliveryKind says what a delivery carries, in the word that its receivers see too.
type DeliveryKind string

// Kinds of deliveries.
const (
	// DeliverResult is what a run has ended with.
	DeliverResult DeliveryKind = "result"
	// DeliverPayload is what a run sends while it runs.
	DeliverPayload DeliveryKind = "payload"
	// DeliverFailure is word of another delivery that has failed.
	DeliverFailure DeliveryKind = StatusDeliveryFailed
	// DeliverTest is an example, which somebody has asked for: no run has to do with it.
	DeliverTest DeliveryKind = "test"
)

// TooManySendsError says that a run has made MaxSends deliveries.
type TooManySendsError struct{}

// Error names the limit.
func (*TooManySendsError) Error() string {
	return fmt.Sprintf("the run has sent %d times, which is the most that a run may", MaxSends)
}

// TooMuchSentError says that a run would have sent more than MaxSent.
type TooMuchSentError struct{}

// Error names the limit.
func (*TooMuchSentError) Error() string {
	return fmt.Sprintf("the run would have sent more than %d MiB in all, which is the most that a run may", MaxSent>>20)
}

// StorageFullError says that a project has stored as much as it may.
type StorageFullError struct {
	// Stored is in bytes, as Limit is.
	Stored, Limit int64
}

// Error names both.
func (e *StorageFullError) Error() string {
	return fmt.Sprintf("the project has stored %d bytes and may have %d", e.Stored, e.Limit)
}

// ActionTakenError says that the agent of a link has a tool of that name already, by a link
// that was there earlier.
type ActionTakenError struct {
	Name   string
	Holder ObjectRef
}

// Error names both.
func (e *ActionTakenError) Error() string {
	return fmt.Sprintf("the agent has a tool %q by %s already", e.Name, e.Holder)
}

// Action is a tool by which an agent sends to an outbound connector.
type Action struct {
	AgentName string
	// Name is the tool's, Connector that of where it sends.
	Name, Connector string
}

// Send is a payload that a run sends while it runs.
type Send struct {
	// Lease is the claim under which it runs.
	Lease Lease
	// Mode is that of the link over which it goes, LinkAgentTool or LinkMiddleware. Name is
	// then the link's action name, or the connector's name.
	Mode LinkMode
	Name string
	// Position is the number of the journal entry with which the run noted that it would
	// send: what it sends from one position it sends once.
	Position int64
	// Payload is JSON, which is delivered as it is.
	Payload json.RawMessage
}

// Check says ErrTooLarge of a payload beyond MaxPayload, ErrInvalid of one that is no JSON,
// of a position that no entry has, and of another mode.
func (s Send) Check() error {
	switch {
	case len(s.Payload) > MaxPayload:
		return fmt.Errorf("the payload has %d bytes of JSON, at most %d are sent: %w", len(s.Payload), MaxPayload, ErrTooLarge)
	case !json.Valid(s.Payload):
		return fmt.Errorf("the payload is not JSON: %w", ErrInvalid)
	case s.Position < 1:
		return fmt.Errorf("the position is %d, journal entries count from 1: %w", s.Position, ErrInvalid)
	case s.Mode != LinkAgentTool && s.Mode != LinkMiddleware:
		return fmt.Errorf("nothing is sent by links of the mode %.64q: %w", string(s.Mode), ErrInvalid)
	}
	return nil
}

// Sent is what became of a payload.
type Sent struct {
	// DeliveryID is the connector run's.
	DeliveryID uuid.UUID
	// Skipped is why it is not sent; "" where it is.
	Skipped string
}

// Sends are what runs send while they run.
type Sends interface {
	// Send makes a delivery of a payload, once for each position of a run: asked again it
	// answers what it did. One to a connector that is disabled, or paused, is skipped, with
	// the reason. It answers ErrFenced where the claim is not current, ErrNotFound where the
	// run's agent has no such link to an outbound connector of its environment,
	// *TooManySendsError, *TooMuchSentError, *StorageFullError, and what Check says; ErrInvalid
	// also of a position that the journal does not have. What it has sent it answers also
	// where it may send no more.
	Send(ctx context.Context, s Send) (Sent, error)
	// Actions are the tools by which agents send in an environment, at most MaxOutboundLinks of
	// each, each name once, in the order in which their links were made.
	Actions(ctx context.Context, environment Key, agents []string) ([]Action, error)
}
