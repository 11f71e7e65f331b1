// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// MaxAuditDocument limits the stored JSON of an object in an audit entry, in bytes, before and
// after each.
const MaxAuditDocument = 16 << 10

// AuditActorKind is the kind of an actor.
type AuditActorKind string

// Kinds of actors.
const (
	// AuditAPIKey is a caller of the REST API. Name is the name of the APIKey object.
	AuditAPIKey AuditActorKind = "api_key"
	// AuditCommand is a command of a platform operator. Name is the user name.
	AuditCommand AuditActorKind = "command"
	// AuditWriter is a writer of the Kubernetes API. Name is the field manager (kubectl, agentctl,
	// a GitOps controller), which the writer chooses.
	AuditWriter AuditActorKind = "kubernetes"
)

// AuditActor is the actor of an audit entry.
type AuditActor struct {
	Kind AuditActorKind
	Name string
	// KeyID is the ID of an API key. OwnerKind and OwnerName identify its owner.
	KeyID                string
	OwnerKind, OwnerName string
}

// AuditObject is the object of an operation, as far as it is known.
type AuditObject struct {
	// Kind is the noun of the REST API: connector, link, api_key.
	Kind, ID, Name string
}

// AuditEntry records an operation that changes something, or tries to. It is recorded before the
// effect and has no Outcome until the outcome is recorded. If an entry never gets an outcome, the
// operation may or may not have had its effect.
type AuditEntry struct {
	// ID is set by the store: a UUIDv7 by the database's clock.
	ID uuid.UUID
	// ProjectID is the project of the operation; nil for the platform itself.
	ProjectID uuid.UUID
	// At is the time of recording. The store sets it.
	At    time.Time
	Actor AuditActor
	// Operation names the operation, such as createConnector or "keys rotate".
	Operation string
	// Method and Route describe an HTTP request: POST and the template of the path.
	Method, Route string
	// IdempotencyKey is the key of the request, "" without one.
	IdempotencyKey string
	Object         AuditObject
	RequestID      string
	// RemoteAddr is the client address of the request, without a port.
	RemoteAddr string
	Outcome    *AuditOutcome
}

// AuditOutcome is the result of an operation.
type AuditOutcome struct {
	// At is set by the store.
	At time.Time
	// Status is the status of the HTTP response; 0 without a response.
	Status int
	// Code is the problem's code; "" for success.
	Code string
	// Object replaces the object of the entry if it is not zero: a created object gets its ID only
	// now.
	Object AuditObject
	// Before and After are the object as JSON, without secrets, at most MaxAuditDocument each; nil
	// if there is none.
	Before, After json.RawMessage
}

// AuditQuery selects entries of one project (nil: the platform), newest first.
type AuditQuery struct {
	ProjectID uuid.UUID
	// Before is the ID of the last entry of the previous page, or nil.
	Before *uuid.UUID
	Limit  int
}

// Audit is the audit log. Entries are never changed. Texts that are too long are truncated.
type Audit interface {
	// RecordAudit records an operation, with its outcome if there is one already, and returns the
	// ID of the entry.
	RecordAudit(ctx context.Context, e AuditEntry) (uuid.UUID, error)
	// RecordAuditOutcome records the outcome of an operation, once.
	RecordAuditOutcome(ctx context.Context, projectID, id uuid.UUID, o AuditOutcome) error
	// ListAudit returns a page of entries with their outcomes.
	ListAudit(ctx context.Context, q AuditQuery) ([]AuditEntry, error)
}
