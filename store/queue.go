// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"
)

// QueueState says what the queued runs of an environment wait for.
type QueueState string

// States of an environment's queue.
const (
	// QueueClaimable waits for a free place of a runner that is there.
	QueueClaimable QueueState = "claimable"
	// QueueNoRunner waits for a runner: none has asked for runs lately.
	QueueNoRunner QueueState = "no_runner"
	// QueueNoDeployment waits for a deployment to be live.
	QueueNoDeployment QueueState = "no_deployment"
)

// QueueStates are all of them.
var QueueStates = []QueueState{QueueClaimable, QueueNoRunner, QueueNoDeployment}

const (
	// MaxQueueCount is how many queued runs of a line (an agent's in a class) are counted,
	// MaxQueueCounted how many of all of them, each having an equal part of these then.
	// As many keys are counted, and as many runs that wait for one.
	MaxQueueCount   = 10_000
	MaxQueueCounted = 100_000
	// RunnerPresence is how long after its last request for runs a runner counts
	// as there; a waiting one is recorded at least every 30 s.
	RunnerPresence = 90 * time.Second
)

// OutboxConsumer names a consumer of the outboxes.
type OutboxConsumer string

// Consumers of the outboxes.
const (
	// ConsumerStorage counts the bytes that projects have stored.
	ConsumerStorage OutboxConsumer = "storage"
	// ConsumerDeliveries makes deliveries of results, of payloads and of notices that deliveries failed.
	ConsumerDeliveries OutboxConsumer = "deliveries"
	// ConsumerRollups adds ended runs to the statistics.
	ConsumerRollups OutboxConsumer = "rollups"
	// ConsumerWords indexes ended runs for searches.
	ConsumerWords OutboxConsumer = "words"
)

// OutboxConsumers are all of them.
var OutboxConsumers = []OutboxConsumer{ConsumerStorage, ConsumerDeliveries, ConsumerRollups, ConsumerWords}

// QueueDepth is what waits in one state, over all environments.
type QueueDepth struct {
	// Runs counts at most MaxQueueCount of each agent, MaxQueueCounted in all.
	Runs int64
	// Oldest is how long ago the run was accepted that stands first; 0 without any.
	Oldest time.Duration
}

// QueueFigures are a store's open runs.
type QueueFigures struct {
	// Queued has every state and class.
	Queued map[QueueState]map[Class]QueueDepth
	// Running counts the runs that runners hold.
	Running int64
	// KeysHeld counts the concurrency keys that open runs have, Blocked the runs that
	// wait for theirs, each up to MaxQueueCounted.
	KeysHeld, Blocked int64
	// OutboxAges has every consumer: how long the oldest row waits that the consumer may take and has
	// not; 0 without any.
	OutboxAges map[OutboxConsumer]time.Duration
	// OutboxAside counts the rows of the outbox that could not be consumed, each for what it
	// has in itself, and wait for another turn, up to MaxQueueCounted.
	OutboxAside int64
	// TickAge is how long the oldest tick of a cron connector is due; 0 where none is.
	TickAge time.Duration
}

// Queue tells how much is open. It costs what is open, whatever is stored.
type Queue interface {
	QueueFigures(ctx context.Context) (QueueFigures, error)
}
