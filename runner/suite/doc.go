// SPDX-License-Identifier: Apache-2.0

// Package suite runs the tests of a repository: each case as often as it says, by the engine
// that executes runs in production, with what its mocks replace. Nothing is stored and nothing
// is sent: what a run does is kept until it is judged. It needs no dispatch port, so that a
// build and a command line run the same tests.
package suite
