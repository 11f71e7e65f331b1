// SPDX-License-Identifier: Apache-2.0

// Package environment projects Environments into the store, and reconciles their pools of runner pods and
// the commits that they follow.
package environment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=environments,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=environments/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch

// Store has the store methods that the controller needs.
type Store interface {
	PutEnvironment(ctx context.Context, e store.Environment) error
	base.Defaults
	Deployment(ctx context.Context, key store.Key) (store.Deployment, error)
	Drift(ctx context.Context, deployment store.Key) ([]store.MCPDrift, error)
}

// Pool reconciles the runner pod pools of Environments, as in package runnerpool.
type Pool interface {
	// Watch adds the objects of pools to the watches of the controller.
	Watch(to *builder.Builder) *builder.Builder
	// Reconcile writes the pool and reports it in the status. It returns the time until the next reconcile.
	// rolling reports that the pool is getting a new release of the platform.
	Reconcile(
		ctx context.Context, e *v1alpha1.Environment, project *v1alpha1.Project, allowed plan.Runner, key store.Key,
	) (after time.Duration, rolling bool, err error)
	// Report reports a pool that stays unchanged. outdated reports that some runners have an earlier release
	// of the platform.
	Report(ctx context.Context, e *v1alpha1.Environment) (outdated bool, err error)
	// EndRollout is called after each reconcile, unless the pool is rolling.
	EndRollout(ctx context.Context, environment types.NamespacedName) error
	// Forget is called for a deleted Environment.
	Forget(environment types.NamespacedName)
}

// Git brings Environments to the commits that they follow, as in package gitfollower.
type Git interface {
	// ReportHead reports the head of the followed branch, whether or not it can be deployed.
	ReportHead(e *v1alpha1.Environment, project *v1alpha1.Project)
	// Follow deploys the commit that spec.git requests, and reports the state. live is the live deployment in
	// the store, or nil. Follow returns the time until the next reconcile.
	Follow(
		ctx context.Context, e *v1alpha1.Environment, project *v1alpha1.Project, live *store.Deployment, key store.Key,
	) (time.Duration, error)
}

// Reconciler reconciles Environments.
type Reconciler struct {
	*base.Base
	Store Store
	Pool  Pool
	Git   Git
	// Changed has environments to reconcile.
	Changed chan event.GenericEvent
}

// Reconcile projects an Environment into the store and manages its pool.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	environment, rolling := &v1alpha1.Environment{}, false
	result, err := r.Base.Reconcile(ctx, req, environment, func(ctx context.Context, key store.Key) (after time.Duration, err error) {
		after, rolling, err = r.reconcile(ctx, environment, key)
		return after, err
	})
	if !rolling { // the rollout has ended, or cannot continue
		err = errors.Join(err, r.Pool.EndRollout(ctx, req.NamespacedName))
	}
	if err == nil && environment.UID == "" {
		r.Pool.Forget(req.NamespacedName)
		err = r.queueStalled(ctx, req.Namespace)
	}
	return result, err
}

// reconcile returns the time until the next reconcile. rolling reports that the pool is getting a new
// release of the platform.
func (r *Reconciler) reconcile(ctx context.Context, e *v1alpha1.Environment, key store.Key) (after time.Duration, rolling bool, err error) {
	project, err := r.Project(ctx, e.Namespace)
	if err != nil {
		return 0, false, err
	}
	allowed, _, err := r.Plan(ctx, project)
	if err != nil {
		return 0, false, err
	}
	held, err := r.claimSlug(ctx, e, allowed.Environments, key)
	if err != nil {
		return 0, false, err
	}
	live, err := r.reportState(ctx, e, project, key)
	if err != nil {
		return 0, false, err
	}
	r.Git.ReportHead(e, project)
	notAllowed := allowed.Runner.Check(e.Spec.Runner)
	if !held || e.Spec.Suspend || notAllowed != nil { // the pool stays unchanged, and nothing is followed
		e.ForgetSourceOfBefore()
		after, err = r.reportUnchanged(ctx, e, held, notAllowed)
		return after, false, err
	}
	after, rolling, err = r.Pool.Reconcile(ctx, e, project, allowed.Runner, key)
	// Pool and Git are independent: an error of one does not stop the other.
	again, unfollowed := r.Git.Follow(ctx, e, project, live, key)
	if again > 0 && (after == 0 || again < after) {
		after = again
	}
	return after, rolling, errors.Join(err, unfollowed)
}

// reportUnchanged keeps the pool unchanged, and reports it with the reason.
func (r *Reconciler) reportUnchanged(
	ctx context.Context, e *v1alpha1.Environment, held bool, notAllowed error,
) (after time.Duration, err error) {
	outdated, err := r.Pool.Report(ctx, e)
	if err != nil {
		return 0, err
	}
	switch {
	case !held: // Ready has the reason already
		after = base.MaxRetryInterval
	case e.Spec.Suspend:
		e.MarkSuspended()
	default:
		v1alpha1.MarkStalled(e, v1alpha1.ReasonNotAllowed, notAllowed.Error())
		after = r.PlanInterval()
	}
	if outdated {
		e.MarkOfReleaseBefore()
	}
	return after, nil
}

// queueStalled queues the environments of a namespace that wait for a slot of the plan or a slug, after
// another environment was removed from the store.
func (r *Reconciler) queueStalled(ctx context.Context, namespace string) error {
	list := &v1alpha1.EnvironmentList{}
	if err := r.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the waiting environments: %w", err)
	}
	for i := range list.Items {
		if !v1alpha1.IsStalled(&list.Items[i]) {
			continue
		}
		if err := base.Queue(ctx, r.Changed, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	all := r.Enqueue(&v1alpha1.EnvironmentList{}, nil)
	deployedTo := r.Enqueue(&v1alpha1.EnvironmentList{}, base.IsEnvironmentOf)
	b := ctrl.NewControllerManagedBy(mgr).
		Named("environment").
		WithOptions(r.ControllerOptions()).
		For(&v1alpha1.Environment{}).
		Watches(&v1alpha1.Environment{}, r.Deleted()).
		Watches(&v1alpha1.Project{}, all, builder.WithPredicates(base.Changed(projectState))).
		Watches(&v1alpha1.Deployment{}, deployedTo, builder.WithPredicates(base.Changed(liveState))).
		WatchesRawSource(source.Channel(r.Changed, &handler.EnqueueRequestForObject{}))
	b = base.WatchSecrets(b, handler.EnqueueRequestsFromMapFunc(r.usersOf))
	return r.WatchPlans(r.Pool.Watch(b), all).Complete(r)
}

// projectState returns the fields of a project that environments read. A change of the default
// environment changes it too.
func projectState(p *v1alpha1.Project) any {
	return [4]any{p.Generation, p.Status.ID, p.Status.DefaultEnvironment, p.Status.IsTrue(v1alpha1.ConditionNetworkReady)}
}

// liveState returns the fields of a Deployment that its environment reads.
func liveState(d *v1alpha1.Deployment) any {
	return [4]any{d.Status.Phase, d.Status.Live, d.ActivationPending(), v1alpha1.IsStalled(d)}
}

// usersOf returns the environments whose runners use a value of a Secret.
func (r *Reconciler) usersOf(ctx context.Context, secret client.Object) []ctrl.Request {
	project := &v1alpha1.Project{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: secret.GetNamespace(), Name: v1alpha1.ProjectName}, project)
	if apierrors.IsNotFound(err) {
		return nil
	}
	list := &v1alpha1.EnvironmentList{}
	if err == nil {
		err = r.Client.List(ctx, list, client.InNamespace(secret.GetNamespace()))
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "finding the environments that use a Secret")
	}
	var out []ctrl.Request
	ofAll := usesSecret(project, secret.GetName())
	for i := range list.Items {
		if e := &list.Items[i]; ofAll || readsSecret(e, secret.GetName()) {
			out = append(out, base.Request(e))
		}
	}
	return out
}

// usesSecret reports whether a model provider's key is in a Secret.
func usesSecret(project *v1alpha1.Project, secret string) bool {
	return slices.ContainsFunc(project.Spec.ModelProviders, func(p v1alpha1.ModelProvider) bool {
		return p.APIKeySecretRef != nil && string(p.APIKeySecretRef.Name) == secret
	})
}

// readsSecret reports whether the value of a variable or an OAuth app's client secret is in a Secret.
func readsSecret(e *v1alpha1.Environment, secret string) bool {
	return slices.ContainsFunc(e.Spec.Variables, func(v v1alpha1.EnvironmentVariable) bool {
		return v.SecretKeyRef != nil && string(v.SecretKeyRef.Name) == secret
	}) || slices.ContainsFunc(e.Spec.OAuthApps, func(a v1alpha1.OAuthApp) bool { return string(a.ClientSecretRef.Name) == secret })
}
