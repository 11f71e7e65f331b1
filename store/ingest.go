// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
)

// Event is an accepted webhook request or cron tick: a connector run with one agent run per link,
// committed together.
type Event struct {
	// ConnectorRunID and the IDs of the runs are UUIDv7 from the caller. The store stamps them, see
	// Stamp, and returns the final IDs in the Admission.
	ConnectorRunID uuid.UUID
	ProjectID      uuid.UUID
	EnvironmentID  uuid.UUID
	ConnectorID    uuid.UUID
	// ConnectorVersion is the version that the caller checked the request against. If the stored
	// version differs, nothing is written.
	ConnectorVersion int64
	// SecretNotAfter is the expiry of the accepted secret; nil for the current secret and without
	// authentication. If it has passed by the database's clock, nothing is written and the verdict
	// is Outdated.
	SecretNotAfter *time.Time
	Trigger        TriggerType
	// Class is the class of the runs.
	Class Class
	// Repeat means that the caller expects the key to be known and has not read the input. If the
	// key is unknown, the verdict is Expired.
	Repeat bool
	// Input is the raw body, at most MaxInlineInput bytes. A larger body is in InputBlob.
	Input []byte
	// InputBlob is a complete blob, or nil.
	InputBlob *uuid.UUID
	// ContentType is the media type of Input.
	ContentType string
	// Files are the attachments, at most MaxNamedFiles. Accepted files are complete blobs.
	Files []File
	// Headers are the request headers that the runs may see, by lower-case name: at most
	// MaxContextHeaders, with values of at most MaxHeaderValue bytes.
	Headers map[string]string
	// Traceparent is the W3C traceparent of the request; "" without a valid one.
	Traceparent string
	// Hops is the number of platform deliveries that led to the event. Deliveries of its runs have
	// one more.
	Hops int
	// Runs are the agent runs, one per link. If a link requires missing files, its run has
	// ErrorCode set and is recorded as failed.
	Runs []EventRun
	// Idempotency is nil without an idempotency key.
	Idempotency *Idempotency
	// Tick is set for the tick of a cron connector. The next tick is written with the event. If the
	// tick is no longer due, the whole call writes nothing and returns ErrTickTaken.
	Tick *TickMove
	// ReplayOf is the connector run that the event replays; nil for an original.
	ReplayOf *uuid.UUID
	// Step is set for an event of a bulk replay, which advances with it. If another process has
	// advanced the replay, the whole call writes nothing and returns ErrReplayMoved.
	Step *ReplayStep
	// Skipped is the reason why an event without Runs starts none. Its connector run is recorded as
	// skipped. An event without Runs and reason completes at once.
	Skipped string
	// RunnerID, unless empty, is a runner of the environment with a free slot whose last claim
	// found nothing. If MayBegin is true and the live deployment has the agent without limits, the
	// run starts on this runner with the acceptance: see Admission.Begun. Otherwise it is queued.
	RunnerID string
}

// MayBegin reports whether the event allows a direct handoff: a caller waits, and the run is the
// only one and waits for no other run. Runs of other classes count against the slots of the pool,
// which only a claim checks.
func (e Event) MayBegin() bool {
	return e.Class == ClassSync && len(e.Runs) == 1 && e.Runs[0].ErrorCode == "" && e.Runs[0].Concurrency == ConcurrencyKey{}
}

// EventRun is an agent run of an event.
type EventRun struct {
	ID        uuid.UUID // UUIDv7
	LinkID    uuid.UUID
	AgentName string
	// Concurrency is the concurrency key of the run.
	Concurrency ConcurrencyKey
	// ErrorCode and Error record the run as failed at once; empty for a run to be queued.
	ErrorCode runerror.Code
	Error     string
}

// Idempotency makes a duplicate request return the rows of the first one.
type Idempotency struct {
	// Key is the caller's key, at most 255 bytes, with a prefix for its source ("key:…" or
	// "webhook-id:…").
	Key string
	// Fingerprint is the SHA-256 of the body. If it is nil, bodies are not compared.
	Fingerprint []byte
	// TTL is how long the key is stored.
	TTL time.Duration
}

// Verdict is the result of an event.
type Verdict int

// Verdicts.
const (
	// Accepted means that the rows are durable.
	Accepted Verdict = iota
	// Outdated means that the connector's version differs or the secret has expired. Nothing was
	// written, and the caller must read the route again.
	Outdated
	// Repeated means that the key was used for the same body. The rows are the first request's.
	Repeated
	// KeyReused means that the key was used for another body.
	KeyReused
	// Expired means that the key of a duplicate request is no longer known. Nothing was written.
	Expired
)

// Admission is the result for one event.
type Admission struct {
	Verdict Verdict
	// ConnectorRunID and RunIDs are the IDs of the event, or of the first request with its key, in
	// the order of the links.
	ConnectorRunID uuid.UUID
	RunIDs         []uuid.UUID
	// Begun is the run if it has started on Event.RunnerID, with a lease of UnconfirmedLease; nil
	// if it is queued.
	Begun *Claimed
	// Err is set if this event could not be stored. Verdict is then meaningless, and nothing of
	// this event was written.
	Err error
}

// Ingest accepts events.
type Ingest interface {
	// Accept stores events and returns a result for each, in order. Each event is stored as a
	// whole, and ordinary events share a transaction. An invalid event affects only itself. If
	// Accept returns an error, the outcome is unknown for the events whose Admission has it as Err.
	// The other results are valid.
	Accept(ctx context.Context, events []Event) ([]Admission, error)
	// KnownKey reports whether an idempotency key of a connector is known.
	KnownKey(ctx context.Context, connector Key, key string) (bool, error)
}
