// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"time"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// DefaultStabilizationWindow is how long a pool keeps the replicas that it once needed: it
	// scales up at once, and down to the most that was desired in the window, as a
	// HorizontalPodAutoscaler does. So a pool goes to zero only after as long without a run.
	DefaultStabilizationWindow = 5 * time.Minute
	// pollingInterval is how often all pools that scale are looked at, hints or not.
	pollingInterval = 30 * time.Second
	// blindAfter is how long nobody may look at a pool before it counts as busy for
	// that time: a store that was away is no reason to scale down.
	blindAfter = 3 * pollingInterval
)

// bounds are what spec.runner says of a pool that scales.
type bounds struct{ min, max, concurrency int32 }

// boundsOf returns those of a pool; scales is false where it does not scale.
func boundsOf(p *v1alpha1.RunnerPool) (b bounds, scales bool) {
	if p.MaxReplicas == nil {
		return bounds{}, false
	}
	return bounds{min: p.Replicas(), max: *p.MaxReplicas, concurrency: max(p.Concurrency, 1)}, true
}

func (b bounds) clamp(replicas int32) int32 { return max(b.min, min(replicas, b.max)) }

// desiredReplicas are as many as have a place for every open run, beside the places that a
// pool keeps for sync and resumed ones.
func (b bounds) desiredReplicas(open store.Runs) int32 {
	desired := b.min
	for desired < b.max && !b.fits(open, desired) {
		desired++
	}
	return desired
}

func (b bounds) fits(open store.Runs, replicas int32) bool {
	pool := store.Pool{Places: int(replicas) * int(b.concurrency)}
	return open.All <= pool.Places && open.Lower <= pool.Places-pool.Kept()
}

// recommendation is how many replicas were desired at a time.
type recommendation struct {
	at       time.Time
	replicas int32
}

// recommendations are those of the stabilization window of which none later is as high:
// the first is the highest.
type recommendations []recommendation

// with adds one, and forgets those that left the window.
func (r recommendations) with(now time.Time, window time.Duration, replicas int32) recommendations {
	for len(r) > 0 && now.Sub(r[0].at) >= window {
		r = r[1:]
	}
	for len(r) > 0 && r[len(r)-1].replicas <= replicas {
		r = r[:len(r)-1]
	}
	return append(r, recommendation{now, replicas})
}

// scaling is how a pool stands that scales.
type scaling struct {
	bounds
	// window is how long replicas stay that were needed.
	window      time.Duration
	recommended recommendations
	// lookedAt is when somebody last looked at what it is asked for.
	lookedAt time.Time
	// used: a run ended there since, whether or not it was seen.
	used bool
	// replicas are those that the pool is to have, demand what it is asked for.
	replicas int32
	demand   store.Demand
}

// newScaling begins with the replicas that the pool has: whoever was not there before does
// not know what these are needed for.
func newScaling(b bounds, window time.Duration, replicas int32, now time.Time) scaling {
	return scaling{bounds: b, window: window, recommended: recommendations{{now, replicas}}, lookedAt: now, replicas: b.clamp(replicas)}
}

// within is the same between other bounds.
func (s scaling) within(b bounds) scaling {
	s.bounds, s.replicas = b, b.clamp(s.replicas)
	return s
}

// looked is what becomes of it when it is seen what it is asked for.
func (s scaling) looked(now time.Time, d store.Demand) scaling {
	if now.Sub(s.lookedAt) >= blindAfter {
		s.recommended = s.recommended.with(now, s.window, s.replicas)
	}
	desired := s.desiredReplicas(d.Open())
	if s.used {
		desired = max(desired, s.clamp(1))
	}
	s.recommended = s.recommended.with(now, s.window, desired)
	s.replicas = s.clamp(s.recommended[0].replicas)
	s.lookedAt, s.used, s.demand = now, false, d
	return s
}

// bounded says that there are no more only because there may not be.
func (s scaling) bounded() bool { return len(s.recommended) > 0 && s.recommended[0].replicas > s.max }

// limited says that more replicas would be desired than there may be.
func (s scaling) limited() bool { return !s.fits(s.demand.Open(), s.max) }
