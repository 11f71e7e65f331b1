// SPDX-License-Identifier: Apache-2.0

package sqlcore

// unerased narrows ended runs to those that nobody has erased.
func unerased(alias string) string { return ` AND ` + alias + `.erased_at IS NULL` }
