// SPDX-License-Identifier: Apache-2.0

// Package memtest says how much memory a piece of code allocates.
package memtest

import (
	"runtime"
	"testing"
)

// tries is how often a piece of code may be run until it is believed to need more
// than it should.
const tries = 5

// AtMost fails the test if do allocates more than so many bytes, whatever is collected
// meanwhile. The runtime counts for the whole process: what a goroutine that an earlier
// test left behind allocates, or what a pool allocates anew that the collector has just
// emptied, would be counted too. So do is run again, up to five times, until it stays
// within the bound: what always needs more never does. A test that calls AtMost is not
// parallel.
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

// Allocated is how many bytes the process allocates while do runs.
func Allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
