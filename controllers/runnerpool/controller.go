// SPDX-License-Identifier: Apache-2.0

// Package runnerpool manages the pools of runner pods of Environments: their pods, their configuration, their
// size, and their rollouts of a new release of the platform. The controller of Environments calls it.
package runnerpool

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch

// Store has the store methods that a pool needs.
type Store interface {
	Token(ctx context.Context, sha256 []byte) (store.Token, error)
	PutToken(ctx context.Context, t store.Token) error
}

// Reconciler reconciles the pool of an Environment.
type Reconciler struct {
	*base.Base
	Store Store
	// Keys decrypts the sealed values of an Environment.
	Keys base.Opener
	// Pods has the operator's settings for runner pods.
	Pods base.PodOptions
	// Pools has the pools that scale.
	Pools *Pools
	// Changed receives the environments whose pool can get the new release of the platform.
	Changed chan<- event.GenericEvent

	// rollouts limits the number of pools that get a new image of the platform at the same time.
	rollouts rolloutLimit
}

// Reconcile writes the pool and reports it in the status. It returns the time until the next reconcile.
// rolling reports that the pool is getting a new release of the platform.
func (r *Reconciler) Reconcile(
	ctx context.Context, e *v1alpha1.Environment, project *v1alpha1.Project, allowed plan.Runner, key store.Key,
) (after time.Duration, rolling bool, err error) {
	wrote, err := r.applyChildren(ctx, e, project, allowed, key)
	if err != nil {
		return 0, false, err
	}
	done, err := r.reportPool(ctx, e, wrote)
	if done || err != nil {
		return r.PlanInterval(), false, err
	}
	return base.MaxRetryInterval, wrote.awaitsRollout || r.rollouts.isRollingOut(client.ObjectKeyFromObject(e), r.Now()), nil
}

// Report reports a pool that stays unchanged. outdated reports that some runners have an earlier release of
// the platform.
func (r *Reconciler) Report(ctx context.Context, e *v1alpha1.Environment) (outdated bool, err error) {
	r.Pools.forgetPool(client.ObjectKeyFromObject(e))
	seen, err := r.reportRunners(ctx, e, appliedPool{})
	if err != nil {
		return false, err
	}
	want := e.Spec.Runner.Replicas()
	if _, scales := boundsOf(&e.Spec.Runner); scales {
		want = seen.replicas
	}
	e.ShowRunners(max(seen.ready, 0), want)
	return seen.outdatedRelease, nil
}

// Forget removes the pool of a deleted Environment from the pools that scale.
func (r *Reconciler) Forget(environment types.NamespacedName) { r.Pools.forgetPool(environment) }

// EndRollout ends the rollout of a pool, if it has one, and queues the environment of the next pool.
func (r *Reconciler) EndRollout(ctx context.Context, environment types.NamespacedName) error {
	next, ok := r.rollouts.endRollout(environment, r.Now())
	if !ok {
		return nil
	}
	return base.Queue(ctx, r.Changed, &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Namespace: next.Namespace, Name: next.Name}})
}

// Watch adds the objects of pools to the watches of the controller of Environments.
func (r *Reconciler) Watch(to *builder.Builder) *builder.Builder {
	return base.WatchPods(to.Owns(&appsv1.Deployment{}), component, v1alpha1.LabelEnvironment)
}
