// SPDX-License-Identifier: Apache-2.0

// Package sqldb runs the statements of the store. It has what the packages of all concerns need:
//
//   - [DB]: transactions of one database, and its [Dialect];
//   - [Args] and [RowBatch]: arguments of statements;
//   - [Collect] and the Scan functions: results of statements;
//   - partitions of history, and conditions for readable history.
//
// # Mapping
//
//   - Times are BIGINT microseconds since 1970 in UTC. now_us() is the database's clock: a function
//     of the schema in PostgreSQL, a function of the driver in SQLite.
//   - The project ID is the first column of every key, and every statement names it. A test reads
//     the statements of all packages and fails for any other statement.
//   - IDs are uuid in PostgreSQL and lower-case TEXT in SQLite. Both sort UUIDv7 by time.
//   - JSON is TEXT, so the bytes do not change.
//   - Text is made storable first, because PostgreSQL rejects NUL and invalid UTF-8, and a model may
//     return either.
package sqldb
