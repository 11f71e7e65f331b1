// SPDX-License-Identifier: Apache-2.0

// Package deployment builds Deployments and makes them live. The store is the source of truth for
// outcomes, and the status of a Deployment is a copy.
package deployment

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=deployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=deployments/status,verbs=patch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch

// pollInterval is the interval of queries about a build in progress.
const pollInterval = time.Second

// Store has the store methods that the controller needs.
type Store interface {
	store.Deployments
	store.Activations
	Environment(ctx context.Context, key store.Key) (store.Environment, error)
	// HasUpload is from store.Uploads.
	HasUpload(ctx context.Context, projectID uuid.UUID, digest string) error
	PutToken(ctx context.Context, t store.Token) error
	projection.Derivations
}

// Reconciler reconciles Deployments.
type Reconciler struct {
	*base.Base
	Store Store
	// Keys derives the secrets of connectors and decrypts variables.
	Keys *secrets.Keys
	// Pods has the operator's settings for build pods.
	Pods base.PodOptions
}

// deploymentState is a Deployment with the state that Reconcile has read.
type deploymentState struct {
	*v1alpha1.Deployment
	project     *v1alpha1.Project
	environment *v1alpha1.Environment
	key         store.Key
	// environmentKey is the ID of the environment.
	environmentKey store.Key
	// hadNoStatus reports that the object had no status when it was read: it is new, or it was restored
	// without its status.
	hadNoStatus bool
	outcome     store.Deployment
	// problem is the reason why the build's pod does not run, or "".
	problem string
}

// Reconcile moves a Deployment one step on.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	v := &deploymentState{Deployment: &v1alpha1.Deployment{}}
	return r.Base.Reconcile(ctx, req, v.Deployment, func(ctx context.Context, key store.Key) (time.Duration, error) {
		v.key = key
		if err := r.beginDeployment(ctx, v); err != nil {
			return r.handleOrphan(ctx, v, err)
		}
		err := r.advance(ctx, v)
		if err == nil {
			err = r.decideLive(ctx, v)
		}
		if err != nil {
			v.showPhase() // the conditions show the problem
			return 0, err
		}
		if err := r.mirrorOutcome(ctx, v); err != nil {
			return 0, err
		}
		switch {
		case v.outcome.Status.Terminal():
			return 0, errors.Join(r.cleanUp(ctx, v), r.pruneDeployments(ctx, v.Deployment))
		case v.isSuspended():
			return 0, nil
		case v.problem != "":
			return base.MaxRetryInterval, nil
		}
		return pollInterval, nil
	})
}

// decideLive decides which deployment is live: the one that was live before, or the one that
// spec.activation requests.
func (r *Reconciler) decideLive(ctx context.Context, v *deploymentState) error {
	if err := r.restore(ctx, v); err != nil {
		return err
	}
	return r.handleActivation(ctx, v)
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	deployments := &v1alpha1.DeploymentList{}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("deployment").
		WithOptions(r.ControllerOptions()).
		For(&v1alpha1.Deployment{}).
		Watches(&v1alpha1.Deployment{}, r.Deleted()).
		Owns(&batchv1.Job{}).
		Watches(&v1alpha1.Project{}, r.Enqueue(deployments, isOpen), builder.WithPredicates(base.Changed(projectState))).
		Watches(&v1alpha1.Environment{}, handler.EnqueueRequestsFromMapFunc(r.deploymentsTestedIn), builder.WithPredicates(base.Changed(environmentState))).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.usersOf), builder.OnlyMetadata)
	for _, change := range environmentWatches {
		b = b.Watches(&v1alpha1.Environment{}, r.EnqueueBy(base.ByEnvironment, deployments, change.pick), builder.WithPredicates(change.when))
	}
	return base.WatchPods(b, component, v1alpha1.LabelDeployment).Complete(r)
}

// environmentWatches selects which deployments are queued for a change of their environment: all of them if
// the environment is created or deleted, open ones if its spec changes, and those with an outdated live
// state if another deployment goes live. There may be thousands of deployments, and each step of
// autoscaling changes the environment.
var environmentWatches = []struct {
	when predicate.Predicate
	pick base.Filter
}{
	{base.Changed(func(o v1alpha1.ConditionedObject) any { return o.CommonStatus().ID }), nil},
	{base.Changed(environmentState), isOpen},
	{predicate.Funcs{}, hasStaleLiveState},
}

// environmentState returns the fields of an environment that open deployments read.
func environmentState(e *v1alpha1.Environment) any { return [2]any{e.Generation, e.IsBeyondLimit()} }

// isOpen picks open deployments.
func isOpen(_ client.Object, deployment v1alpha1.ConditionedObject) bool {
	d, ok := deployment.(*v1alpha1.Deployment)
	return ok && !d.Status.Phase.Terminal()
}

// projectState returns the fields of a project that deployments read.
func projectState(p *v1alpha1.Project) any {
	return [3]any{p.Generation, p.Status.ID, p.Status.IsTrue(v1alpha1.ConditionNetworkReady)}
}

// usersOf returns the open deployments that are built with the credentials in a Secret.
func (r *Reconciler) usersOf(ctx context.Context, secret client.Object) (out []ctrl.Request) {
	project := &v1alpha1.Project{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: secret.GetNamespace(), Name: v1alpha1.ProjectName}, project)
	git := project.Spec.Git
	if apierrors.IsNotFound(err) || err == nil && (git == nil || git.SecretRef == nil || string(git.SecretRef.Name) != secret.GetName()) {
		return nil
	}
	list := &v1alpha1.DeploymentList{}
	if err == nil {
		err = r.Client.List(ctx, list, client.InNamespace(secret.GetNamespace()))
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "finding the deployments that use a Secret")
	}
	for i := range list.Items {
		if isOpen(secret, &list.Items[i]) {
			out = append(out, base.Request(&list.Items[i]))
		}
	}
	return out
}

// deploymentsTestedIn returns the open deployments to environments that name the given environment as their
// testEnvironment.
func (r *Reconciler) deploymentsTestedIn(ctx context.Context, tests client.Object) (out []ctrl.Request) {
	environments, deployments := &v1alpha1.EnvironmentList{}, &v1alpha1.DeploymentList{}
	err := r.Client.List(ctx, environments, client.InNamespace(tests.GetNamespace()))
	named := map[string]bool{}
	for i := range environments.Items {
		if e := &environments.Items[i]; e.Name != tests.GetName() && string(e.Spec.TestEnvironment) == tests.GetName() {
			named[e.Name] = true
		}
	}
	if err == nil && len(named) > 0 {
		err = r.Client.List(ctx, deployments, client.InNamespace(tests.GetNamespace()))
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "finding the deployments with a test environment")
	}
	for i := range deployments.Items {
		if d := &deployments.Items[i]; named[string(d.Spec.Environment)] && isOpen(tests, d) {
			out = append(out, base.Request(d))
		}
	}
	return out
}

// hasStaleLiveState picks the deployments whose live state in the status differs from the environment. If no
// deployment is live, it picks the deployments that may go live.
func hasStaleLiveState(environment client.Object, deployment v1alpha1.ConditionedObject) bool {
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
