// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/gitremote"
)

const (
	// looksAtOnce is how many repositories are asked at a time. An answer may have
	// gitremote.MaxRefs bytes, so it bounds memory too.
	looksAtOnce = 4
	// lookPatience is how long a repository may take to answer.
	lookPatience = 30 * time.Second
)

// Branches asks the repositories of projects where the branches stand that
// environments follow. It reconciles Projects, and writes nothing.
type Branches struct {
	*object.Base
	// Guard decides which addresses may be reached.
	Guard *egress.Guard
	// Heads take what is seen.
	Heads *Heads
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
	if project.Spec.Git == nil || len(following) == 0 {
		b.Heads.put(req.Namespace, nil)
		return ctrl.Result{}, nil
	}
	seen := b.look(ctx, project, following)
	if err := ctx.Err(); err != nil { // whatever it saw
		return ctrl.Result{}, err
	}
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
	return ctrl.Result{RequeueAfter: spread(req.Namespace, interval)}, nil
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

// look is where the branches stand that the environments follow.
func (b *Branches) look(ctx context.Context, project *v1alpha1.Project, following []*v1alpha1.Environment) map[string]Head {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	names, seen := map[string]bool{}, map[string]Head{}
	for _, e := range following {
		names[branchOf(e, project)] = true
	}
	if err := b.ask(ctx, project, names, seen); err != nil {
		for name := range names {
			seen[name] = Head{Problem: gitremote.Explain(project.Spec.Git.URL, project.Spec.Git.SecretRef != nil, err)}
		}
	}
	return seen
}

// ask asks the repository where branches of these names stand.
func (b *Branches) ask(ctx context.Context, project *v1alpha1.Project, names map[string]bool, seen map[string]Head) error {
	var credentials map[string][]byte
	if ref := project.Spec.Git.SecretRef; ref != nil {
		var err error
		if credentials, err = b.Secret(ctx, project.Namespace, string(ref.Name)); err != nil {
			return gitremote.Remedy("%v", err)
		}
	}
	remote, err := gitremote.New(project.Spec.Git.URL, gitremote.Values(credentials), b.Guard)
	if err != nil {
		return err
	}
	session, err := remote.Connect(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	refs, err := session.Refs(ctx)
	if err != nil {
		return err
	}
	var moved []plumbing.Hash
	for name := range names {
		commit, _, err := gitremote.Resolve(refs, name)
		if err != nil {
			seen[name] = Head{Problem: err.Error()}
			continue
		}
		seen[name] = Head{Commit: commit.String()}
		if known, _ := b.Heads.get(project.Namespace, name); known.Commit == seen[name].Commit {
			seen[name] = known
		} else if !slices.Contains(moved, commit) {
			moved = append(moved, commit)
		}
	}
	if project.Spec.Git.Path == "" || len(moved) == 0 {
		return nil
	}
	trees, err := gitremote.Trees(ctx, session, refs, project.Spec.Git.Path, moved...)
	if err != nil { // then it is as if there were no path: each commit counts
		ctrl.LoggerFrom(ctx).V(1).Info("cannot see which commits touch git.path", "reason", err.Error())
	}
	for name, head := range seen {
		if tree, ok := trees[plumbing.NewHash(head.Commit)]; ok && head.Problem == "" {
			head.Tree = tree
			seen[name] = head
		}
	}
	return nil
}

// SetupWithManager registers the controller.
func (b *Branches) SetupWithManager(mgr ctrl.Manager) error {
	options := b.ControllerOptions()
	options.MaxConcurrentReconciles = looksAtOnce
	return ctrl.NewControllerManagedBy(mgr).
		Named("branches").
		WithOptions(options).
		For(&v1alpha1.Project{}, builder.WithPredicates(object.Changed(repository))).
		Watches(&v1alpha1.Environment{}, handler.EnqueueRequestsFromMapFunc(projectOf), builder.WithPredicates(object.Changed(followed))).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(b.fetchedWith), builder.OnlyMetadata).
		Complete(b)
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
