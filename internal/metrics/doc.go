// SPDX-License-Identifier: Apache-2.0

// Package metrics declares all metrics of the platform, one file per process. Their names, types,
// labels and help texts are the page docs/reference/metrics.md, which a test generates.
//
// The values of a label are a set that is known here. Any other value counts as Other. Data of tenants
// (projects, connectors, agents, models, tools) is never a label, so that the number of series does not
// grow with the number of tenants.
package metrics
