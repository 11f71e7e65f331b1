// SPDX-License-Identifier: Apache-2.0

// Package testenv gives tests real servers. [Postgres] gives a database of a
// private PostgreSQL server; the package kube beside it gives a Kubernetes API,
// and sqlitetest the files of SQLite stores, by [FilePrepared].
//
// A server is started by the first test of a binary that asks for it, is shared
// by all tests of that binary, and ends with it however it ends: no TestMain is
// needed. What is lacking on the machine is installed, after saying so, or an
// error names the remedy; nothing is skipped.
package testenv
