// SPDX-License-Identifier: Apache-2.0

// Package sqlcore connects the concerns of the store. [Core] embeds them, and has the acceptance of
// runs and the statistics of searches. The statements of all concerns are for both databases, each next to its scan.
//
// An engine provides transactions ([sqldb.Engine]), its migrations, and the hot paths that deserve the best
// statement of its database: Accept, and the steps that [Engine] and the engines of concerns name. All
// other statements are written once.
//
// # Locks
//
// A transaction of a manager first takes a shared lock on the cluster's lease, so that the store
// cannot change hands before it ends. Configuration changes of one project are serialized by a lock
// on the project, deployments of all projects by the row of ordinals. Runs are locked before their
// connector runs.
//
// A transaction that starts runs of several environments locks their pools in the order of (project,
// environment), and the runs of each after its pool. On PostgreSQL it waits at most 50 ms for a lock
// of another transaction. After that each claim runs alone and waits as long as its caller does. On
// SQLite there is no other writing transaction. PostgreSQL rolls back remaining deadlocks, and the
// engine retries.
package sqlcore
