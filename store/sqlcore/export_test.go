// SPDX-License-Identifier: Apache-2.0

package sqlcore

// ProjectStatements returns the statements that delete the rows of a project.
func ProjectStatements() []string { return projectStatements() }
