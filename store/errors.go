// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// Sentinels that the engines return, by errors.Is. With any other error the outcome is unknown.
var (
	// ErrNotFound means that there is no such row.
	ErrNotFound = errors.New("not found")
	// ErrFenced means that the caller's claim on a run is no longer current: another runner has the
	// run, or it ended.
	ErrFenced = errors.New("claim is no longer current")
	// ErrConflict means that the change contradicts the state of the row.
	ErrConflict = errors.New("conflict")
	// ErrBundleGone means that the bundle of the deployment is no longer stored.
	ErrBundleGone = errors.New("the bundle of the deployment is no longer stored")
	// ErrNotLive means that the written object mirrors an activation that is no longer in effect.
	ErrNotLive = errors.New("another activation is in effect in the environment")
	// ErrNothingLive means that the written object mirrors an activation, and none is in effect.
	ErrNothingLive = errors.New("nothing is live in the environment")
	// ErrLeaving means that an environment with this ID was deleted and its runs are being
	// cancelled. The caller retries after a moment.
	ErrLeaving = errors.New("runs of the previous environment with this ID are still being cancelled; this is retried")
	// ErrNameReused means that a deployment ID belongs to another source.
	ErrNameReused = errors.New("the deployment name was used for another source")
	// ErrSearchTooBroad means that a search would have to read too many runs for statistics, or
	// that a list found no run in its time.
	ErrSearchTooBroad = errors.New("the search is too broad")
	// ErrSearchBusy replaces ErrSearchTooBroad if most of the time was spent waiting for other
	// searches.
	ErrSearchBusy = errors.New("other searches used the time of this one; retry later")
	// ErrAway means that the store is reachable but must not be used in its current state.
	ErrAway = errors.New("the store cannot be used")
	// ErrForeignSchema means that other migrations than this release's created the schema: the
	// store belongs to another version with the same migration numbers.
	ErrForeignSchema = errors.New("other migrations than this release's created the schema of the store")
	// ErrNewerSchema means that a newer release has migrated the schema, and that the schema does not
	// work with this release.
	ErrNewerSchema = errors.New("a newer release has migrated the schema of the store")
	// ErrSweepRefused means that a sweep would have deleted most of the projection of a kind. That
	// is more likely a lost cluster than deletions.
	ErrSweepRefused = errors.New("the sweep would delete most of the projection")
)

// StaleError means that an object is older than its stored state: the caller's cache is stale, or
// etcd was restored. An uncached read distinguishes the two.
type StaleError struct {
	// Stored is the stored generation.
	Stored int64
	// Writes is the write counter of the claim; see ObjectRef.Restored.
	Writes int64
}

// Error names the stored generation.
func (e *StaleError) Error() string {
	return fmt.Sprintf("older than the stored generation %d", e.Stored)
}

// IDTakenError means that another object of the project has claimed the ID.
type IDTakenError struct {
	// Holder is the object with the claim.
	Holder ObjectRef
}

// Error names the holder.
func (e *IDTakenError) Error() string {
	return fmt.Sprintf("the ID is taken by %s", e.Holder)
}

// ConnectorRefusedError names the connector of an activation that cannot be projected with its
// links.
type ConnectorRefusedError struct {
	Connector uuid.UUID
	// Cause is the error that PutConnector or PutLink would return.
	Cause error
}

// Error returns the text of the cause.
func (e *ConnectorRefusedError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *ConnectorRefusedError) Unwrap() error { return e.Cause }

// LimitReachedError means that the project has reached its limit of environments.
type LimitReachedError struct {
	// Limit is the maximum number of environments.
	Limit int
	// Stored means that the environment is in effect, because it existed before the limit was
	// lowered.
	Stored bool
}

// Error names the limit.
func (e *LimitReachedError) Error() string {
	return fmt.Sprintf("the project's limit of %d environments is reached", e.Limit)
}

// TooManyLinksError means that the connector has MaxLinks other links.
type TooManyLinksError struct{}

// Error names the limit.
func (*TooManyLinksError) Error() string {
	return fmt.Sprintf("the connector has %d links already", MaxLinks)
}

// TooManyOutboundLinksError means that the agent of a link has MaxOutboundLinks other links to
// outbound connectors of the environment.
type TooManyOutboundLinksError struct{}

// Error names the limit.
func (*TooManyOutboundLinksError) Error() string {
	return fmt.Sprintf("the agent has %d links to outbound connectors in the environment already", MaxOutboundLinks)
}
