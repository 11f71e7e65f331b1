// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"
)

// QueueState is the reason why queued runs of an environment wait.
type QueueState string

// States of an environment's queue.
const (
	// QueueClaimable: the runs wait for a free slot of an existing runner.
	QueueClaimable QueueState = "claimable"
	// QueueNoRunner: the runs wait for a runner, because none has claimed lately.
	QueueNoRunner QueueState = "no_runner"
	// QueueNoDeployment: the runs wait for a live deployment.
	QueueNoDeployment QueueState = "no_deployment"
)

// QueueStates lists all states.
var QueueStates = []QueueState{QueueClaimable, QueueNoRunner, QueueNoDeployment}

const (
	// MaxQueueCount is the maximum count of queued runs per queue (an agent in a class).
	// MaxQueueCounted is the maximum count of all queued runs, shared equally by the queues. The
	// same limits apply to keys and to runs that wait for a key.
	MaxQueueCount   = 10_000
	MaxQueueCounted = 100_000
	// RunnerPresence is how long a runner counts as present after its last claim. A waiting runner
	// is recorded at least every 30 s.
	RunnerPresence = 90 * time.Second
)

// OutboxConsumer names a consumer of the outbox.
type OutboxConsumer string

// Outbox consumers.
const (
	// ConsumerStorage counts the bytes that projects have stored.
	ConsumerStorage OutboxConsumer = "storage"
	// ConsumerDeliveries creates deliveries of results, payloads and failure notices.
	ConsumerDeliveries OutboxConsumer = "deliveries"
	// ConsumerRollups adds ended runs to the statistics.
	ConsumerRollups OutboxConsumer = "rollups"
	// ConsumerWords indexes ended runs for searches.
	ConsumerWords OutboxConsumer = "words"
	// ConsumerTraces exports the traces of ended runs.
	ConsumerTraces OutboxConsumer = "traces"
)

// OutboxConsumers lists all consumers.
var OutboxConsumers = []OutboxConsumer{ConsumerStorage, ConsumerDeliveries, ConsumerRollups, ConsumerWords, ConsumerTraces}

// QueueDepth is the number of queued runs in a state, over all environments.
type QueueDepth struct {
	// Runs counts at most MaxQueueCount per agent and MaxQueueCounted in total.
	Runs int64
	// Oldest is the time since the acceptance of the first run in the queue; 0 without any.
	Oldest time.Duration
}

// QueueFigures counts the open runs of a store.
type QueueFigures struct {
	// Queued has every state and class.
	Queued map[QueueState]map[Class]QueueDepth
	// Running counts the runs on runners.
	Running int64
	// KeysHeld counts the concurrency keys of open runs. Blocked counts the runs that wait for a
	// key. Both are at most MaxQueueCounted.
	KeysHeld, Blocked int64
	// OutboxAges has an entry for every consumer: the age of the oldest row that the consumer could
	// process; 0 without any.
	OutboxAges map[OutboxConsumer]time.Duration
	// OutboxAside counts the outbox rows that failed individually and are retried later, up to
	// MaxQueueCounted.
	OutboxAside int64
	// TickAge is how long the oldest tick of a cron connector has been due; 0 without any.
	TickAge time.Duration
	// Missing are the figures that could not be measured. Their fields have no meaning.
	Missing []QueueFigure
}

// QueueFigure names fields of QueueFigures that are measured together.
type QueueFigure string

// Figures of a queue.
const (
	FigureQueued   QueueFigure = "queued"    // Queued
	FigureRunning  QueueFigure = "running"   // Running
	FigureKeys     QueueFigure = "keys"      // KeysHeld and Blocked
	FigureOutbox   QueueFigure = "outbox"    // OutboxAges
	FigureSetAside QueueFigure = "set_aside" // OutboxAside
	FigureTicks    QueueFigure = "ticks"     // TickAge
)

// AllQueueFigures lists all figures.
var AllQueueFigures = []QueueFigure{FigureQueued, FigureRunning, FigureKeys, FigureOutbox, FigureSetAside, FigureTicks}

// Queue measures open runs. Its cost grows with the open runs, not with history.
type Queue interface {
	// QueueFigures measures each figure by itself, within a second. The error is about the Missing
	// ones.
	QueueFigures(ctx context.Context) (QueueFigures, error)
}
