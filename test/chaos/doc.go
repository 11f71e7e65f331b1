// SPDX-License-Identifier: Apache-2.0

// Package chaos breaks the platform on purpose and then counts. It holds tests
// only.
//
// TestScenes keeps the promise "2xx means durable" to account. In each scene clients
// post to two gateway processes on one PostgreSQL server, a runner process of each
// executes what was accepted, and meanwhile something breaks: scenes_test.go lists all
// of them. One is played on all of the platform in one process, with its embedded
// store. At the end of a scene the store must hold exactly what was answered, once, all of
// it must have ended, and nothing may be left to do.
//
// A scene waits for what it says, never for a time. The only time in it is the length
// of the outage, which is what that scene is about.
//
// TestCancelReachesTheRunner shows with the same processes that a run which is cancelled
// from outside ends at its runner by the next thing that the runner is told.
package chaos
