// SPDX-License-Identifier: Apache-2.0

package store

import (
	"time"

	"github.com/google/uuid"
)

// Times of leases.
const (
	// LeaseDuration is how long a claim on a run holds without a heartbeat.
	LeaseDuration = 30 * time.Second
	// UnconfirmedLease is how long a new claim holds: its answer may be lost on its
	// way, and the runner confirms it at once by a heartbeat.
	UnconfirmedLease = 5 * time.Second
)

// Class orders the runs of an environment's queue.
type Class int

// Classes, the first one first.
const (
	// ClassSync: somebody waits for the answer.
	ClassSync Class = iota
	// ClassInbound: an event from outside.
	ClassInbound
	// ClassDeferred: cron ticks and replays.
	ClassDeferred
)

// Classes is how many there are.
const Classes = 3

// String is the class's word in metrics.
func (c Class) String() string { return [...]string{"sync", "inbound", "deferred"}[c] }

// Claim takes queued runs of an environment for a runner.
type Claim struct {
	Environment Key
	// RunnerID names the runner process: what is leased to it is known by this.
	RunnerID string
	// Digests are the bundles that the runner holds, recorded for prefetching;
	// runs of those that it Refused are not handed to it.
	Digests, Refused []string
	// Places is the most runs of the runner at a time.
	Places int
	// Limit is the most runs to take; 0 only records the runner and tells what is lost.
	Limit int
	// Holding are the claims that the runner works on.
	Holding []Lease
	// Lease is how long the claims hold.
	Lease time.Duration
}

// RunnerKey names a runner process.
type RunnerKey struct {
	Environment Key
	ID          string
}

// ClaimResult is what a runner is told.
type ClaimResult struct {
	// Runs are newly claimed, or were before in an answer that did not reach the runner.
	Runs []Claimed
	// Lost are those of Claim.Holding that are no longer current.
	Lost []Lease
	// More says that runs are queued which were not taken although more were wanted: a
	// limit or the pool's places are in the way, of which TopicFreed tells.
	More bool
}

// Claimed is a run that a runner may execute.
type Claimed struct {
	Run Run
	// Token is the fencing token that everything about this claim must carry.
	Token int64
	// LeaseUntil is when the claim ends without a heartbeat, by the database's clock;
	// Now is that clock's time.
	LeaseUntil, Now time.Time
	// BundleDigest is the bundle of Run.DeploymentID.
	BundleDigest string
	// Input is the raw input; nil when it is at InputBlob.
	Input       []byte
	InputBlob   *uuid.UUID
	ContentType string
	// Files says whether the input has attachments, accepted or omitted: see RunFiles.
	Files bool
	// Headers are those of its event's request that the run sees, by their names in lower case.
	Headers map[string]string
	// JournalLength and JournalSize, in bytes, are of what earlier attempts recorded.
	JournalLength, JournalSize int64
}

// Lease names one claim.
type Lease struct {
	Run   Key
	Token int64
}

// Held is a claim that a runner works on, and what it says of the run.
type Held struct {
	Lease
	// TestName is the A/B variant that executes the run; "" of the agent itself, and while
	// none is chosen.
	TestName string
}
