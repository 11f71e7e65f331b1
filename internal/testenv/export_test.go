// SPDX-License-Identifier: Apache-2.0

package testenv

// FindPostgres exports findPostgres to the tests.
var FindPostgres = findPostgres
