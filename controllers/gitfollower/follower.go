// SPDX-License-Identifier: Apache-2.0

package gitfollower

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
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
)

// Store has the store methods that a Follower needs.
type Store interface {
	Deployment(ctx context.Context, key store.Key) (store.Deployment, error)
	ListDeployments(ctx context.Context, environment store.Key) ([]store.Deployment, error)
}

// Follower brings Environments to commits. The controller of Environments calls it.
type Follower struct {
	*base.Base
	Store Store
	// Heads has the heads of branches.
	Heads *Heads
}

// Follow brings the environment to the commit that spec.git requests, and reports the state. It returns
// the time until the next reconcile, unless a watch triggers it. live is the live deployment in the
// store, or nil.
func (f *Follower) Follow(
	ctx context.Context, e *v1alpha1.Environment, project *v1alpha1.Project, live *store.Deployment, key store.Key,
) (time.Duration, error) {
	head, ok := f.requestedHead(e, project)
	if !ok {
		return 0, nil
	}
	list := &v1alpha1.DeploymentList{}
	err := f.Client.List(ctx, list, client.InNamespace(e.Namespace), client.MatchingFields{base.ByEnvironment: e.Name})
	if err != nil {
		return 0, fmt.Errorf("listing the deployments: %w", err)
	}
	needs, err := f.digestsOf(ctx, e, project)
	if err != nil {
		return 0, err
	}
	if was := e.Status.Git; was != nil && isUnchanged(*was, head, needs, e.Spec.Git.AutoDeploy, list.Items) {
		if was.Path == nil { // written by an earlier release
			was.Path = &head.Path
		}
		if was.Commit == head.Commit && *was.Path == head.Path && head.Tree != "" { // the tree was unknown before
			was.Tree = head.Tree
		}
		ended, err := f.outcomeOf(ctx, e, was, live, list.Items)
		if err != nil {
			return 0, err
		}
		e.MarkSourceFollowed(*was, ended)
		return 0, nil
	}
	asked, err := f.requestDeployment(ctx, e, branchOf(e, project), head, live, list.Items, key)
	if asked != nil {
		asked.Variables, asked.OAuthApps, asked.ModelProviders = needs.variables, needs.oauthApps, needs.modelProviders
	}
	var collision *base.StalledError
	if errors.As(err, &collision) {
		e.MarkSourceUnknown(collision.Reason, collision.Message)
		return base.MaxRetryInterval, nil
	}
	if words := base.RejectionMessage(err); words != "" {
		e.MarkSourceUnknown(v1alpha1.ReasonRefused, words)
		return base.MaxRetryInterval, nil
	}
	if err != nil {
		return 0, err
	}
	e.MarkSourceFollowed(*asked, "")
	return 0, nil
}

// digests has digests of the values that a deployment needs: the variables and OAuth apps of its environment, and
// the model providers of the project.
type digests struct{ variables, oauthApps, modelProviders string }

func (f *Follower) digestsOf(ctx context.Context, e *v1alpha1.Environment, project *v1alpha1.Project) (out digests, err error) {
	if out.variables, err = f.variablesDigest(ctx, e); err != nil {
		return out, err
	}
	if out.oauthApps, err = f.oauthAppsDigest(ctx, e); err != nil {
		return out, err
	}
	out.modelProviders, err = modelProvidersDigest(project)
	return out, err
}

// isUnchanged reports whether there is nothing to decide: the environment already has this head, or a head
// with the same files, of the same git.path. A deployment that failed because of its connectors is retried
// once per change of the variables, and because of a missing model provider, or of its tests, which may lack one, once
// per change of the providers.
// A deployment whose build failed is retried once per change of the OAuth apps, because a build needs them to
// list the tools of MCP servers. An environment that follows a branch has one build at a time: it waits for
// the current build, then takes the newest head.
func isUnchanged(was v1alpha1.EnvironmentGitStatus, head Head, now digests, following bool, all []v1alpha1.Deployment) bool {
	if was.Variables != now.variables && hasFailed(was.Deployment, v1alpha1.FailureConnectors, all) ||
		was.OAuthApps != now.oauthApps && hasFailed(was.Deployment, v1alpha1.FailureBuild, all) ||
		was.ModelProviders != now.modelProviders &&
			(hasFailed(was.Deployment, v1alpha1.FailureModelProvider, all) || hasFailed(was.Deployment, v1alpha1.FailureTests, all)) {
		return false
	}
	if slices.ContainsFunc(all, func(d v1alpha1.Deployment) bool { return d.Name == was.Deployment && isBundleGone(&d) }) {
		return false // it is built again
	}
	same := was.Commit == head.Commit || head.Tree != "" && was.Tree == head.Tree
	if same && !hasOtherPath(&was, head.Path) {
		return true
	}
	return following && slices.ContainsFunc(all, func(d v1alpha1.Deployment) bool { return d.Name == was.Deployment && isOpen(&d) })
}

// hasOtherPath reports whether the environment's version is from another git.path.
func hasOtherPath(was *v1alpha1.EnvironmentGitStatus, path string) bool {
	return was != nil && was.Path != nil && *was.Path != path
}

// outcomeOf returns the outcome of the Deployment that was created for a commit, or "" if it is live or in
// progress. If the cache does not have a new Deployment yet, outcomeOf reads it without a cache.
func (f *Follower) outcomeOf(
	ctx context.Context, e *v1alpha1.Environment, was *v1alpha1.EnvironmentGitStatus, live *store.Deployment, all []v1alpha1.Deployment,
) (string, error) {
	if (target{commit: was.Commit, path: ptr.Deref(was.Path, "")}).matchesLive(live) {
		return "", nil
	}
	if i := slices.IndexFunc(all, func(d v1alpha1.Deployment) bool { return d.Name == was.Deployment }); i >= 0 {
		return endedOutcome(&all[i]), nil
	}
	d := &v1alpha1.Deployment{}
	err := f.Reader.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: was.Deployment}, d)
	switch {
	case apierrors.IsNotFound(err):
		return "gone", nil
	case err != nil:
		return "", fmt.Errorf("reading Deployment %q: %w", was.Deployment, err)
	}
	return endedOutcome(d), nil
}

// endedOutcome returns the outcome of a deployment, or "" if it is live or in progress.
func endedOutcome(d *v1alpha1.Deployment) string {
	switch {
	case v1alpha1.IsStalled(d):
		return "stalled; see its conditions"
	case !d.Status.Phase.Terminal(), d.Status.Live:
		return ""
	case d.Status.Phase != v1alpha1.DeploymentDeployed:
		return string(d.Status.Phase) + "; see its conditions"
	case d.ActivationPending():
		return ""
	}
	return "not live, because another deployment is"
}

// requestDeployment chooses or creates the Deployment that brings the environment to a head, based on the store's
// state of all deployments. If the head is live and no other deployment is in progress, there is
// nothing to do. The live deployment's object may be missing after a move, because Deployments of the
// platform are in no repository.
func (f *Follower) requestDeployment(
	ctx context.Context, e *v1alpha1.Environment, branch string, head Head, live *store.Deployment, all []v1alpha1.Deployment, key store.Key,
) (*v1alpha1.EnvironmentGitStatus, error) {
	asked := &v1alpha1.EnvironmentGitStatus{Commit: head.Commit, Tree: head.Tree, Path: &head.Path}
	if e.Status.Git != nil {
		asked.Revision = e.Status.Git.Revision
	}
	if err := f.copyAllStored(ctx, all, key); err != nil {
		return nil, err
	}
	to := target{commit: head.Commit, path: head.Path}
	if to.matchesLive(live) && staysLive(to, all) {
		asked.Deployment = e.Status.LiveDeployment
		asked.Revision++
		return asked, nil
	}
	there, activate := deploymentOf(to, e.Status.LiveDeployment, all)
	if there == nil {
		return asked, f.createDeployment(ctx, e, branch, asked, key)
	}
	asked.Deployment = there.Name
	asked.Revision++
	if activate {
		return asked, f.activate(ctx, there)
	}
	return asked, nil
}

// copyAllStored calls copyStored for the deployments of an environment.
func (f *Follower) copyAllStored(ctx context.Context, all []v1alpha1.Deployment, environment store.Key) error {
	rows, err := f.Store.ListDeployments(ctx, environment)
	if err != nil {
		return base.FromStore(fmt.Errorf("reading the outcomes of the deployments: %w", err))
	}
	of := map[uuid.UUID]store.Deployment{}
	for _, row := range rows {
		of[row.ID] = row
	}
	for i := range all {
		id, err := v1alpha1.ObjectID(environment.ProjectID, &all[i])
		if row, known := of[id]; err == nil && known {
			copyStored(&all[i], row)
		}
	}
	return nil
}

// requestedHead returns the commit that the environment should have. ok is false if it is unknown; the status
// then has the reason.
func (f *Follower) requestedHead(e *v1alpha1.Environment, project *v1alpha1.Project) (head Head, ok bool) {
	git := e.Spec.Git
	switch {
	case git.Commit == "" && !git.AutoDeploy:
		e.MarkSourceUnfollowed()
		return head, false
	case project.Spec.Git == nil:
		e.MarkSourceUnknown(v1alpha1.ReasonGitMissing, fmt.Sprintf("the project has no Git repository; set spec.git of Project %q", v1alpha1.ProjectName))
		return head, false
	case git.Commit != "":
		return Head{Commit: string(git.Commit), Path: project.Spec.Git.Path}, true
	}
	head, seen := f.Heads.getHead(e.Namespace, branchOf(e, project))
	switch {
	case !seen: // it is being polled now, and the poll queues this environment
		e.ForgetSourceOfBefore()
	case head.Problem != "":
		e.MarkSourceUnknown(v1alpha1.ReasonFetchFailed, head.Problem)
	case head.Commit == "":
		e.MarkSourceUnknown(v1alpha1.ReasonFolderUnseen, head.TreeProblem)
	default:
		return head, true
	}
	return head, false
}

// ReportHead reports the head of the followed branch, whether or not it can be deployed.
func (f *Follower) ReportHead(e *v1alpha1.Environment, project *v1alpha1.Project) {
	defer f.announceHead(e, headStateOf(e))
	if e.Spec.Git.Interval() == 0 || e.Spec.Suspend || project.Spec.Git == nil { // the branch is not polled
		e.ForgetSeen()
		return
	}
	branch := branchOf(e, project)
	head, seen := f.Heads.getHead(e.Namespace, branch)
	switch {
	case !seen:
		e.ForgetSeenBefore()
	case head.Problem != "":
		e.MarkSourceUnfetched(v1alpha1.ReasonFetchFailed, head.Problem)
	default:
		e.MarkSourceSeen(branch, head.Seen, head.TreeProblem)
	}
}

// activate requests the activation of a deployment.
func (f *Follower) activate(ctx context.Context, d *v1alpha1.Deployment) error {
	at := metav1.NewTime(f.Now().Truncate(1e9))
	a := d.Spec.Activation
	switch {
	case a.IsAhead(f.Now()): // the request was rejected, and its time must not decrease
		if err := f.writeActivation(ctx, d, nil); err != nil {
			return err
		}
	case a != nil && !a.RequestedAt.Before(&at):
		at = metav1.NewTime(a.RequestedAt.Add(1e9))
	}
	return f.writeActivation(ctx, d, &v1alpha1.DeploymentActivation{RequestedAt: at})
}

// writeActivation writes or removes the activation request of a deployment.
func (f *Follower) writeActivation(ctx context.Context, d *v1alpha1.Deployment, activation *v1alpha1.DeploymentActivation) error {
	before := d.DeepCopy()
	d.Spec.Activation = activation
	err := f.Client.Patch(ctx, d, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(base.FieldManager))
	if err != nil {
		return fmt.Errorf("activating Deployment %q: %w", d.Name, err)
	}
	return nil
}
