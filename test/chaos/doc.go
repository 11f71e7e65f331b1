// SPDX-License-Identifier: Apache-2.0

// Package chaos breaks the platform on purpose and then counts. It holds tests
// only.
//
// TestLedger keeps the promise "2xx means durable" to account: clients post to
// two gateway processes on one PostgreSQL while the gateways are killed by
// SIGKILL in the middle of requests, and afterwards the store must hold exactly
// what was answered.
package chaos
