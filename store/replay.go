// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// ErrGone says that what is asked for was stored once, and is not any more.
var ErrGone = errors.New("not stored any more")

// EventInput is what an event came with. Neither Data nor Blob is set of one that has no
// input, such as a tick that was skipped.
type EventInput struct {
	ContentType string
	// Data is the raw input, at most MaxInlineInput bytes; larger ones are in Blob.
	Data []byte
	Blob *uuid.UUID
	// Files are the attachments, accepted and omitted.
	Files []File
	// Headers are those of its request that its runs see.
	Headers map[string]string
	// Hops is how many deliveries of platforms it had come by.
	Hops int
}

// Redelivery asks for another delivery of what one carries.
type Redelivery struct {
	// Of is the connector run of the delivery, which may have ended.
	Of Key
	// Idempotency is nil where the request named no key.
	Idempotency *Idempotency
	// Step takes a replay of many on with it, or nothing is written: ErrReplayMoved.
	Step *ReplayStep
}

// TestDelivery asks for a delivery of an example.
type TestDelivery struct {
	Connector Key
	// Payload is JSON of at most MaxInlineInput bytes, which is delivered as it is.
	Payload json.RawMessage
	// Idempotency is nil where the request named no key.
	Idempotency *Idempotency
}

// Check says ErrTooLarge of a payload beyond MaxInlineInput, and ErrInvalid of one that is no
// JSON.
func (t TestDelivery) Check() error {
	switch {
	case len(t.Payload) > MaxInlineInput:
		return fmt.Errorf("the example has %d bytes, at most %d are sent: %w", len(t.Payload), MaxInlineInput, ErrTooLarge)
	case !json.Valid(t.Payload):
		return fmt.Errorf("the example is not JSON: %w", ErrInvalid)
	}
	return nil
}

// Replays is what replaying, and sending what somebody asks for, reads and writes beside Ingest.
type Replays interface {
	// EventInput is the input of a connector run that is no delivery; ErrNotFound where
	// it is not stored.
	EventInput(ctx context.Context, connectorRun Key) (EventInput, error)
	// KnownRequest is the admission of the request that a key of a connector stands for:
	// Repeated, or KeyReused where the fingerprints differ. ErrNotFound where the key is not
	// known.
	KnownRequest(ctx context.Context, connector Key, key Idempotency) (Admission, error)
	// Redeliver makes a delivery, of an id of its own and due now, of what another one
	// carries and over the same connector. It does not ask whether the connector sends: what
	// is due of one that does not is skipped. Verdicts are Accepted, Repeated and KeyReused.
	// ErrNotFound without such a delivery, ErrGone where what it carries is not stored any
	// more.
	Redeliver(ctx context.Context, r Redelivery) (Admission, error)
	// SendTest makes a delivery of an example to an outbound connector, due now, also where the
	// connector's deliveries wait for one that succeeds. It does not ask whether the connector
	// sends, as Redeliver does not. Verdicts are Accepted, Repeated and KeyReused. ErrNotFound
	// without such a connector that is in effect, and the errors of TestDelivery.Check.
	SendTest(ctx context.Context, t TestDelivery) (Admission, error)
	// Hurry makes the next attempt of a delivery that waits due now, also where its
	// connector's deliveries wait for one that succeeds. One that is due already stays so. It
	// does not ask whether the connector sends, as Redeliver does not. Verdicts are Accepted,
	// of which the connector run is the delivery itself, Repeated and KeyReused. ErrConflict
	// while an attempt is under way, ErrNotFound of what is no delivery, or has ended.
	Hurry(ctx context.Context, delivery Key, key *Idempotency) (Admission, error)
}
