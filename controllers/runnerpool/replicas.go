// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

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
