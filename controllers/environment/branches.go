// SPDX-License-Identifier: Apache-2.0

package environment

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
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
)

const (
	// looksAtOnce is how many repositories are asked at a time.
	looksAtOnce = 16
	// lookPatience is how long a repository may take to answer, and answerPatience to
	// begin with it.
	lookPatience, answerPatience = 30 * time.Second, 8 * time.Second
)

// Branches asks the repositories of projects where the branches stand that
// environments follow. It reconciles Projects, and writes nothing.
type Branches struct {
	*object.Base
	// Guard decides which addresses may be reached.
	Guard *egress.Guard
	// Heads take what is seen.
	Heads *Heads
	// Pushes are those that Git providers tell of; nil hears of none.
	Pushes *Pushes
	// Metrics count the looks; nil counts nowhere.
	Metrics *metrics.Manager

	looks looks
}

// Reconcile looks at the repository of one project and wakes the environments whose
// branch moved.
func (b *Branches) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	project := &v1alpha1.Project{}
	if err := b.Client.Get(ctx, req.NamespacedName, project); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading the project: %w", err)
	}
	list := &v1alpha1.EnvironmentList{}
	if err := b.Client.List(ctx, list, client.InNamespace(req.Namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the environments that follow branches: %w", err)
	}
	following, interval := followers(list.Items)
	nobody := project.Spec.Git == nil || len(following) == 0
	rest := b.looks.rest(req.Namespace, b.Now())
	if nobody || rest == 0 {
		if err := b.Pushes.take(ctx, req.Namespace); err != nil {
			return ctrl.Result{}, err
		}
	}
	if nobody {
		b.Heads.put(req.Namespace, nil)
		b.looks.forget(req.Namespace, b.Now())
		return ctrl.Result{}, nil
	}
	if rest > 0 {
		return ctrl.Result{RequeueAfter: rest}, nil
	}
	seen, late := b.look(ctx, project, following)
	if err := ctx.Err(); err != nil { // whatever it saw
		return ctrl.Result{}, err
	}
	b.looks.took(req.Namespace, b.Now(), interval, late)
	changed := b.Heads.put(req.Namespace, seen)
	for _, e := range following {
		if !changed[branchOf(e, project)] {
			continue
		}
		select {
		case b.Heads.changed <- event.GenericEvent{Object: e}:
		case <-ctx.Done():
			return ctrl.Result{}, ctx.Err()
		}
	}
	return ctrl.Result{RequeueAfter: max(spread(req.Namespace, interval), b.looks.rest(req.Namespace, b.Now()))}, nil
}

// followers are the environments that follow a branch, and the shortest of their
// intervals.
func followers(all []v1alpha1.Environment) (following []*v1alpha1.Environment, interval time.Duration) {
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

// branchOf is the branch that an environment follows; "" is the repository's own.
func branchOf(e *v1alpha1.Environment, project *v1alpha1.Project) string {
	if project.Spec.Git == nil {
		return ""
	}
	return string(cmp.Or(e.Spec.Git.Branch, project.Spec.Git.DefaultBranch))
}

// spread keeps projects apart that were all seen at once, as after a start: each has
// up to a tenth of its interval more, the same each time.
func spread(namespace string, interval time.Duration) time.Duration {
	return interval + interval/10*time.Duration(crc32.ChecksumIEEE([]byte(namespace))%1000)/1000
}

// SetupWithManager registers the controller.
func (b *Branches) SetupWithManager(mgr ctrl.Manager) error {
	options := b.ControllerOptions()
	options.MaxConcurrentReconciles = looksAtOnce
	build := ctrl.NewControllerManagedBy(mgr).
		Named("branches").
		WithOptions(options).
		For(&v1alpha1.Project{}, builder.WithPredicates(object.Changed(repository))).
		Watches(&v1alpha1.Environment{}, handler.EnqueueRequestsFromMapFunc(projectOf), builder.WithPredicates(object.Changed(followed))).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(b.fetchedWith), builder.OnlyMetadata)
	if b.Pushes != nil {
		build = build.WatchesRawSource(source.Channel(b.Pushes.told, &handler.EnqueueRequestForObject{}))
	}
	return build.Complete(b)
}

// repository is what of a project says which repository is asked.
func repository(o v1alpha1.ConditionedObject) any {
	if p, ok := o.(*v1alpha1.Project); ok {
		return p.Generation
	}
	return nil
}

// followed is what of an environment says which branch it follows, and how often that is
// looked at.
func followed(o v1alpha1.ConditionedObject) any {
	if e, ok := o.(*v1alpha1.Environment); ok {
		return [2]any{e.Spec.Git.Interval(), string(e.Spec.Git.Branch) + " " + fmt.Sprint(e.Spec.Suspend)}
	}
	return nil
}

// projectOf is the project of an object's namespace.
func projectOf(_ context.Context, o client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: v1alpha1.ProjectName}}}
}

// fetchedWith is the project whose repository is asked with the credentials in a Secret.
func (b *Branches) fetchedWith(ctx context.Context, secret client.Object) []ctrl.Request {
	project := &v1alpha1.Project{}
	err := b.Client.Get(ctx, client.ObjectKey{Namespace: secret.GetNamespace(), Name: v1alpha1.ProjectName}, project)
	if client.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Error(err, "looking for the project that a Secret concerns")
	}
	if git := project.Spec.Git; git == nil || git.SecretRef == nil || string(git.SecretRef.Name) != secret.GetName() {
		return nil
	}
	return projectOf(ctx, secret)
}
