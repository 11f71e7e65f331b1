// SPDX-License-Identifier: Apache-2.0

// Package gitfollower brings Environments to the commits that they follow: it polls the repositories of
// projects, and deploys the head of a branch or a named commit.
package gitfollower

import (
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=environments,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=projects,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch

const (
	// maxConcurrentPolls is the number of repositories that are polled concurrently.
	maxConcurrentPolls = 16
	// pollTimeout is the timeout of a poll. responseTimeout is the timeout of the first response.
	pollTimeout, responseTimeout = 30 * time.Second, 8 * time.Second
)

// Reconciler polls the repositories of projects for the branches that environments follow. It reconciles
// Projects and writes no objects.
type Reconciler struct {
	*base.Base
	// Guard decides which addresses can be reached.
	Guard *egress.Guard
	// Heads receives the results.
	Heads *Heads
	// Changed receives the environments whose branch moved.
	Changed chan<- event.GenericEvent
	// Pushes has the pushes that Git providers reported. If nil, there are none.
	Pushes *Pushes
	// Metrics counts the polls. If nil, nothing is recorded.
	Metrics *metrics.Manager

	polls pollTimes
}

// Reconcile polls the repository of one project and queues the environments whose branch moved.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	project := &v1alpha1.Project{}
	if err := r.Client.Get(ctx, req.NamespacedName, project); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading the project: %w", err)
	}
	list := &v1alpha1.EnvironmentList{}
	if err := r.Client.List(ctx, list, client.InNamespace(req.Namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the environments that follow branches: %w", err)
	}
	following, interval := followingEnvironments(list.Items)
	unused := project.Spec.Git == nil || len(following) == 0
	pause := r.polls.remainingPause(req.Namespace, r.Now())
	if unused || pause == 0 {
		if err := r.Pushes.takeRequest(ctx, req.Namespace); err != nil {
			return ctrl.Result{}, err
		}
	}
	if unused {
		r.Heads.replaceHeads(req.Namespace, nil)
		r.polls.forgetRepository(req.Namespace, r.Now())
		return ctrl.Result{}, nil
	}
	if pause > 0 {
		return ctrl.Result{RequeueAfter: pause}, nil
	}
	begun := r.Now()
	seen, late := r.pollBranches(ctx, project, following)
	if err := ctx.Err(); err != nil { // the result of the poll does not matter
		return ctrl.Result{}, err
	}
	r.polls.recordPoll(req.Namespace, r.Now(), r.Now().Sub(begun), interval, late)
	changed := r.Heads.replaceHeads(req.Namespace, seen)
	for _, e := range following {
		if !changed[branchOf(e, project)] {
			continue
		}
		if err := base.Queue(ctx, r.Changed, e); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: max(spreadInterval(req.Namespace, interval), r.polls.remainingPause(req.Namespace, r.Now()))}, nil
}

// followingEnvironments returns the environments that follow a branch, and their shortest interval.
func followingEnvironments(all []v1alpha1.Environment) (following []*v1alpha1.Environment, interval time.Duration) {
	for i := range all {
		e := &all[i]
		if e.Spec.Git.Interval() == 0 || e.Spec.Suspend {
			continue
		}
		if following = append(following, e); interval == 0 || e.Spec.Git.Interval() < interval {
			interval = e.Spec.Git.Interval()
		}
	}
	return following, interval
}

// branchOf returns the branch that an environment follows, or "" for the default branch of the
// repository.
func branchOf(e *v1alpha1.Environment, project *v1alpha1.Project) string {
	if project.Spec.Git == nil {
		return ""
	}
	return string(cmp.Or(e.Spec.Git.Branch, project.Spec.Git.DefaultBranch))
}

// spreadInterval adds up to a tenth to the interval, so that projects that are seen at the same time, for
// example after a start, do not poll at the same time. A project always gets the same interval.
func spreadInterval(namespace string, interval time.Duration) time.Duration {
	return interval + interval/10*time.Duration(crc32.ChecksumIEEE([]byte(namespace))%1000)/1000
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	options := r.ControllerOptions()
	options.MaxConcurrentReconciles = maxConcurrentPolls
	build := ctrl.NewControllerManagedBy(mgr).
		Named("branches").
		WithOptions(options).
		For(&v1alpha1.Project{}, builder.WithPredicates(base.Changed(repositoryState))).
		Watches(&v1alpha1.Environment{}, handler.EnqueueRequestsFromMapFunc(projectOf), builder.WithPredicates(base.Changed(followedState))).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.projectsOfSecret), builder.OnlyMetadata)
	if r.Pushes != nil {
		build = build.WatchesRawSource(source.Channel(r.Pushes.projects, &handler.EnqueueRequestForObject{}))
	}
	return build.Complete(r)
}

// repositoryState returns the fields of a project that identify its repository.
func repositoryState(p *v1alpha1.Project) any { return p.Generation }

// followedState returns the branch that an environment follows and its poll interval.
func followedState(e *v1alpha1.Environment) any {
	return [2]any{e.Spec.Git.Interval(), string(e.Spec.Git.Branch) + " " + fmt.Sprint(e.Spec.Suspend)}
}

// projectOf returns the project of an object's namespace.
func projectOf(_ context.Context, o client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: v1alpha1.ProjectName}}}
}

// projectsOfSecret returns the project whose repository needs the credentials in a Secret.
func (r *Reconciler) projectsOfSecret(ctx context.Context, secret client.Object) []ctrl.Request {
	project := &v1alpha1.Project{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: secret.GetNamespace(), Name: v1alpha1.ProjectName}, project)
	if client.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Error(err, "finding the project that uses a Secret")
	}
	if git := project.Spec.Git; git == nil || git.SecretRef == nil || string(git.SecretRef.Name) != secret.GetName() {
		return nil
	}
	return projectOf(ctx, secret)
}
