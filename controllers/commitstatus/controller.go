// SPDX-License-Identifier: Apache-2.0

// Package commitstatus reports the commits of Deployments to the Git provider of their repository. It is a
// separate controller, so that a slow provider does not delay deployments.
package commitstatus

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/egress"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=deployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=deployments/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch

const (
	// maxStateAge is the maximum age of a state that is reported to the provider.
	maxStateAge = time.Hour
	// maxClockSkew is the tolerated clock difference. A time further in the future is invalid, because
	// other users can write the status.
	maxClockSkew = 5 * time.Minute
	// minRetryInterval is the minimum pause between two attempts. Each pause is half of the time since the first
	// attempt.
	minRetryInterval = 10 * time.Second
	// maxConcurrentReports is the maximum number of concurrent requests to providers.
	maxConcurrentReports = 16
)

// Reconciler sends the commit statuses of Deployments. It writes only status.commitStatus, and no other
// controller writes that field.
type Reconciler struct {
	*base.Base
	// Guard decides which addresses can be reached.
	Guard *egress.Guard

	// busy has the namespaces with a request in progress. Each namespace has one slot, so that a slow
	// provider delays only its own project.
	busy sync.Map
	// pauses has the namespaces whose provider does not accept statuses.
	pauses providerBackoff
	// deleted has deployments that were deleted while their commit status was pending, by
	// types.NamespacedName.
	deleted sync.Map
}

// Reconcile sends the commit status of a Deployment if the provider does not have it yet: of a deleted
// one, and of the current one with this name.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	again, err := r.endDeletedStatus(ctx, req.NamespacedName)
	if err != nil {
		return again, err
	}
	d := &v1alpha1.Deployment{}
	if err := r.Client.Get(ctx, req.NamespacedName, d); err != nil {
		return again, client.IgnoreNotFound(err)
	}
	result, err := r.sendStatus(ctx, d, r.recordStatus)
	if errors.Is(err, base.ErrProjectMissing) { // the namespace is being deleted; a new Project triggers a reconcile
		result, err = ctrl.Result{}, nil
	}
	if result.RequeueAfter == 0 || again.RequeueAfter > 0 && again.RequeueAfter < result.RequeueAfter {
		result = again
	}
	return result, err
}

// resultRecorder records the result of a request. deleted reports that the deployment was deleted meanwhile with a
// pending commit status.
type resultRecorder func(context.Context, *v1alpha1.Deployment, v1alpha1.DeploymentCommitStatus) (deleted bool, err error)

// sendStatus sends the commit status of a deployment, and calls show with the result.
func (r *Reconciler) sendStatus(ctx context.Context, d *v1alpha1.Deployment, show resultRecorder) (ctrl.Result, error) {
	state, since := wantedState(d)
	age := r.Now().Sub(since)
	if state == "" || isSettled(d, state) || age > maxStateAge || age < -maxClockSkew {
		return ctrl.Result{}, nil
	}
	again := ctrl.Result{RequeueAfter: max(minRetryInterval, age/2)}
	project, err := r.Project(ctx, d.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	with, err := r.providerConfig(ctx, project)
	if err != nil {
		return ctrl.Result{}, err
	}
	if rest := r.pauses.remainingPause(d.Namespace, with, r.Now()); rest > 0 {
		return ctrl.Result{RequeueAfter: wait.Jitter(rest, pauseJitter)}, nil
	}
	status, ok, err := r.statusOf(ctx, d)
	if err != nil || !ok {
		return again, err
	}
	if last := reportedState(d); last == status.State {
		return ctrl.Result{}, nil
	}
	if _, busy := r.busy.LoadOrStore(d.Namespace, true); busy {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	defer r.busy.Delete(d.Namespace)
	began := r.Now()
	became, err := r.reportStatus(ctx, d, project, status)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.startPause(d.Namespace, with, became.Reason, r.Now().Sub(began))
	if became.Reason == v1alpha1.CommitStatusReported {
		again = ctrl.Result{}
	}
	deleted, err := show(ctx, d, became)
	if deleted {
		again.RequeueAfter = minRetryInterval
	}
	return again, err
}

// startPause starts a pause if the provider rejected the last status or was slow, because its requests hold
// a slot that other deployments wait for.
func (r *Reconciler) startPause(namespace string, with providerConfig, became v1alpha1.CommitStatusReason, took time.Duration) {
	switch {
	case became == v1alpha1.CommitStatusRefused || became == v1alpha1.CommitStatusUnreachable || took >= slowResponse:
		r.pauses.extendPause(namespace, with, r.Now())
	case became == v1alpha1.CommitStatusReported:
		r.pauses.endPause(namespace)
	}
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	options := r.ControllerOptions()
	options.MaxConcurrentReconciles = maxConcurrentReports
	return ctrl.NewControllerManagedBy(mgr).
		Named("commitstatus").
		WithOptions(options).
		For(&v1alpha1.Deployment{}, builder.WithPredicates(base.Changed(reportedFields))).
		Watches(&v1alpha1.Deployment{}, r.deletionHandler()).
		Watches(&v1alpha1.Project{}, r.Enqueue(&v1alpha1.DeploymentList{}, isUnreported), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.unreportedWith),
			builder.OnlyMetadata, builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Complete(r)
}

// reportedFields returns the fields of a deployment that determine its commit status.
func reportedFields(d *v1alpha1.Deployment) any {
	return [2]string{string(d.Status.Phase), d.Status.Commit}
}

// isUnreported picks the deployments whose provider has not accepted the last status or has not received it
// yet, for example during a pause.
func isUnreported(_ client.Object, deployment v1alpha1.ConditionedObject) bool {
	d, ok := deployment.(*v1alpha1.Deployment)
	if !ok {
		return false
	}
	last := d.Status.CommitStatus
	if last == nil {
		state, _ := wantedState(d)
		return state != ""
	}
	return last.Reason != v1alpha1.CommitStatusReported
}

// unreportedWith returns the deployments whose provider has not accepted the last status, if the Secret has
// the token of their project.
func (r *Reconciler) unreportedWith(ctx context.Context, secret client.Object) (out []ctrl.Request) {
	project, list := &v1alpha1.Project{}, &v1alpha1.DeploymentList{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: secret.GetNamespace(), Name: v1alpha1.ProjectName}, project)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if git := project.Spec.Git; err == nil && (git == nil || git.SecretRef == nil || string(git.SecretRef.Name) != secret.GetName()) {
		return nil
	}
	if err == nil {
		err = r.Client.List(ctx, list, client.InNamespace(secret.GetNamespace()))
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "finding the deployments that use a Git Secret")
	}
	for i := range list.Items {
		if d := &list.Items[i]; isUnreported(secret, d) {
			out = append(out, base.Request(d))
		}
	}
	return out
}
