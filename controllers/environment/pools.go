// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"cmp"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/store"
)

// Pools are those that scale, and how many replicas each is to have. What they know is
// what was seen since the process began. Its methods are safe for concurrent use.
type Pools struct {
	// window is how long a pool keeps replicas that it needed.
	window time.Duration

	mu sync.Mutex
	of map[types.NamespacedName]*scaledPool
	// names are the environments by their keys.
	names map[store.Key]types.NamespacedName
	// due are those that are to be looked at; fresh holds one value where a new one is.
	due   map[store.Key]bool
	fresh chan struct{}
	// changed names the environments whose pools are to have other replicas.
	changed chan event.GenericEvent
}

// scaledPool is one pool that scales.
type scaledPool struct {
	scaling
	key store.Key
	// told are the replicas that the reconciler was told last.
	told int32
	// looking: somebody is looking at it. Nobody looks before rested, after a look that failed.
	looking bool
	rested  time.Time
}

// NewPools knows of none. Each keeps replicas that it needed for as long as the window, or
// for DefaultStabilizationWindow where that is 0.
func NewPools(window time.Duration) *Pools {
	return &Pools{
		window: cmp.Or(window, DefaultStabilizationWindow),
		of:     map[types.NamespacedName]*scaledPool{}, names: map[store.Key]types.NamespacedName{}, due: map[store.Key]bool{},
		fresh: make(chan struct{}, 1), changed: make(chan event.GenericEvent, waitingHeads),
	}
}

// replicas are how many a pool is to have that scales and has current ones.
func (p *Pools) replicas(name types.NamespacedName, key store.Key, b bounds, current int32, now time.Time) scaling {
	p.mu.Lock()
	defer p.mu.Unlock()
	pool, known := p.of[name]
	switch {
	case known && pool.key == key:
		if pool.bounds != b {
			p.look(key)
		}
		pool.scaling = pool.within(b)
	default:
		p.drop(name)
		pool = &scaledPool{scaling: newScaling(b, p.window, current, now), key: key}
		p.of[name], p.names[key] = pool, name
		p.look(key)
	}
	pool.told = pool.scaling.replicas
	return pool.scaling
}

func (p *Pools) look(key store.Key) {
	p.due[key] = true
	select {
	case p.fresh <- struct{}{}:
	default:
	}
}

// forget is for pools that do not scale any more, as long as it takes.
func (p *Pools) forget(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(name)
}

// drop leaves a key that is another environment's by now.
func (p *Pools) drop(name types.NamespacedName) {
	pool, known := p.of[name]
	if !known {
		return
	}
	delete(p.of, name)
	if p.names[pool.key] == name {
		delete(p.names, pool.key)
		delete(p.due, pool.key)
	}
}

// hinted notes that runs were queued in an environment, or have ended there; the zero key
// stands for all. Most environments do not scale.
func (p *Pools) hinted(hint store.Hint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name, known := p.names[hint.Key]; known {
		p.note(hint.Topic, hint.Key, p.of[name])
	}
	if hint.Key == (store.Key{}) {
		for key, name := range p.names {
			p.note(hint.Topic, key, p.of[name])
		}
	}
}

func (p *Pools) note(topic store.Topic, key store.Key, pool *scaledPool) {
	switch topic {
	case store.TopicQueued:
		p.due[key] = true
	case store.TopicFreed:
		pool.used = true
	}
}

// waits says that some are due to be looked at, now or later.
func (p *Pools) waits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.due) > 0
}

// take are the keys of those that are due to be looked at now, by who takes them; what becomes due
// meanwhile is so again after it.
func (p *Pools) take(now time.Time) (keys []store.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.due {
		pool, known := p.of[p.names[key]]
		switch {
		case !known:
			delete(p.due, key)
		case !pool.looking && !now.Before(pool.rested):
			pool.looking = true
			delete(p.due, key)
			keys = append(keys, key)
		}
	}
	return keys
}

// enough is how many open runs say all that there is to know of a pool: one more than it has
// places for at most.
func (p *Pools) enough(key store.Key) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pool, known := p.of[p.names[key]]; known {
		return int(pool.max)*int(pool.concurrency) + 1
	}
	return 0
}

// again puts back one that could not be looked at.
func (p *Pools) again(key store.Key, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pool, known := p.of[p.names[key]]; known {
		pool.looking, pool.rested = false, now.Add(looksAgain)
		p.due[key] = true
	}
}

// looked notes what was seen of one, and says whether its reconciler is to be told.
func (p *Pools) looked(now time.Time, key store.Key, demand store.Demand) (name types.NamespacedName, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name = p.names[key]
	pool, known := p.of[name]
	if !known {
		return name, false
	}
	pool.scaling, pool.looking = pool.scaling.looked(now, demand), false
	return name, pool.scaling.replicas != pool.told
}

// figures are over all pools: how many replicas they are to have, and how many of them
// have as many as they may and would have more.
func (p *Pools) figures() (replicas, limited int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pool := range p.of {
		replicas += int(pool.scaling.replicas)
		if pool.limited() {
			limited++
		}
	}
	return replicas, limited
}
