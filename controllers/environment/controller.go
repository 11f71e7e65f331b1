// SPDX-License-Identifier: Apache-2.0

// Package environment brings Environments into the store and keeps their pools
// of runner pods.
package environment

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=environments,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=environments/status,verbs=patch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;patch

// secretsInterval is how often Secrets that users own are looked at for changes.
const secretsInterval = time.Minute

// waitInterval is how often an environment asks again for what another one has,
// where the end of that one was not seen.
const waitInterval = 30 * time.Second

// Store is what the controller needs of the store.
type Store interface {
	PutEnvironment(ctx context.Context, e store.Environment) error
	Environment(ctx context.Context, key store.Key) (store.Environment, error)
	DefaultEnvironment(ctx context.Context, projectID uuid.UUID) (uuid.UUID, error)
	Deployment(ctx context.Context, key store.Key) (store.Deployment, error)
	Token(ctx context.Context, sha256 []byte) (store.Token, error)
	PutToken(ctx context.Context, t store.Token) error
}

// Reconciler reconciles Environments.
type Reconciler struct {
	*object.Keeper
	Data Store
	// Pods is the operator's part of runner pods.
	Pods object.PodOptions

	// left wakes the environments that wait for one that is gone.
	left chan event.GenericEvent
}

// Reconcile brings one Environment into the store and its pool into being.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	environment := &v1alpha1.Environment{}
	result, err := r.Keeper.Reconcile(ctx, req, environment, func(ctx context.Context, key store.Key) (time.Duration, error) {
		project, err := r.Project(ctx, environment.Namespace)
		if err != nil {
			return 0, err
		}
		allowed, _, err := r.Plan(ctx, project)
		if err != nil {
			return 0, err
		}
		held, err := r.project(ctx, environment, allowed.Environments, key)
		if err != nil || !held {
			return waitInterval, err
		}
		if err := r.showState(ctx, environment, project, key); err != nil {
			return 0, err
		}
		if environment.Spec.Suspend {
			environment.MarkSuspended()
			return 0, nil
		}
		if err := allowed.Runner.Check(environment.Spec.Runner); err != nil {
			environment.MarkStalled(v1alpha1.ReasonNotAllowed, err.Error())
			return r.PlanInterval(), nil
		}
		if err := r.keepPool(ctx, environment, project, allowed.Runner, key); err != nil {
			return 0, err
		}
		return secretsInterval, r.showPool(ctx, environment)
	})
	if err == nil && environment.UID == "" {
		err = r.wake(ctx, req.Namespace)
	}
	return result, err
}

// wake queues the environments of a namespace that wait for a place or a slug,
// once another one is out of the store.
func (r *Reconciler) wake(ctx context.Context, namespace string) error {
	list := &v1alpha1.EnvironmentList{}
	if err := r.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the environments that wait: %w", err)
	}
	for i := range list.Items {
		if !list.Items[i].IsStalled() {
			continue
		}
		select {
		case r.left <- event.GenericEvent{Object: &list.Items[i]}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	list := func() *v1alpha1.EnvironmentList { return &v1alpha1.EnvironmentList{} }
	r.left = make(chan event.GenericEvent)
	b := ctrl.NewControllerManagedBy(mgr).
		Named("environment").
		For(&v1alpha1.Environment{}).
		Watches(&v1alpha1.Environment{}, r.Deleted()).
		Owns(&appsv1.Deployment{}).
		Watches(&v1alpha1.Project{}, object.Enqueue(r.Client, list, object.Environments, object.Always)).
		Watches(&v1alpha1.Deployment{}, object.Enqueue(r.Client, list, object.Environments, object.DeploysTo)).
		WatchesRawSource(source.Channel(r.left, &handler.EnqueueRequestForObject{}))
	return r.WatchPlans(b, object.Enqueue(r.Client, list, object.Environments, object.Always)).Complete(r)
}
