// SPDX-License-Identifier: Apache-2.0

// Package push serves the push webhooks of Git providers at the gateway's public port. Calls are
// not authenticated. So a call can only request a poll of the project's repository, and a project
// has at most one such request at a time. The manager performs the poll.
package push
