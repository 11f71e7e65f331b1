// SPDX-License-Identifier: Apache-2.0

// Package suite runs the tests of a repository. It runs each case with the engine of production and
// the case's mocks. It stores and sends nothing: the actions of a run are kept in memory until they
// are judged. It does not need dispatch, so a build and a command line run the same tests.
package suite
