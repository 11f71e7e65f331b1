// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxRollouts is the number of pools that get a new release of the platform at the same time.
	maxRollouts = 5
	// maxRolloutTime is the maximum time of a rollout. A pool that takes longer does not delay the others any
	// further.
	maxRolloutTime = 5 * time.Minute
)

// rolloutLimit limits the concurrent rollouts of a new release of the platform. All pools need the new release
// at the same moment, and restarting all runners at once would affect every project.
type rolloutLimit struct {
	mu sync.Mutex
	// started has the start times of current rollouts.
	started map[types.NamespacedName]time.Time
	// waiting has the other pools, oldest first. A namespace with fewer current rollouts goes first, so
	// that one with many pools that never become ready does not delay others.
	waiting []types.NamespacedName
}

// startRollout reports whether the pool may roll out. If not, the pool waits until endRollout returns it.
// It may ask again at any time.
func (t *rolloutLimit) startRollout(pool types.NamespacedName, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireRollouts(now)
	if _, has := t.started[pool]; has {
		return true
	}
	if len(t.started) >= maxRollouts || t.mustYield(pool) {
		if !slices.Contains(t.waiting, pool) {
			t.waiting = append(t.waiting, pool)
		}
		return false
	}
	t.forgetPool(pool)
	if t.started == nil {
		t.started = map[types.NamespacedName]time.Time{}
	}
	t.started[pool] = now
	return true
}

// isRollingOut reports whether a pool has a current rollout.
func (t *rolloutLimit) isRollingOut(pool types.NamespacedName, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireRollouts(now)
	_, has := t.started[pool]
	return has
}

// endRollout ends the rollout of a pool, if it has one. It returns the next pool, other than this one, while
// there is a free slot.
func (t *rolloutLimit) endRollout(pool types.NamespacedName, now time.Time) (next types.NamespacedName, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.started, pool)
	t.forgetPool(pool)
	t.expireRollouts(now)
	if len(t.waiting) == 0 || len(t.started) >= maxRollouts {
		return next, false
	}
	next = slices.MinFunc(t.waiting, func(a, b types.NamespacedName) int { return t.rolloutsOf(a.Namespace) - t.rolloutsOf(b.Namespace) })
	t.forgetPool(next)
	return next, true
}

// rolloutsOf returns the number of current rollouts of a namespace.
func (t *rolloutLimit) rolloutsOf(namespace string) (n int) {
	for pool := range t.started {
		if pool.Namespace == namespace {
			n++
		}
	}
	return n
}

// mustYield reports whether a pool of a namespace with fewer current rollouts waits.
func (t *rolloutLimit) mustYield(pool types.NamespacedName) bool {
	mine := t.rolloutsOf(pool.Namespace)
	return mine > 0 && slices.ContainsFunc(t.waiting, func(w types.NamespacedName) bool { return t.rolloutsOf(w.Namespace) < mine })
}

func (t *rolloutLimit) expireRollouts(now time.Time) {
	maps.DeleteFunc(t.started, func(_ types.NamespacedName, began time.Time) bool { return now.Sub(began) >= maxRolloutTime })
}

func (t *rolloutLimit) forgetPool(pool types.NamespacedName) {
	t.waiting = slices.DeleteFunc(t.waiting, func(p types.NamespacedName) bool { return p == pool })
}
