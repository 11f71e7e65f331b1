// SPDX-License-Identifier: Apache-2.0

// Package chaos breaks the platform on purpose and then counts. It holds tests only.
//
// TestScenes_KeepAllPromises tests the promise "2xx means durable". In each scene clients post to two gateway processes on one PostgreSQL
// server. A runner process of each gateway executes the accepted runs. Meanwhile the scene breaks something: scenes_test.go
// lists all scenes. One scene runs the whole platform in one process with its embedded store. At the end of a scene the store
// must hold every request with a 2xx response exactly once. All runs must have ended, and no work may be left.
//
// A scene waits for conditions, never for a time. The only time in a scene is the length of the outage, because the scene is
// about that length.
//
// TestCancel_ReachesRunner shows with the same processes that a run that is cancelled through the API ends at its runner with
// the next response to the runner.
package chaos
