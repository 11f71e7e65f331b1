// SPDX-License-Identifier: Apache-2.0

package testenv

// FindPostgres lets the tests see where binaries are looked for.
var FindPostgres = findPostgres
