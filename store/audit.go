// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// MaxAuditDocument is the most bytes of what an audit entry keeps of an object,
// before and after each.
const MaxAuditDocument = 16 << 10

// AuditActorKind says how somebody acted.
type AuditActorKind string

// Kinds of actors.
const (
	// AuditAPIKey called the REST API; Name is that of the APIKey object.
	AuditAPIKey AuditActorKind = "api_key"
	// AuditCommand ran a command of an operator; Name is the user's.
	AuditCommand AuditActorKind = "command"
	// AuditWriter wrote an object through the Kubernetes API; Name is that of the
	// field manager (kubectl, agentctl, a GitOps controller), which the writer
	// chooses itself.
	AuditWriter AuditActorKind = "kubernetes"
)

// AuditActor is who acted.
type AuditActor struct {
	Kind AuditActorKind
	Name string
	// KeyID is the id of an API key; OwnerKind and OwnerName say whose it is.
	KeyID                string
	OwnerKind, OwnerName string
}

// AuditObject is what was acted on, as far as known.
type AuditObject struct {
	// Kind is the noun of the REST API: connector, link, api_key.
	Kind, ID, Name string
}

// AuditEntry is an act that changes something, or would have. It is recorded
// before its effect and has no Outcome until that is recorded too; one that
// stays without may or may not have had its effect.
type AuditEntry struct {
	// ID is set by the store: a UUIDv7 by the database's clock.
	ID uuid.UUID
	// ProjectID is the project that it is about; nil for the platform itself.
	ProjectID uuid.UUID
	// At is set by the store: when it was recorded.
	At    time.Time
	Actor AuditActor
	// Operation names the act: createConnector, "keys rotate".
	Operation string
	// Method and Route are of an HTTP request: POST and the path's template.
	Method, Route string
	// IdempotencyKey is that of the request, "" without one.
	IdempotencyKey string
	Object         AuditObject
	RequestID      string
	// RemoteAddr is the address that the request came from, without a port.
	RemoteAddr string
	Outcome    *AuditOutcome
}

// AuditOutcome is what became of an act.
type AuditOutcome struct {
	// At is set by the store.
	At time.Time
	// Status is that of the HTTP answer; 0 where there was none.
	Status int
	// Code is the problem's code; "" for success.
	Code string
	// Object says more than the entry's where it is not zero: what was created
	// has its id only now.
	Object AuditObject
	// Before and After are the object as JSON, without secrets, each at most
	// MaxAuditDocument; nil where there is none.
	Before, After json.RawMessage
}

// AuditQuery selects entries of one project (nil: the platform's own), newest
// first.
type AuditQuery struct {
	ProjectID uuid.UUID
	// Before is the id of the last entry of the page before, or nil.
	Before *uuid.UUID
	Limit  int
}

// Audit is the log of who changed what. Nothing in it is ever changed; texts that
// are too long are cut.
type Audit interface {
	// RecordAudit records an act, with its outcome where it has one already, and
	// returns its id.
	RecordAudit(ctx context.Context, e AuditEntry) (uuid.UUID, error)
	// RecordAuditOutcome records what became of an act, once.
	RecordAuditOutcome(ctx context.Context, projectID, id uuid.UUID, o AuditOutcome) error
	// ListAudit returns a page of entries with their outcomes.
	ListAudit(ctx context.Context, q AuditQuery) ([]AuditEntry, error)
}
