// SPDX-License-Identifier: Apache-2.0

// Package store is the source of truth for runs and outcomes: deployments, connector runs, agent
// runs and their journals. It also holds a projection of the configuration (projects, environments,
// connectors, links). The gateway serves webhooks from the projection, without Kubernetes.
//
// The package holds values, pure state machines and small interfaces, one per concern. Two engines
// implement them, store/postgres and store/sqlite. store/storetest is their common specification.
//
// # Guarantees
//
//   - A method that returns nil has made its effect durable.
//   - A method is one transaction, with the exceptions below.
//   - Methods are safe for concurrent use.
//   - The database's clock decides leases and expiries, never the clock of the caller. Callers pass
//     durations.
//   - An error is one of the sentinels in errors.go (by errors.Is), or the store was unreachable or
//     returned something unexpected. In the second case the outcome is unknown, and the caller must
//     not report success.
//
// # Methods with several transactions
//
//   - The methods of Housekeeping.
//   - Accept halves a batch if the data of one event is invalid, and processes events with the same
//     key in rounds.
//   - Claim records the runner, evaluates keys, fails runs without an agent and starts runs, each in a
//     transaction. It repeats them if it has to decide again, so an error may follow partial effects.
//   - Complete uses more transactions for completions with concurrency keys, large values or errors.
//   - Reclaim releases each run in a transaction of its own.
//   - Blobs are written in pieces before the row that names them.
//
// # States of an agent run
//
//	      Accept, of a sync run for a waiting runner
//	    +-----------------------------------------+
//	    |                                         v
//	(webhook) ---------->  queued  ----------> running ----------> completed | failed | cancelled
//	            Accept        ^       Claim       |      Complete
//	                          |                   |
//	                          |  Release, Sweep   |
//	                          +-------------------+
//	                                              |  Sweep with a tool in flight
//	                                              +-----------------------------> failed (tool_interrupted)
//
// Each Claim gives the run a new fencing token. Heartbeats, journal entries and the completion carry
// the token. They are rejected with ErrFenced if another claim came in between, so a runner that was
// wrongly considered dead can do no harm.
package store
