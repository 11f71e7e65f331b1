// SPDX-License-Identifier: Apache-2.0

package serve

// ReadInput is exported to the tests.
var ReadInput = readInput
