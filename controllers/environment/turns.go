// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// poolsAtOnce is how many pools get a new release of the platform at the same
	// time.
	poolsAtOnce = 5
	// turnTime is the most that a turn takes: a pool that does not come to its end,
	// whatever keeps it, holds up no other for longer.
	turnTime = 5 * time.Minute
)

// turns are those of the pools that get a new release of the platform. All pools
// are to have it at the same moment; that all of them restart their runners at once
// would be felt in every project.
type turns struct {
	mu sync.Mutex
	// began is when the turn of a pool began.
	began map[types.NamespacedName]time.Time
	// waiting are the others, who came first the first. Those go before whose namespace has
	// fewer turns: one with many pools that never become ready holds up no other for long.
	waiting []types.NamespacedName
}

// take says whether it is the pool's turn. If not, the pool is among those that end
// names; it may ask again at any time.
func (t *turns) take(pool types.NamespacedName, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	if _, has := t.began[pool]; has {
		return true
	}
	if len(t.began) >= poolsAtOnce || t.yields(pool) {
		if !slices.Contains(t.waiting, pool) {
			t.waiting = append(t.waiting, pool)
		}
		return false
	}
	t.forget(pool)
	if t.began == nil {
		t.began = map[types.NamespacedName]time.Time{}
	}
	t.began[pool] = now
	return true
}

// has says whether a pool has its turn at present.
func (t *turns) has(pool types.NamespacedName, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	_, has := t.began[pool]
	return has
}

// end ends the turn of a pool, if it has one, and returns who is to ask next while
// there is room: the pool itself is not among them.
func (t *turns) end(pool types.NamespacedName, now time.Time) (next types.NamespacedName, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.began, pool)
	t.forget(pool)
	t.expire(now)
	if len(t.waiting) == 0 || len(t.began) >= poolsAtOnce {
		return next, false
	}
	next = slices.MinFunc(t.waiting, func(a, b types.NamespacedName) int { return t.of(a.Namespace) - t.of(b.Namespace) })
	t.forget(next)
	return next, true
}

// of is how many turns a namespace has.
func (t *turns) of(namespace string) (n int) {
	for pool := range t.began {
		if pool.Namespace == namespace {
			n++
		}
	}
	return n
}

// yields says that somebody waits whose namespace has fewer turns.
func (t *turns) yields(pool types.NamespacedName) bool {
	mine := t.of(pool.Namespace)
	return mine > 0 && slices.ContainsFunc(t.waiting, func(w types.NamespacedName) bool { return t.of(w.Namespace) < mine })
}

func (t *turns) expire(now time.Time) {
	maps.DeleteFunc(t.began, func(_ types.NamespacedName, began time.Time) bool { return now.Sub(began) >= turnTime })
}

func (t *turns) forget(pool types.NamespacedName) {
	t.waiting = slices.DeleteFunc(t.waiting, func(p types.NamespacedName) bool { return p == pool })
}
