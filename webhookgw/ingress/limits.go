// SPDX-License-Identifier: Apache-2.0

package ingress

import "time"

// Limits of a webhook request and of what is done with it.
const (
	// MaxBody is the most bytes of a whole request body: 16 MiB.
	MaxBody = 16 << 20
	// maxLargeBodies is how many bodies of more than store.MaxInlineInput are held
	// in memory at once.
	maxLargeBodies = 16
	// maxIdempotencyKey is the most bytes of a key that a caller names.
	maxIdempotencyKey = 255
	// idempotencyTTL is how long a key is remembered.
	idempotencyTTL = 24 * time.Hour
	// maxBatchEvents, maxBatchRuns and maxBatchBytes bound what one transaction
	// takes, but for its first event.
	maxBatchEvents = 256
	maxBatchRuns   = 1024
	maxBatchBytes  = 4 << 20
	// commitTimeout bounds one transaction; its outcome is unknown after that.
	commitTimeout = 10 * time.Second
	// retryAfter is what callers are told when the store does not answer.
	retryAfter = 2 * time.Second
	// maxReads is how many routes are read from the store at once.
	maxReads = 32
	// maxRoutes is how many routes are cached.
	maxRoutes = 50_000
	// maxChanges is how often a route may change under a request before it is
	// asked to come back.
	maxChanges = 8
	// pollInterval is how often a waiting sync webhook looks by itself, in case a
	// hint was lost.
	pollInterval = time.Second
	// defaultSyncTimeout is that of a sync connector that names none.
	defaultSyncTimeout = 300 * time.Second
)
