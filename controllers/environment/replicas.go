// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
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

// hasRunners says whether a pool has runners, or is to have some: one that has none restarts
// none.
func hasRunners(pool *appsv1.Deployment) bool {
	return ptr.Deref(pool.Spec.Replicas, 1) > 0 || pool.Status.Replicas > 0
}

// scaleWaiting leaves a pool as it is that waits for its turn, but for the number of its
// runners.
func (r *Reconciler) scaleWaiting(ctx context.Context, e *v1alpha1.Environment, found *appsv1.Deployment, key store.Key) (kept, error) {
	same := kept{generation: found.Generation, waits: true}
	pool := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: found.Namespace, Name: found.Name}}
	var others *int32
	if _, scales := boundsOf(&e.Spec.Runner); scales {
		var err error
		if others, err = r.scaledByOther(ctx, e, pool); err != nil {
			return kept{}, err
		}
	}
	same.number = r.number(e, found, others, key)
	if !same.scaled {
		return same, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": found.UID}, "spec": map[string]any{"replicas": same.replicas},
	})
	if err == nil {
		err = r.Client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(object.FieldManager))
	}
	if err != nil {
		return kept{}, fmt.Errorf("scaling the runner pool: %w", err)
	}
	same.announce()
	same.generation, same.changed = pool.Generation, true
	return same, nil
}
