// SPDX-License-Identifier: Apache-2.0

// Package metrics holds what each process counts for Prometheus, one file per process.
// What a process does not count but measures when it is asked stands where it is
// measured: the store's queue in webhookgw/queue.go. The sweep's gauge, in
// controllers/sweep.go, is registered with controller-runtime's own registry.
//
// Names, meanings and labels of all of them are a table in docs/operations.md, which
// the tests compare with what is served.
//
// A label's values are a set that is known here: whatever is not in it is counted
// as Other. Nothing of a tenant's (projects, connectors, agents, models, tools)
// is a label, so that their number does not grow with what is hosted.
package metrics
