// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"sync"
	"time"
)

// Bounds of what is remembered between calls.
const (
	// recentFor is how long an answer of the store is used again: so long may a
	// token work after it was replaced or its environment went, and a busy runner
	// not hear of a bundle to prefetch.
	recentFor = time.Second
	maxRecent = 10_000
)

// recent remembers values for a moment, so that a busy runner's calls do not
// each ask the store who it is.
type recent[K comparable, V any] struct {
	now   func() time.Time
	mutex sync.Mutex
	held  map[K]recentValue[V]
}

type recentValue[V any] struct {
	value V
	until time.Time
}

func newRecent[K comparable, V any](now func() time.Time) *recent[K, V] {
	return &recent[K, V]{now: now, held: map[K]recentValue[V]{}}
}

func (r *recent[K, V]) get(key K) (V, bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	v, ok := r.held[key]
	return v.value, ok && r.now().Before(v.until)
}

func (r *recent[K, V]) put(key K, value V) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if len(r.held) >= maxRecent {
		clear(r.held)
	}
	r.held[key] = recentValue[V]{value, r.now().Add(recentFor)}
}
