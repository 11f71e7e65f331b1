// SPDX-License-Identifier: Apache-2.0

package gitfollower

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/gitremote"
	"github.com/agentplatform/agentplatform/internal/metrics"
)

// pollBranches polls the heads of the followed branches. late reports that the repository did not respond in
// time. It counts the poll in the metrics, unless the process ends.
func (r *Reconciler) pollBranches(ctx context.Context, project *v1alpha1.Project, following []*v1alpha1.Environment) (seen map[string]Head, late bool) {
	within, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	names := map[string]bool{}
	for _, e := range following {
		names[branchOf(e, project)] = true
	}
	seen = map[string]Head{}
	late, err := r.queryRemote(within, project, slices.Sorted(maps.Keys(names)), seen)
	if err != nil {
		for name := range names {
			seen[name] = Head{Problem: explainError(project, err), Cause: causeOf(project, err)}
		}
	}
	if r.Metrics != nil && ctx.Err() == nil {
		r.Metrics.Looked(resultOf(seen, late, err))
	}
	return seen, late
}

// explainError returns an error of the project's repository as a text for users.
func explainError(project *v1alpha1.Project, err error) string {
	return gitremote.Explain(project.Spec.Git.URL, project.Spec.Git.SecretRef != nil, err)
}

// causeOf returns the part of explained that the server does not choose.
func causeOf(project *v1alpha1.Project, err error) string {
	return gitremote.Cause(project.Spec.Git.URL, project.Spec.Git.SecretRef != nil, err)
}

// resultOf returns the result of a poll for the metrics. A repository without the branch counts as a
// response.
func resultOf(seen map[string]Head, late bool, err error) string {
	switch {
	case late:
		return metrics.LookLate
	case err != nil:
		return metrics.LookFailed
	}
	for _, head := range seen {
		if head.TreeProblem != "" {
			return metrics.LookUnseen
		}
	}
	return metrics.LookAnswered
}

// withResponseTimeout returns a context that ends after patience, unless answered is called before.
func withResponseTimeout(ctx context.Context, patience time.Duration) (_ context.Context, answered func(), cancel func()) {
	ctx, end := context.WithCancelCause(ctx)
	timer := time.AfterFunc(patience, func() { end(context.DeadlineExceeded) })
	return ctx, func() { timer.Stop() }, func() { timer.Stop(); end(nil) }
}

// queryRemote queries the heads of the named branches from the repository.
func (r *Reconciler) queryRemote(ctx context.Context, project *v1alpha1.Project, names []string, seen map[string]Head) (late bool, err error) {
	var credentials map[string][]byte
	if ref := project.Spec.Git.SecretRef; ref != nil {
		if credentials, err = r.Secret(ctx, project.Namespace, string(ref.Name)); err != nil {
			return false, gitremote.Remedy("%v", err)
		}
	}
	remote, err := gitremote.New(project.Spec.Git.URL, gitremote.Values(credentials), r.Guard)
	if err != nil {
		return false, err
	}
	ctx, answered, cancel := withResponseTimeout(ctx, responseTimeout)
	defer cancel()
	// An ended context causes a different error in each layer. Return one error for all of them.
	defer func() {
		if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			late, err = true, context.DeadlineExceeded
		}
	}()
	session, err := remote.Connect(ctx)
	if err != nil {
		return false, err
	}
	defer session.Close()
	tips, err := session.Tips(ctx, names, answered)
	if err != nil {
		return false, err
	}
	path, moved := project.Spec.Git.Path, map[string]plumbing.Hash{}
	for _, name := range names {
		commit, _, err := gitremote.Branch(tips, name)
		if err != nil {
			seen[name] = Head{Problem: err.Error()}
			continue
		}
		seen[name] = Head{Seen: commit.String(), Commit: commit.String(), Path: path}
		if known, _ := r.Heads.getHead(project.Namespace, name); known.Commit == commit.String() && known.Path == path {
			seen[name] = Head{Seen: known.Commit, Commit: known.Commit, Path: path, Tree: known.Tree}
		} else {
			moved[name] = commit
		}
	}
	if path == "" || len(moved) == 0 {
		return false, nil
	}
	return r.queryTrees(ctx, session, tips, project, moved, seen), nil
}

// queryTrees adds the tree of git.path to the heads that moved. If the server does not support it,
// the head counts as if there were no path. If the next poll may succeed, the previous head stays in
// effect for some polls.
func (r *Reconciler) queryTrees(
	ctx context.Context, session gitremote.Session, tips *packp.AdvRefs, project *v1alpha1.Project, moved map[string]plumbing.Hash, seen map[string]Head,
) (late bool) {
	commits := slices.Compact(slices.SortedFunc(maps.Values(moved), func(a, b plumbing.Hash) int { return slices.Compare(a[:], b[:]) }))
	hold := func() (release func()) {
		since := r.Now()
		return func() { r.polls.recordTransferTime(project.Namespace, r.Now().Sub(since)) }
	}
	trees, err := gitremote.Trees(ctx, session, tips, project.Spec.Git.Path, hold, commits...)
	late = errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, gitremote.ErrBusy)
	switch {
	case err == nil:
		r.polls.recordTreeRead(project.Namespace)
		for name, commit := range moved {
			head := seen[name]
			head.Tree = trees[commit]
			seen[name] = head
		}
		return false
	case errors.Is(err, gitremote.ErrFilter), errors.As(err, new(gitremote.RemedyError)):
		r.polls.recordTreeRead(project.Namespace)
		ctrl.LoggerFrom(ctx).V(1).Info("cannot see which commits touch git.path", "reason", err.Error())
		return false
	case !r.polls.recordTreeUnread(project.Namespace):
		return late
	}
	for name := range moved {
		head := Head{
			Seen: seen[name].Seen, Path: project.Spec.Git.Path, TreeProblem: unknownTreeReason(project, err), Cause: causeOf(project, err),
		}
		if known, _ := r.Heads.getHead(project.Namespace, name); known.Path == head.Path {
			head.Commit, head.Tree = known.Commit, known.Tree
		}
		seen[name] = head
	}
	return late
}

// unknownTreeReason says why the tree of git.path is not known.
func unknownTreeReason(project *v1alpha1.Project, err error) string {
	why := "too many other repositories are being read"
	if !errors.Is(err, gitremote.ErrBusy) {
		why = explainError(project, err)
	}
	return fmt.Sprintf("the files in %q cannot be read now and are read again later: %s", project.Spec.Git.Path, why)
}
