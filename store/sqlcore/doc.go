// SPDX-License-Identifier: Apache-2.0

// Package sqlcore is what the SQL engines of the store have in common: the
// statements that both databases understand, each next to its scan.
//
// An engine brings transactions ([Engine]), its migrations, and what is hot and worth
// the best statement that its database can do: Accept, and the steps of claiming and
// ending that [Engine] names. All else is written here once.
//
// # Mapping
//
//   - Times are BIGINT microseconds since 1970 in UTC. now_us() is the
//     database's clock: a function of the schema in PostgreSQL, a function of
//     the driver in SQLite.
//   - The project's id comes first in every key, and every statement names it; a
//     test reads the statements of all engines and fails for one that does not.
//   - Ids are uuid in PostgreSQL and lower-case TEXT in SQLite; both sort UUIDv7
//     by time.
//   - JSON is TEXT: the bytes come back as they went in.
//   - Text is made storable first: PostgreSQL takes neither NUL nor invalid
//     UTF-8, and a model may well answer with either.
//
// # Locks
//
// A manager's transaction first shares the lease of its cluster, so that the
// store cannot change hands before it ends. Changes of the configuration of one
// project are serialised by a lock on the project, deployments of all projects
// by the row of ordinals. Runs are locked before their connector runs. A
// transaction that starts runs of several environments locks their pools in the
// order of (project, environment), and the runs of each after its pool. On
// PostgreSQL it waits for no lock of another transaction for more than 50 ms:
// beyond, each claim goes alone and waits as long as its caller does. On SQLite
// there is no other transaction that writes. What deadlocks all the same is rolled
// back by PostgreSQL and repeated by the engine.
package sqlcore
