// SPDX-License-Identifier: Apache-2.0

// Package store is the truth for what happened: outcomes of deployments,
// connector runs, agent runs, their journals. It also holds a projection of
// the configuration (projects, environments, connectors, links) that the
// gateway serves webhooks from without asking Kubernetes.
//
// The package itself holds values, pure state machines and small interfaces,
// one a concern. Two engines implement them, store/postgres and store/sqlite;
// store/storetest is their common specification.
//
// # Promises
//
//   - Every method that returns nil has made its effect durable.
//   - Every method is one transaction, but for those of Housekeeping; for Accept,
//     which halves a batch where the data of one event is at fault and takes events
//     of one key in rounds; for Claim, which records the runner, tells keys, fails runs
//     without an agent and starts others, each in a transaction, and again when it is
//     decided anew, so that an error may come after some of it; for Complete, which has
//     more for completions that are not as usual; for Reclaim, which releases each run
//     by itself; and for blobs, which are written in pieces, before what names them.
//   - Methods are safe for concurrent use.
//   - Leases and expiries are decided by the database's clock, never by the
//     caller's; durations are passed in.
//   - An error is one of the sentinels of errors.go (by errors.Is) or means
//     that the store could not be reached or answered something unexpected:
//     then the outcome is unknown, and the caller must not claim success.
//
// # The life of an agent run
//
//	      Accept, of a sync run for a runner that waits
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
// Each Claim raises the run's fencing token. Heartbeats, journal entries and
// the completion carry the token and are refused with ErrFenced when another
// claim came in between, so a runner that was thought dead and is not cannot
// do harm.
package store
