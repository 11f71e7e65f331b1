// SPDX-License-Identifier: Apache-2.0

package store

import "context"

// Store is the complete interface of a store. Consumers use the smaller interfaces. Only the wiring
// of a process and the conformance suite use this one.
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
	Drifts
	Blobs
	Bundles
	Uploads
	Ingest
	Files
	SavedFiles
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
	PollRequests
	Traces
	PollRequestReader
	RateLimiter
	Notifier

	// Migrate brings the schema to the version of this release, under a lock.
	Migrate(ctx context.Context) error
	// Ping returns nil if the store responds and its schema works with this release.
	Ping(ctx context.Context) error
	// Connections returns the maximum number of concurrent short statements. Further ones wait.
	Connections() int
	// ListsAtOnce returns the maximum number of concurrent lists and statistics. Further ones wait.
	ListsAtOnce() int
	// Close closes the store. Later calls fail.
	Close() error
}
