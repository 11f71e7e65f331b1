// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Event is one accepted webhook request (or cron tick): a connector run and
// one agent run for each link, committed together.
type Event struct {
	// ConnectorRunID, and those of the runs, are UUIDv7 that the caller made; the
	// store stamps them, see Stamp, and says in the Admission what they became.
	ConnectorRunID uuid.UUID
	ProjectID      uuid.UUID
	EnvironmentID  uuid.UUID
	ConnectorID    uuid.UUID
	// ConnectorVersion is what the caller checked the request against; when the
	// stored one differs nothing is written.
	ConnectorVersion int64
	// SecretNotAfter is the end of the secret that the caller accepted; nil for
	// the current one and where none is needed. Once it is reached, by the
	// database's clock, nothing is written: Outdated.
	SecretNotAfter *time.Time
	Trigger        TriggerType
	// Class is that of its runs.
	Class Class
	// Repeat says that the caller, who has read no input, takes the event's key for
	// a known one: where it is not, the verdict is Expired.
	Repeat bool
	// Input is the raw body, at most MaxInlineInput bytes; larger ones are at InputBlob.
	Input []byte
	// InputBlob is a complete blob, or nil.
	InputBlob *uuid.UUID
	// ContentType says how Input is to be read.
	ContentType string
	// Files are its attachments, at most MaxNamedFiles; the accepted ones are complete blobs.
	Files []File
	// Headers are those of its request that the runs see, by their names in lower case: at
	// most MaxContextHeaders, each value of at most MaxHeaderValue bytes.
	Headers map[string]string
	// Hops is how many deliveries of platforms it has come by; those of its runs have one more.
	Hops int
	// Runs are the agent runs, one a link. A link of which files are required
	// and missing has ErrorCode set: its run is recorded as failed at once.
	Runs []EventRun
	// Idempotency is nil when the request named no key.
	Idempotency *Idempotency
	// Tick is set for an event that a tick of a cron connector makes: the connector's next
	// one is written with it. Where the tick is not due any more, nothing of the whole call
	// is written: ErrTickTaken.
	Tick *TickMove
	// ReplayOf is the connector run of which the event is a replay, nil of one that came in.
	ReplayOf *uuid.UUID
	// Step is set for an event that a replay of many makes: it is taken on with it. Where
	// somebody else has done that, nothing of the whole call is written: ErrReplayMoved.
	Step *ReplayStep
	// Skipped says why an event without Runs starts none; its connector run is recorded as
	// skipped then. An event without Runs and without a reason is completed at once.
	Skipped string
	// RunnerID, unless empty, is of a runner of the environment with a free place that
	// was told there is nothing to claim. If the event MayBegin, and the live deployment
	// has its agent without limits, its run begins there with the acceptance: see
	// Admission.Begun. Else it is queued.
	RunnerID string
}

// MayBegin says whether the event's run could begin with its acceptance, as far as the
// event tells: somebody waits for it, it is the only one and waits for no other. Runs of
// other classes are counted against the pool's places, which a claim does.
func (e Event) MayBegin() bool {
	return e.Class == ClassSync && len(e.Runs) == 1 && e.Runs[0].ErrorCode == "" && e.Runs[0].Concurrency == ConcurrencyKey{}
}

// EventRun is one agent run of an event.
type EventRun struct {
	ID        uuid.UUID // UUIDv7
	LinkID    uuid.UUID
	AgentName string
	// Concurrency says which other runs it takes turns with.
	Concurrency ConcurrencyKey
	// ErrorCode and Error record the run as failed at once; empty for a run to
	// queue.
	ErrorCode RunErrorCode
	Error     string
}

// Idempotency makes a repeated request find the first one's rows.
type Idempotency struct {
	// Key is the caller's, at most 255 bytes, made unique by its source
	// ("key:…" or "webhook-id:…").
	Key string
	// Fingerprint is the SHA-256 of the body; nil compares nothing.
	Fingerprint []byte
	// TTL is how long the key is remembered.
	TTL time.Duration
}

// Verdict is what became of an event.
type Verdict int

// Verdicts.
const (
	// Accepted: the rows are durable.
	Accepted Verdict = iota
	// Outdated: the connector's version is another, or the secret has ended;
	// nothing was written, read the route again.
	Outdated
	// Repeated: the key was used before for the same body; the rows are the
	// first request's.
	Repeated
	// KeyReused: the key was used before for another body.
	KeyReused
	// Expired: the key of a repetition is not known any more; nothing was written.
	Expired
)

// Admission is the answer to one event.
type Admission struct {
	Verdict Verdict
	// ConnectorRunID and RunIDs are those of the event, or of the first request
	// under its key; in the order of its links.
	ConnectorRunID uuid.UUID
	RunIDs         []uuid.UUID
	// Begun is the event's run where it has begun at Event.RunnerID, under a lease of
	// UnconfirmedLease; nil where it is queued.
	Begun *Claimed
	// Err is set when this event alone could not be stored; Verdict is
	// meaningless then, and nothing of this event was written.
	Err error
}

// Ingest takes events.
type Ingest interface {
	// Accept stores events, each whole and those that are as usual in one transaction,
	// and answers each, in order. A bad event fails only itself. With an error the outcome of those is unknown
	// whose Admission has it as its Err; the others are as they say.
	Accept(ctx context.Context, events []Event) ([]Admission, error)
	// KnownKey says whether an idempotency key of a connector stands for a request.
	KnownKey(ctx context.Context, connector Key, key string) (bool, error)
}
