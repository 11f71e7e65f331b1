// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// ErrGone means that the requested data is no longer stored.
var ErrGone = errors.New("no longer stored")

// EventInput is the input of an event. Neither Data nor Blob is set for an event without input,
// such as a skipped tick.
type EventInput struct {
	ContentType string
	// Data is the raw input, at most MaxInlineInput bytes. A larger input is in Blob.
	Data []byte
	Blob *uuid.UUID
	// Files are the attachments, accepted and omitted.
	Files []File
	// Headers are the request headers that the runs may see.
	Headers map[string]string
	// Hops is the number of platform deliveries that led to the event.
	Hops int
}

// Redelivery is a request to send a delivery again.
type Redelivery struct {
	// Of is the connector run of the original delivery, open or ended.
	Of Key
	// Idempotency is nil without an idempotency key.
	Idempotency *Idempotency
	// Step advances a bulk replay in the same transaction. If it cannot, nothing is written:
	// ErrReplayMoved.
	Step *ReplayStep
}

// TestDelivery is a request for a test delivery.
type TestDelivery struct {
	Connector Key
	// Payload is JSON of at most MaxInlineInput bytes, which is sent unchanged.
	Payload json.RawMessage
	// Idempotency is nil without an idempotency key.
	Idempotency *Idempotency
}

// Check returns ErrTooLarge for a payload above MaxInlineInput, and ErrInvalid for a payload that
// is not JSON.
func (t TestDelivery) Check() error {
	switch {
	case len(t.Payload) > MaxInlineInput:
		return fmt.Errorf("the payload has %d bytes; the limit is %d: %w", len(t.Payload), MaxInlineInput, ErrTooLarge)
	case !json.Valid(t.Payload):
		return fmt.Errorf("the payload is not JSON: %w", ErrInvalid)
	}
	return nil
}

// Replays reads and writes the data of replays and requested deliveries, in addition to Ingest.
type Replays interface {
	// EventInput returns the input of a connector run that is not a delivery; ErrNotFound if it is
	// not stored.
	EventInput(ctx context.Context, connectorRun Key) (EventInput, error)
	// KnownRequest returns the admission of the request with the key: Repeated, or KeyReused if the
	// fingerprints differ. ErrNotFound if the key is unknown.
	KnownRequest(ctx context.Context, connector Key, key Idempotency) (Admission, error)
	// Redeliver creates a delivery with a new ID, due now, with the contents and connector of
	// another delivery. It does not check whether the connector sends: due deliveries of a
	// connector that does not send are skipped. Verdicts are Accepted, Repeated and KeyReused. It
	// returns ErrNotFound if there is no such delivery, and ErrGone if its contents are no longer
	// stored.
	Redeliver(ctx context.Context, r Redelivery) (Admission, error)
	// SendTest creates a test delivery to an outbound connector, due now, even if the connector's
	// deliveries wait for a success. Like Redeliver, it does not check whether the connector sends.
	// Verdicts are Accepted, Repeated and KeyReused. It returns ErrNotFound if there is no such
	// connector in effect, and the errors of TestDelivery.Check.
	SendTest(ctx context.Context, t TestDelivery) (Admission, error)
	// RetryDeliveryNow makes the next attempt of a waiting delivery due now, even if the connector's
	// deliveries wait for a success. A due delivery stays due. Like Redeliver, it does not check
	// whether the connector sends. Verdicts are Accepted (the connector run is the delivery
	// itself), Repeated and KeyReused. It returns ErrConflict during an attempt, and ErrNotFound if
	// the delivery does not exist or has ended.
	RetryDeliveryNow(ctx context.Context, delivery Key, key *Idempotency) (Admission, error)
}
