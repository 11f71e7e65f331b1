// SPDX-License-Identifier: Apache-2.0

// Package deployment builds Deployments and makes them live. The store is the
// truth for what became of one; its status is a copy.
package deployment

import (
	"context"
	"errors"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=deployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=deployments/status,verbs=patch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;patch

// pollInterval is how often the store is asked about a build under way.
const pollInterval = time.Second

// Store is what the controller needs of the store.
type Store interface {
	store.Deployments
	store.Activations
	Environment(ctx context.Context, key store.Key) (store.Environment, error)
	PutToken(ctx context.Context, t store.Token) error
}

// Reconciler reconciles Deployments.
type Reconciler struct {
	*object.Keeper
	Data Store
	// Pods is the operator's part of build pods.
	Pods object.PodOptions
}

// version is one Deployment with what was found about it.
type version struct {
	*v1alpha1.Deployment
	project     *v1alpha1.Project
	environment *v1alpha1.Environment
	key         store.Key
	// environmentKey is the environment's.
	environmentKey store.Key
	// restored: the object has no status yet.
	restored bool
	outcome  store.Deployment
}

// Reconcile brings one Deployment a step on.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	v := &version{Deployment: &v1alpha1.Deployment{}}
	return r.Keeper.Reconcile(ctx, req, v.Deployment, func(ctx context.Context, key store.Key) (time.Duration, error) {
		v.key = key
		if err := r.begin(ctx, v); err != nil {
			return 0, errors.Join(err, r.endLive(ctx, v, err))
		}
		if v.Spec.Cancel && !v.outcome.Status.Terminal() {
			if err := r.end(ctx, v, store.DeploymentCancelled, "", "cancelled by spec.cancel"); err != nil {
				return 0, err
			}
		}
		if !v.outcome.Status.Terminal() {
			if err := r.advance(ctx, v); err != nil {
				return 0, err
			}
		}
		if err := r.restore(ctx, v); err != nil {
			return 0, err
		}
		if err := r.activateAgain(ctx, v); err != nil {
			return 0, err
		}
		if err := r.mirror(ctx, v); err != nil {
			return 0, err
		}
		if v.outcome.Status.Terminal() {
			return 0, r.cleanUp(ctx, v)
		}
		return pollInterval, nil
	})
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	list := func() *v1alpha1.DeploymentList { return &v1alpha1.DeploymentList{} }
	return ctrl.NewControllerManagedBy(mgr).
		Named("deployment").
		For(&v1alpha1.Deployment{}).
		Watches(&v1alpha1.Deployment{}, r.Deleted()).
		Owns(&batchv1.Job{}).
		Watches(&v1alpha1.Project{}, object.Enqueue(r.Client, list, object.Deployments, object.Always), object.ComesOrGoes).
		Watches(&v1alpha1.Environment{}, object.Enqueue(r.Client, list, object.Deployments, deploysTo), object.ComesOrGoes).
		Watches(&v1alpha1.Environment{}, object.Enqueue(r.Client, list, object.Deployments, outOfDate)).
		Complete(r)
}

// deploysTo picks the deployments to an environment.
func deploysTo(environment client.Object, deployment v1alpha1.ConditionedObject) bool {
	d, ok := deployment.(*v1alpha1.Deployment)
	return ok && object.DeploysTo(d, environment.(*v1alpha1.Environment))
}

// outOfDate picks the deployments that may go live in an environment in which
// nothing is, and those that show something else about being live than it does.
func outOfDate(environment client.Object, deployment v1alpha1.ConditionedObject) bool {
	e, isEnvironment := environment.(*v1alpha1.Environment)
	d, isDeployment := deployment.(*v1alpha1.Deployment)
	if !isEnvironment || !isDeployment || string(d.Spec.Environment) != e.Name {
		return false
	}
	if e.Status.LiveDeploymentID == "" && d.Status.Phase == v1alpha1.DeploymentDeployed {
		return true
	}
	return d.Status.Live != (d.Status.ID == e.Status.LiveDeploymentID)
}
