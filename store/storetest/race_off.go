//go:build !race

// SPDX-License-Identifier: Apache-2.0

package storetest

// raceDetector says that the race detector looks at this test binary.
const raceDetector = false
