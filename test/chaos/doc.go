// SPDX-License-Identifier: Apache-2.0

// Package chaos breaks the platform on purpose and then counts. It holds tests
// only.
//
// TestLedger keeps the promise "2xx means durable" to account: clients post to
// two gateway processes on one PostgreSQL while the gateways are killed by
// SIGKILL in the middle of requests, and a runner of each executes what was
// accepted. Afterwards the store must hold exactly what was answered, all of it
// must have ended, once, and nothing may be left to do.
package chaos
