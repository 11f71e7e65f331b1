// SPDX-License-Identifier: Apache-2.0

// Package memtest measures the memory that code allocates.
package memtest

import (
	"runtime"
	"testing"
)

// tries is how often code runs before it counts as exceeding its limit.
const tries = 5

// AtMost fails the test if do allocates more than most bytes. The runtime counts for the whole
// process, including goroutines of earlier tests and pools that the collector emptied. So do runs
// up to five times until it is within the limit. Code that always needs more never is. A test that
// calls AtMost must not be parallel.
func AtMost(t testing.TB, most uint64, do func(), msgAndArgs ...any) {
	t.Helper()
	least := Allocated(do)
	for range tries - 1 {
		if least <= most {
			return
		}
		least = min(least, Allocated(do))
	}
	if least > most {
		t.Fatalf("%d bytes were allocated, at most %d should be %v", least, most, msgAndArgs)
	}
}

// Allocated returns the bytes that the process allocates while do runs.
func Allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
