// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// Sentinels that the engines answer, by errors.Is. Any other error means that
// the outcome is unknown.
var (
	// ErrNotFound says that no such row exists.
	ErrNotFound = errors.New("not found")
	// ErrFenced says that the caller's claim on a run is no longer the current
	// one: another runner has it, or it ended.
	ErrFenced = errors.New("claim is no longer current")
	// ErrConflict says that the change contradicts the state of the row.
	ErrConflict = errors.New("conflict")
	// ErrBundleGone says that what a deployment's build made is not stored any more.
	ErrBundleGone = errors.New("what the deployment's build made is not stored any more")
	// ErrNotLive says that what is put mirrors an activation that another one has followed.
	ErrNotLive = errors.New("another activation is in effect in the environment")
	// ErrNothingLive says that what is put mirrors an activation, and none is in effect.
	ErrNothingLive = errors.New("nothing is live in the environment")
	// ErrLeaving says that an environment of that id was deleted and its runs are being
	// cancelled; what was asked is to be tried again in a moment.
	ErrLeaving = errors.New("runs of the environment that had this id before are still being cancelled; this is tried again")
	// ErrNameReused says that a deployment id is taken by another source.
	ErrNameReused = errors.New("deployment name was used before for another source")
	// ErrSearchTooBroad says that too many runs would have to be looked at to tell numbers of those
	// that somebody looks for, or that a list could look for none in its time.
	ErrSearchTooBroad = errors.New("the search is too broad")
	// ErrSearchBusy says so where most of the time went by in waiting for other searches.
	ErrSearchBusy = errors.New("other searches took the time of this one; try again")
	// ErrAway says that the store is there and must not be used as it is.
	ErrAway = errors.New("the store cannot be used")
	// ErrForeignSchema says that the schema was made by other migrations than this release's: the store is
	// that of another version, which numbers its migrations alike.
	ErrForeignSchema = errors.New("the store's schema was made by other migrations than this release has")
	// ErrSweepRefused says that a sweep would have removed most of a kind of the
	// projection, which looks more like a lost cluster than like deletions.
	ErrSweepRefused = errors.New("sweep would remove most of the projection")
)

// StaleError says that an object is older than what is stored of it: the
// caller's cache is behind, or etcd was restored. An uncached read tells which.
type StaleError struct {
	// Stored is the generation that is stored.
	Stored int64
	// Writes counts the writes of the claim; see ObjectRef.Restored.
	Writes int64
}

// Error shows the stored generation.
func (e *StaleError) Error() string {
	return fmt.Sprintf("older than generation %d, which is stored", e.Stored)
}

// IDTakenError says that an id is claimed by another object of the project.
type IDTakenError struct {
	// Holder is the object that holds the id.
	Holder ObjectRef
}

// Error names the holder.
func (e *IDTakenError) Error() string {
	return fmt.Sprintf("id is taken by %s", e.Holder)
}

// ConnectorRefusedError says which connector of an activation cannot be projected, with its links.
type ConnectorRefusedError struct {
	Connector uuid.UUID
	// Cause is what PutConnector or PutLink would say.
	Cause error
}

// Error is the cause.
func (e *ConnectorRefusedError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *ConnectorRefusedError) Unwrap() error { return e.Cause }

// LimitReachedError says that a project has as many environments as it may have.
type LimitReachedError struct {
	// Limit is how many it may have.
	Limit int
	// Stored: the environment is in effect, as it was before the limit was lowered.
	Stored bool
}

// Error names the limit.
func (e *LimitReachedError) Error() string {
	return fmt.Sprintf("the project's limit of %d environments is reached", e.Limit)
}

// TooManyLinksError says that a connector has MaxLinks others.
type TooManyLinksError struct{}

// Error names the limit.
func (*TooManyLinksError) Error() string {
	return fmt.Sprintf("the connector has %d links already", MaxLinks)
}

// TooManyOutboundLinksError says that the agent of a link has MaxOutboundLinks others to
// outbound connectors of the environment.
type TooManyOutboundLinksError struct{}

// Error names the limit.
func (*TooManyOutboundLinksError) Error() string {
	return fmt.Sprintf("the agent has %d links to outbound connectors in the environment already", MaxOutboundLinks)
}
