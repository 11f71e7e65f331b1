// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// DefaultStabilizationWindow is how long a pool keeps replicas after the last demand for them. A
	// pool scales up at once. It scales down to the maximum of the desired replicas in the window, like
	// a HorizontalPodAutoscaler. A pool therefore scales to zero only after this time without a run.
	DefaultStabilizationWindow = 5 * time.Minute
	// pollingInterval is the interval of checks without notifications.
	pollingInterval = 30 * time.Second
	// maxCheckAge is the time without a check after which a pool counts as busy for that time, so that
	// an unavailable store does not cause a scale-down.
	maxCheckAge = 3 * pollingInterval
)

// bounds are the scaling settings of spec.runner.
type bounds struct{ min, max, concurrency int32 }

// boundsOf returns the bounds of a pool. scales is false if the pool does not scale.
func boundsOf(p *v1alpha1.RunnerPool) (b bounds, scales bool) {
	if p.MaxReplicas == nil {
		return bounds{}, false
	}
	return bounds{min: p.Replicas(), max: *p.MaxReplicas, concurrency: max(p.Concurrency, 1)}, true
}

func (b bounds) clampReplicas(replicas int32) int32 { return max(b.min, min(replicas, b.max)) }

// desiredReplicas returns the replicas with a slot for every open run, in addition to the slots that
// are reserved for sync and resumed runs.
func (b bounds) desiredReplicas(open store.Runs) int32 {
	desired := b.min
	for desired < b.max && !b.fitsDemand(open, desired) {
		desired++
	}
	return desired
}

func (b bounds) fitsDemand(open store.Runs, replicas int32) bool {
	pool := store.Pool{Slots: int(replicas) * int(b.concurrency)}
	return open.All <= pool.Slots && open.Lower <= pool.Slots-pool.Reserved()
}

// recommendation is the number of desired replicas at a time.
type recommendation struct {
	at       time.Time
	replicas int32
}

// recommendations has the recommendations of the stabilization window that no later one reaches. The
// first one is the highest.
type recommendations []recommendation

// withRecommendation adds a recommendation and removes those outside of the window.
func (r recommendations) withRecommendation(now time.Time, window time.Duration, replicas int32) recommendations {
	for len(r) > 0 && now.Sub(r[0].at) >= window {
		r = r[1:]
	}
	for len(r) > 0 && r[len(r)-1].replicas <= replicas {
		r = r[:len(r)-1]
	}
	return append(r, recommendation{now, replicas})
}

// scaling is the state of a pool that scales.
type scaling struct {
	bounds
	// window is how long replicas stay after the last demand for them.
	window      time.Duration
	recommended recommendations
	// checkedAt is the time of the last check.
	checkedAt time.Time
	// runEnded reports that a run has ended since then.
	runEnded bool
	// replicas is the desired number. demand is the demand of the last check.
	replicas int32
	demand   store.Demand
}

// newScaling starts with the current replicas of the pool, because earlier demand is unknown.
func newScaling(b bounds, window time.Duration, replicas int32, now time.Time) scaling {
	return scaling{bounds: b, window: window, recommended: recommendations{{now, replicas}}, checkedAt: now, replicas: b.clampReplicas(replicas)}
}

// withBounds returns the scaling with other bounds.
func (s scaling) withBounds(b bounds) scaling {
	s.bounds, s.replicas = b, b.clampReplicas(s.replicas)
	return s
}

// afterCheck returns the scaling after a check with this demand.
func (s scaling) afterCheck(now time.Time, d store.Demand) scaling {
	if now.Sub(s.checkedAt) >= maxCheckAge {
		s.recommended = s.recommended.withRecommendation(now, s.window, s.replicas)
	}
	desired := s.desiredReplicas(d.Open())
	if s.runEnded {
		desired = max(desired, s.clampReplicas(1))
	}
	s.recommended = s.recommended.withRecommendation(now, s.window, desired)
	s.replicas = s.clampReplicas(s.recommended[0].replicas)
	s.checkedAt, s.runEnded, s.demand = now, false, d
	return s
}

// isBounded reports whether only the maximum prevents more replicas.
func (s scaling) isBounded() bool { return len(s.recommended) > 0 && s.recommended[0].replicas > s.max }

// isLimited reports whether the demand exceeds the maximum.
func (s scaling) isLimited() bool { return !s.fitsDemand(s.demand.Open(), s.max) }

// replicaCount is the number of runners of a pool.
type replicaCount struct {
	// replicas is the desired number. enough is the number with which the environment is in effect.
	replicas, minReady int32
	// scales reports that the queue determines the number. scaled reports that it changed.
	scales, scaled bool
	// announce sends the event of a change. The caller calls it after the write.
	announce func()
}

// countReplicas returns the number that another field manager has set; otherwise, the number for the demand if
// the pool scales; otherwise, minReplicas.
func (r *Reconciler) countReplicas(e *v1alpha1.Environment, found *appsv1.Deployment, others *int32, key store.Key) replicaCount {
	b, scales := boundsOf(&e.Spec.Runner)
	if others != nil || !scales {
		r.Pools.forgetPool(client.ObjectKeyFromObject(e))
		replicas := ptr.Deref(others, e.Spec.Runner.Replicas())
		return replicaCount{replicas: replicas, minReady: replicas, announce: func() {}}
	}
	current := ptr.Deref(found.Spec.Replicas, b.min)
	to := r.Pools.replicas(client.ObjectKeyFromObject(e), key, b, current, r.Now())
	return replicaCount{
		replicas: to.replicas, minReady: b.min, scales: true, scaled: current != to.replicas,
		announce: func() { r.announceScaled(e, current, to) },
	}
}
