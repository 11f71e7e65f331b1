// SPDX-License-Identifier: Apache-2.0

package retention

// PickDeparted is pickDeparted.
const PickDeparted = pickDeparted

// ProjectStatements is projectStatements.
func ProjectStatements() []string { return projectStatements() }
