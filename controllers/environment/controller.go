// SPDX-License-Identifier: Apache-2.0

// Package environment brings Environments into the store and keeps their pools
// of runner pods.
package environment

import (
	"context"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=environments,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=environments/status,verbs=get;patch;update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch

// secretsInterval is how often Secrets that users own are looked at for changes.
const secretsInterval = time.Minute

// Store is what the controller needs of the store.
type Store interface {
	PutEnvironment(ctx context.Context, e store.Environment) error
	Environment(ctx context.Context, id uuid.UUID) (store.Environment, error)
	DefaultEnvironment(ctx context.Context, projectID uuid.UUID) (uuid.UUID, error)
	Deployment(ctx context.Context, id uuid.UUID) (store.Deployment, error)
	Token(ctx context.Context, sha256 []byte) (store.Token, error)
	PutToken(ctx context.Context, t store.Token) error
}

// Reconciler reconciles Environments.
type Reconciler struct {
	*object.Keeper
	Data Store
	// Image is the image of runner pods, DispatchURL where they find the gateway,
	// AllowedEgress what `runner --allow-egress` takes.
	Image, DispatchURL, AllowedEgress string
}

// Reconcile brings one Environment into the store and its pool into being.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	environment := &v1alpha1.Environment{}
	return r.Keeper.Reconcile(ctx, req, environment, func(ctx context.Context) (time.Duration, error) {
		project, projectID, id, err := r.Owner(ctx, environment)
		if err != nil {
			return 0, err
		}
		held, err := r.project(ctx, environment, projectID, id)
		if err != nil || !held {
			return 0, err
		}
		if err := r.showState(ctx, environment, project, projectID, id); err != nil {
			return 0, err
		}
		if environment.Spec.Suspend {
			environment.MarkSuspended()
			return 0, nil
		}
		if err := r.keepPool(ctx, environment, project, projectID, id); err != nil {
			return 0, err
		}
		return secretsInterval, r.showPool(ctx, environment)
	})
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	list := func() *v1alpha1.EnvironmentList { return &v1alpha1.EnvironmentList{} }
	return ctrl.NewControllerManagedBy(mgr).
		Named("environment").
		For(&v1alpha1.Environment{}).
		Watches(&v1alpha1.Environment{}, r.Deleted()).
		Owns(&appsv1.Deployment{}).
		Watches(&v1alpha1.Project{}, object.Enqueue(r.Client, list, object.Environments, object.Always)).
		Watches(&v1alpha1.Deployment{}, object.Enqueue(r.Client, list, object.Environments, object.DeploysTo)).
		Complete(r)
}
