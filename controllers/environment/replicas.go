// SPDX-License-Identifier: Apache-2.0

package environment

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// number is how many runners a pool is to have.
type number struct {
	// replicas is the number, enough with how many the environment is in effect.
	replicas, enough int32
	// scales: the number is as the queue asks; scaled: it is another one than before.
	scales, scaled bool
	// announce tells of it once it is written.
	announce func()
}

// number is as somebody else has set it, else as the queue asks where the pool scales, else
// minReplicas.
func (r *Reconciler) number(e *v1alpha1.Environment, found *appsv1.Deployment, others *int32, key store.Key) number {
	b, scales := boundsOf(&e.Spec.Runner)
	if others != nil || !scales {
		r.Pools.forget(client.ObjectKeyFromObject(e))
		replicas := ptr.Deref(others, e.Spec.Runner.Replicas())
		return number{replicas: replicas, enough: replicas, announce: func() {}}
	}
	current := ptr.Deref(found.Spec.Replicas, b.min)
	to := r.Pools.replicas(client.ObjectKeyFromObject(e), key, b, current, r.Now())
	return number{
		replicas: to.replicas, enough: b.min, scales: true, scaled: current != to.replicas,
		announce: func() { r.announceScaled(e, current, to) },
	}
}
