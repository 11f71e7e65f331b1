// SPDX-License-Identifier: Apache-2.0

package store

import "context"

// Store is all of a store. Consumers ask for the interfaces they need; only
// the wiring of a process and the conformance suite name this one.
type Store interface {
	Clusters
	KeyLedger
	Projector
	Sweeper
	Routes
	Catalog
	Deployments
	Builds
	Activations
	Blobs
	Bundles
	Uploads
	Ingest
	Files
	Dispatch
	Deliveries
	Sends
	Eraser
	Replays
	ReplayJobs
	Housekeeping
	Loads
	Queue
	Demands
	Ticks
	History
	Statistics
	Rates
	Rebuilder
	Tokens
	Audit
	Rejections
	RejectionTeller
	Looks
	LookTaker
	RateLimiter
	Notifier

	// Migrate brings the schema to this release's, under a lock.
	Migrate(ctx context.Context) error
	// Ping answers nil when the store answers and its schema is one that this
	// release works with.
	Ping(ctx context.Context) error
	// Connections is how many short statements run at once; more wait for each other.
	Connections() int
	// ListsAtOnce is how many lists and statistics are read at once; more wait for each other.
	ListsAtOnce() int
	// Close ends the store; calls after it fail.
	Close() error
}
