//go:build !race

// SPDX-License-Identifier: Apache-2.0

package storetest

// raceDetector reports whether the race detector is on.
const raceDetector = false
