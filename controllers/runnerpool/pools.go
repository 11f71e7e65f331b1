// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"cmp"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/agentplatform/agentplatform/store"
)

// Pools has the pools that scale, and the desired replicas of each. It only knows the demand since the
// process started. Its methods are safe for concurrent use.
type Pools struct {
	// window is how long a pool keeps replicas after the last demand for them.
	window time.Duration

	mu    sync.Mutex
	pools map[types.NamespacedName]*scaledPool
	// names has the environments by ID.
	names map[store.Key]types.NamespacedName
	// due has the pools to check. fresh has one value if a pool was added to due.
	due      map[store.Key]bool
	dueAdded chan struct{}
}

// scaledPool is one pool that scales.
type scaledPool struct {
	scaling
	key store.Key
	// reported is the number of replicas that the reconciler last received.
	reported int32
	// checking reports that a check is in progress. retryAt is the earliest time of the next check, after
	// a failed one.
	checking bool
	retryAt  time.Time
}

// NewPools returns Pools without entries. If window is 0, DefaultStabilizationWindow is used.
func NewPools(window time.Duration) *Pools {
	return &Pools{
		window: cmp.Or(window, DefaultStabilizationWindow),
		pools:  map[types.NamespacedName]*scaledPool{}, names: map[store.Key]types.NamespacedName{}, due: map[store.Key]bool{},
		dueAdded: make(chan struct{}, 1),
	}
}

// replicas returns the desired replicas of a pool that scales. current is its current number.
func (p *Pools) replicas(name types.NamespacedName, key store.Key, b bounds, current int32, now time.Time) scaling {
	p.mu.Lock()
	defer p.mu.Unlock()
	pool, known := p.pools[name]
	switch {
	case known && pool.key == key:
		if pool.bounds != b {
			p.requestCheck(key)
		}
		pool.scaling = pool.withBounds(b)
	default:
		p.removeID(name)
		pool = &scaledPool{scaling: newScaling(b, p.window, current, now), key: key}
		p.pools[name], p.names[key] = pool, name
		p.requestCheck(key)
	}
	pool.reported = pool.scaling.replicas
	return pool.scaling
}

func (p *Pools) requestCheck(key store.Key) {
	p.due[key] = true
	select {
	case p.dueAdded <- struct{}{}:
	default:
	}
}

// forgetPool removes a pool that no longer scales.
func (p *Pools) forgetPool(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeID(name)
}

// removeID removes an ID that now belongs to another environment.
func (p *Pools) removeID(name types.NamespacedName) {
	pool, known := p.pools[name]
	if !known {
		return
	}
	delete(p.pools, name)
	if p.names[pool.key] == name {
		delete(p.names, pool.key)
		delete(p.due, pool.key)
	}
}

// handleHint records that runs were queued or ended in an environment. The zero key stands for all
// environments. Most environments do not scale.
func (p *Pools) handleHint(hint store.Hint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name, known := p.names[hint.Key]; known {
		p.recordHint(hint.Topic, hint.Key, p.pools[name])
	}
	if hint.Key == (store.Key{}) {
		for key, name := range p.names {
			p.recordHint(hint.Topic, key, p.pools[name])
		}
	}
}

func (p *Pools) recordHint(topic store.Topic, key store.Key, pool *scaledPool) {
	switch topic {
	case store.TopicQueued:
		p.due[key] = true
	case store.TopicFreed:
		pool.runEnded = true
	}
}

// hasDuePool reports whether a pool is due, now or later.
func (p *Pools) hasDuePool() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.due) > 0
}

// takeDue returns the pools that are due now. The caller checks them. A pool that becomes due meanwhile is
// due again after the check.
func (p *Pools) takeDue(now time.Time) (keys []store.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.due {
		pool, known := p.pools[p.names[key]]
		switch {
		case !known:
			delete(p.due, key)
		case !pool.checking && !now.Before(pool.retryAt):
			pool.checking = true
			delete(p.due, key)
			keys = append(keys, key)
		}
	}
	return keys
}

// demandLimit returns the number of open runs that determine the size of a pool: at most one more than it
// has slots.
func (p *Pools) demandLimit(key store.Key) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pool, known := p.pools[p.names[key]]; known {
		return int(pool.max)*int(pool.concurrency) + 1
	}
	return 0
}

// retryCheck makes a pool due again after a failed check.
func (p *Pools) retryCheck(key store.Key, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pool, known := p.pools[p.names[key]]; known {
		pool.checking, pool.retryAt = false, now.Add(checkRetryInterval)
		p.due[key] = true
	}
}

// recordDemand records the demand of a pool, and reports whether its reconciler must be queued.
func (p *Pools) recordDemand(now time.Time, key store.Key, demand store.Demand) (name types.NamespacedName, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name = p.names[key]
	pool, known := p.pools[name]
	if !known {
		return name, false
	}
	pool.scaling, pool.checking = pool.scaling.afterCheck(now, demand), false
	return name, pool.scaling.replicas != pool.reported
}

// totals returns totals of all pools: the desired replicas, and the number of pools whose demand
// exceeds their maximum.
func (p *Pools) totals() (replicas, limited int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pool := range p.pools {
		replicas += int(pool.scaling.replicas)
		if pool.isLimited() {
			limited++
		}
	}
	return replicas, limited
}
