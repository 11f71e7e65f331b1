// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

// follow brings the environment to the commit that spec.git asks for, and says so. It
// returns when to look again, where nothing else wakes the environment.
// live is what the store has live, nil for nothing.
func (r *Reconciler) follow(
	ctx context.Context, e *v1alpha1.Environment, project *v1alpha1.Project, live *store.Deployment, key store.Key,
) (time.Duration, error) {
	head, ok := r.wanted(e, project)
	if !ok {
		return 0, nil
	}
	list := &v1alpha1.DeploymentList{}
	err := r.Client.List(ctx, list, client.InNamespace(e.Namespace), client.MatchingFields{object.ByEnvironment: e.Name})
	if err != nil {
		return 0, fmt.Errorf("listing the deployments: %w", err)
	}
	variables, err := r.variablesDigest(ctx, e)
	if err != nil {
		return 0, err
	}
	if was := e.Status.Git; was != nil && stays(*was, head, variables, e.Spec.Git.AutoDeploy, list.Items) {
		if was.Path == nil { // of a release before
			was.Path = &head.Path
		}
		if was.Commit == head.Commit && *was.Path == head.Path && head.Tree != "" { // which was not seen before
			was.Tree = head.Tree
		}
		ended, err := r.endOf(ctx, e, was, live, list.Items)
		if err != nil {
			return 0, err
		}
		e.MarkSourceFollowed(*was, ended)
		return 0, nil
	}
	asked, err := r.ask(ctx, e, branchOf(e, project), head, live, list.Items, key)
	if asked != nil {
		asked.Variables = variables
	}
	var collision *object.StalledError
	if errors.As(err, &collision) {
		e.MarkSourceUnknown(collision.Reason, collision.Message)
		return object.Later, nil
	}
	if words := object.Refusal(err); words != "" {
		e.MarkSourceUnknown(v1alpha1.ReasonRefused, words)
		return object.Later, nil
	}
	if err != nil {
		return 0, err
	}
	e.MarkSourceFollowed(*asked, "")
	return 0, nil
}

// stays says whether nothing is to be decided: the environment was brought to this head,
// or to files that are the same, of the same git.path. A deployment that failed by its connectors is tried again once
// for each change of the variables. One that follows a branch has one build
// at a time: the end of what was decided last is waited for, and then the newest head counts.
func stays(was v1alpha1.EnvironmentGitStatus, head Head, variables string, following bool, all []v1alpha1.Deployment) bool {
	if was.Variables != variables && isStopped(was.Deployment, all) {
		return false
	}
	if slices.ContainsFunc(all, func(d v1alpha1.Deployment) bool { return d.Name == was.Deployment && isGone(&d) }) {
		return false // it is built anew
	}
	same := was.Commit == head.Commit || head.Tree != "" && was.Tree == head.Tree
	if same && !isMoved(&was, head.Path) {
		return true
	}
	return following && slices.ContainsFunc(all, func(d v1alpha1.Deployment) bool { return d.Name == was.Deployment && isOpen(&d) })
}

// isMoved says whether an environment was brought where it is from another git.path.
func isMoved(was *v1alpha1.EnvironmentGitStatus, path string) bool {
	return was != nil && was.Path != nil && *was.Path != path
}

// endOf is what became of the Deployment that was asked to bring the environment to a commit,
// "" where that is live or on its way. One that the cache has not is looked for past it: it may
// have been made a moment ago.
func (r *Reconciler) endOf(
	ctx context.Context, e *v1alpha1.Environment, was *v1alpha1.EnvironmentGitStatus, live *store.Deployment, all []v1alpha1.Deployment,
) (string, error) {
	if (target{commit: was.Commit, path: ptr.Deref(was.Path, "")}).isOf(live) {
		return "", nil
	}
	if i := slices.IndexFunc(all, func(d v1alpha1.Deployment) bool { return d.Name == was.Deployment }); i >= 0 {
		return ended(&all[i]), nil
	}
	d := &v1alpha1.Deployment{}
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: was.Deployment}, d)
	switch {
	case apierrors.IsNotFound(err):
		return "gone", nil
	case err != nil:
		return "", fmt.Errorf("reading Deployment %q: %w", was.Deployment, err)
	}
	return ended(d), nil
}

// ended says what became of a deployment, "" of one that is live or on its way.
func ended(d *v1alpha1.Deployment) string {
	switch {
	case v1alpha1.IsStalled(d):
		return "stalled: its conditions say why"
	case !d.Status.Phase.Terminal(), d.Status.Live:
		return ""
	case d.Status.Phase != v1alpha1.DeploymentDeployed:
		return string(d.Status.Phase) + ": its conditions say why"
	case d.ActivationPending():
		return ""
	}
	return "not live, for another one is"
}

// ask decides on the Deployment that brings the environment to a head, by what the store knows of
// all there are. Where it has that live and nothing else is on its way, there is nothing to bring:
// the object may be missing, as after a move, for those that the platform makes lie in no repository.
func (r *Reconciler) ask(
	ctx context.Context, e *v1alpha1.Environment, branch string, head Head, live *store.Deployment, all []v1alpha1.Deployment, key store.Key,
) (*v1alpha1.EnvironmentGitStatus, error) {
	asked := &v1alpha1.EnvironmentGitStatus{Commit: head.Commit, Tree: head.Tree, Path: &head.Path}
	if e.Status.Git != nil {
		asked.Revision = e.Status.Git.Revision
	}
	if err := r.showAllStored(ctx, all, key); err != nil {
		return nil, err
	}
	to := target{commit: head.Commit, path: head.Path}
	if to.isOf(live) && stayLive(to, all) {
		asked.Deployment = e.Status.LiveDeployment
		asked.Revision++
		return asked, nil
	}
	there, activate := deploymentOf(to, e.Status.LiveDeployment, all)
	if there == nil {
		return asked, r.deploy(ctx, e, branch, asked, key)
	}
	asked.Deployment = there.Name
	asked.Revision++
	if activate {
		return asked, r.activate(ctx, there)
	}
	return asked, nil
}

// showAllStored is showStored for the deployments of an environment.
func (r *Reconciler) showAllStored(ctx context.Context, all []v1alpha1.Deployment, environment store.Key) error {
	rows, err := r.Store.ListDeployments(ctx, environment)
	if err != nil {
		return object.FromStore(fmt.Errorf("reading what became of the deployments: %w", err))
	}
	of := map[uuid.UUID]store.Deployment{}
	for _, row := range rows {
		of[row.ID] = row
	}
	for i := range all {
		id, err := v1alpha1.ObjectID(environment.ProjectID, &all[i])
		if row, known := of[id]; err == nil && known {
			showStored(&all[i], row)
		}
	}
	return nil
}

// wanted is the commit that the environment is to be at; ok is false where there is
// none to be known, of which the status then tells.
func (r *Reconciler) wanted(e *v1alpha1.Environment, project *v1alpha1.Project) (head Head, ok bool) {
	git := e.Spec.Git
	switch {
	case git.Commit == "" && !git.AutoDeploy:
		e.MarkSourceUnfollowed()
		return head, false
	case project.Spec.Git == nil:
		e.MarkSourceUnknown(v1alpha1.ReasonGitMissing, fmt.Sprintf("the project has no git repository: set spec.git of Project %q", v1alpha1.ProjectName))
		return head, false
	case git.Commit != "":
		return Head{Commit: string(git.Commit), Path: project.Spec.Git.Path}, true
	}
	head, seen := r.Heads.get(e.Namespace, branchOf(e, project))
	switch {
	case !seen: // it is looked at now, and this environment woken
		e.ForgetSourceOfBefore()
	case head.Problem != "":
		e.MarkSourceUnknown(v1alpha1.ReasonFetchFailed, head.Problem)
	case head.Commit == "":
		e.MarkSourceUnknown(v1alpha1.ReasonFolderUnseen, head.Unseen)
	default:
		return head, true
	}
	return head, false
}

// showHead shows where the branch stands that the environment follows, whether it can be
// brought there or not.
func (r *Reconciler) showHead(e *v1alpha1.Environment, project *v1alpha1.Project) {
	if e.Spec.Git.Interval() == 0 || e.Spec.Suspend || project.Spec.Git == nil { // nobody looks
		e.ForgetSeen()
		return
	}
	branch := branchOf(e, project)
	head, seen := r.Heads.get(e.Namespace, branch)
	switch {
	case !seen:
		e.ForgetSeenBefore()
	case head.Problem != "":
		e.MarkSourceUnfetched(v1alpha1.ReasonFetchFailed, head.Problem)
	default:
		e.MarkSourceSeen(branch, head.Seen, head.Unseen)
	}
}

// activate asks for a deployment to be live again.
func (r *Reconciler) activate(ctx context.Context, d *v1alpha1.Deployment) error {
	at := metav1.NewTime(r.Now().Truncate(1e9))
	a := d.Spec.Activation
	switch {
	case a.IsAhead(r.Now()): // it was refused, and a time cannot go back where there is one
		if err := r.request(ctx, d, nil); err != nil {
			return err
		}
	case a != nil && !a.RequestedAt.Before(&at):
		at = metav1.NewTime(a.RequestedAt.Add(1e9))
	}
	return r.request(ctx, d, &v1alpha1.DeploymentActivation{RequestedAt: at})
}

// request writes what is asked for of a deployment, nil for nothing.
func (r *Reconciler) request(ctx context.Context, d *v1alpha1.Deployment, activation *v1alpha1.DeploymentActivation) error {
	before := d.DeepCopy()
	d.Spec.Activation = activation
	err := r.Client.Patch(ctx, d, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(object.FieldManager))
	if err != nil {
		return fmt.Errorf("activating Deployment %q: %w", d.Name, err)
	}
	return nil
}
