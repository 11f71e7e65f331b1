// SPDX-License-Identifier: Apache-2.0

// Package metrics holds what each process counts for Prometheus: names, meaning
// and labels stand here, one file a process, and the table of all of them in
// docs/operations.md, which the tests compare with what is served.
//
// A label's values are a set that is known here: whatever is not in it is counted
// as Other. Nothing of a tenant's (projects, connectors, agents, models, tools)
// is a label, so that their number does not grow with what is hosted.
package metrics
