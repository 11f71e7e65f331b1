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
	// poolsAtOnce is the number of pools that get a new release of the platform at the same time.
	poolsAtOnce = 5
	// turnTime is the maximum time of a rollout. A pool that takes longer does not delay the others any
	// further.
	turnTime = 5 * time.Minute
)

// turns limits the concurrent rollouts of a new release of the platform. All pools need the new release
// at the same moment, and restarting all runners at once would affect every project.
type turns struct {
	mu sync.Mutex
	// began has the start times of current rollouts.
	began map[types.NamespacedName]time.Time
	// waiting has the other pools, oldest first. A namespace with fewer current rollouts goes first, so
	// that one with many pools that never become ready does not delay others.
	waiting []types.NamespacedName
}

// takeTurn reports whether the pool may roll out. If not, the pool waits until end returns it. It may ask
// again at any time.
func (t *turns) takeTurn(pool types.NamespacedName, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireTurns(now)
	if _, has := t.began[pool]; has {
		return true
	}
	if len(t.began) >= poolsAtOnce || t.mustYield(pool) {
		if !slices.Contains(t.waiting, pool) {
			t.waiting = append(t.waiting, pool)
		}
		return false
	}
	t.forgetPool(pool)
	if t.began == nil {
		t.began = map[types.NamespacedName]time.Time{}
	}
	t.began[pool] = now
	return true
}

// hasTurn reports whether a pool has a current rollout.
func (t *turns) hasTurn(pool types.NamespacedName, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireTurns(now)
	_, has := t.began[pool]
	return has
}

// endTurn ends the rollout of a pool, if it has one. It returns the next pool, other than this one, while
// there is a free slot.
func (t *turns) endTurn(pool types.NamespacedName, now time.Time) (next types.NamespacedName, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.began, pool)
	t.forgetPool(pool)
	t.expireTurns(now)
	if len(t.waiting) == 0 || len(t.began) >= poolsAtOnce {
		return next, false
	}
	next = slices.MinFunc(t.waiting, func(a, b types.NamespacedName) int { return t.rolloutsOf(a.Namespace) - t.rolloutsOf(b.Namespace) })
	t.forgetPool(next)
	return next, true
}

// rolloutsOf returns the number of current rollouts of a namespace.
func (t *turns) rolloutsOf(namespace string) (n int) {
	for pool := range t.began {
		if pool.Namespace == namespace {
			n++
		}
	}
	return n
}

// mustYield reports whether a pool of a namespace with fewer current rollouts waits.
func (t *turns) mustYield(pool types.NamespacedName) bool {
	mine := t.rolloutsOf(pool.Namespace)
	return mine > 0 && slices.ContainsFunc(t.waiting, func(w types.NamespacedName) bool { return t.rolloutsOf(w.Namespace) < mine })
}

func (t *turns) expireTurns(now time.Time) {
	maps.DeleteFunc(t.began, func(_ types.NamespacedName, began time.Time) bool { return now.Sub(began) >= turnTime })
}

func (t *turns) forgetPool(pool types.NamespacedName) {
	t.waiting = slices.DeleteFunc(t.waiting, func(p types.NamespacedName) bool { return p == pool })
}
