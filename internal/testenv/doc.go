// SPDX-License-Identifier: Apache-2.0

// Package testenv gives tests real servers. [Postgres] returns a database of a private PostgreSQL
// server. The package kube provides a Kubernetes API. The package sqlitetest provides files of
// SQLite stores with [FilePrepared].
//
// The first test of a binary that needs a server starts it. All tests of the binary share it, and
// it ends with the binary in any case, without a TestMain. Missing programs are installed after a
// message, or an error names the remedy. Tests are never skipped.
package testenv
