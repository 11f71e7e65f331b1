// SPDX-License-Identifier: Apache-2.0

package store

import (
	"time"

	"github.com/google/uuid"
)

// Lease durations.
const (
	// LeaseDuration is how long a claim lasts without a heartbeat.
	LeaseDuration = 30 * time.Second
	// UnconfirmedLease is how long a new claim lasts. Its response may be lost, and the runner
	// confirms it at once with a heartbeat.
	UnconfirmedLease = 5 * time.Second
)

// Class orders the runs of an environment's queue.
type Class int

// Classes, in order of priority.
const (
	// ClassSync is a run with a waiting caller.
	ClassSync Class = iota
	// ClassInbound is a run of an external event.
	ClassInbound
	// ClassDeferred is a run of a cron tick or a replay.
	ClassDeferred
)

// Classes is the number of classes.
const Classes = 3

// String returns the label of the class in metrics.
func (c Class) String() string { return [...]string{"sync", "inbound", "deferred"}[c] }

// Claim is a request of a runner for queued runs of an environment.
type Claim struct {
	Environment Key
	// RunnerID identifies the runner process. Leases belong to this ID.
	RunnerID string
	// Digests are the bundles that the runner has, recorded for prefetching. Runs of Refused
	// bundles are not given to the runner.
	Digests, Refused []string
	// Slots is the number of slots of the runner.
	Slots int
	// Limit is the maximum number of runs to claim. With 0 the claim only records the runner and
	// returns lost leases.
	Limit int
	// Holding are the leases of the runs in progress on the runner.
	Holding []Lease
	// Lease is the duration of the new leases.
	Lease time.Duration
}

// RunnerKey identifies a runner process.
type RunnerKey struct {
	Environment Key
	ID          string
}

// ClaimResult is the result of a claim.
type ClaimResult struct {
	// Runs are newly claimed runs, and runs of an earlier response that did not reach the runner.
	Runs []Claimed
	// Lost are the leases of Claim.Holding that are no longer current.
	Lost []Lease
	// More reports that queued runs were left because of a limit or the slots of the pool.
	// TopicFreed notifies when that changes.
	More bool
}

// Claimed is a run that the runner may execute.
type Claimed struct {
	Run Run
	// Token is the fencing token. Every later request for this claim must carry it.
	Token int64
	// LeaseUntil is when the lease ends without a heartbeat. Now is the current time. Both are by
	// the database's clock.
	LeaseUntil, Now time.Time
	// BundleDigest is the digest of the bundle of Run.DeploymentID.
	BundleDigest string
	// Input is the raw input; nil if it is in InputBlob.
	Input       []byte
	InputBlob   *uuid.UUID
	ContentType string
	// Files reports whether the input has attachments, stored or omitted; see RunFiles.
	Files bool
	// Headers are the request headers that the run may see, by lower-case name.
	Headers map[string]string
	// Traceparent is the W3C traceparent of the event; "" without one.
	Traceparent string
	// JournalLength and JournalSize are the number of entries and the bytes that earlier attempts
	// recorded.
	JournalLength, JournalSize int64
}

// Lease identifies one claim.
type Lease struct {
	Run   Key
	Token int64
}

// Held is a claim in progress on a runner, with the runner's report about the run.
type Held struct {
	Lease
	// TestName is the A/B variant that executes the run; "" for the agent itself, and before the
	// choice.
	TestName string
}
