// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=deployments,verbs=create;patch

// follow brings the environment to the commit that spec.git asks for.
func (r *Reconciler) follow(ctx context.Context, e *v1alpha1.Environment, project *v1alpha1.Project) error {
	head, ok := r.wanted(e, project)
	if !ok {
		return nil
	}
	if was := e.Status.Git; was != nil && (was.Commit == head.Commit || head.Tree != "" && was.Tree == head.Tree) {
		e.MarkSourceFollowed(*was)
		return nil
	}
	list := &v1alpha1.DeploymentList{}
	err := r.Client.List(ctx, list, client.InNamespace(e.Namespace), client.MatchingFields{object.ByEnvironment: e.Name})
	if err != nil {
		return fmt.Errorf("listing the deployments: %w", err)
	}
	there, activate := deploymentOf(head.Commit, list.Items)
	switch {
	case there == nil:
		there = commitDeployment(e, branchOf(e, project), head.Commit)
		err = r.deploy(ctx, e, there)
	case activate:
		err = r.activate(ctx, there)
	}
	var collision *object.StalledError
	switch {
	case errors.As(err, &collision):
		e.MarkSourceUnknown(collision.Reason, collision.Message)
		return nil
	case err != nil:
		return err
	}
	e.MarkSourceFollowed(v1alpha1.EnvironmentGitStatus{Commit: head.Commit, Tree: head.Tree, Deployment: there.Name})
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
		return Head{Commit: string(git.Commit)}, true
	}
	head, seen := r.Heads.get(e.Namespace, branchOf(e, project))
	switch {
	case !seen: // it is looked at now, and this environment woken
	case head.Problem != "":
		e.MarkSourceUnknown(v1alpha1.ReasonFetchFailed, head.Problem)
	default:
		return head, true
	}
	return head, false
}

// deploymentOf is the Deployment that brings an environment to a commit without another
// build, nil where there is none: one that is on its way there, is live, or, with
// activate, was live before and can be so again. What is on its way to another commit
// would go live after one that only is live, and not after one that is activated.
func deploymentOf(commit string, all []v1alpha1.Deployment) (there *v1alpha1.Deployment, activate bool) {
	elsewhere := false
	for i := range all {
		d := &all[i]
		if d.Status.Phase.Terminal() || d.DeletionTimestamp != nil || d.Spec.Cancel || v1alpha1.IsStalled(d) {
			continue
		}
		if isOf(d, commit) {
			return d, false
		}
		elsewhere = true
	}
	for i := range all {
		d := &all[i]
		if d.Status.Phase != v1alpha1.DeploymentDeployed || d.DeletionTimestamp != nil || !isOf(d, commit) {
			continue
		}
		if d.Status.Live && !elsewhere {
			return d, false
		}
		// What a user made is the user's to activate.
		if d.Labels[object.LabelManagedBy] == object.ManagedBy && (there == nil || oldestFirst(there, d) < 0) {
			there, activate = d, true
		}
	}
	return there, activate
}

// oldestFirst orders deployments by their creation.
func oldestFirst(a, b *v1alpha1.Deployment) int {
	return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
}

// isOf says whether a deployment is one of a commit.
func isOf(d *v1alpha1.Deployment, commit string) bool {
	git := d.Spec.Source.Git
	return d.Status.Commit == commit || d.Status.Commit == "" && git != nil && string(git.Commit) == commit
}

// commitDeployment deploys a commit to an environment. Its name is the same until the
// environment was at another commit, so that it is made once.
func commitDeployment(e *v1alpha1.Environment, branch, commit string) *v1alpha1.Deployment {
	before := ""
	if e.Status.Git != nil {
		before = e.Status.Git.Commit
	}
	sum := sha256.Sum256([]byte(string(e.UID) + " " + before))
	return &v1alpha1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Namespace, Name: fmt.Sprintf("%s-%.8s-%s", e.Name, commit, hex.EncodeToString(sum[:4])),
			Labels: map[string]string{object.LabelManagedBy: object.ManagedBy},
		},
		Spec: v1alpha1.DeploymentSpec{
			Environment: v1alpha1.EnvironmentName(e.Name),
			Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{
				Branch: v1alpha1.GitBranch(branch), Commit: v1alpha1.GitCommit(commit),
			}},
		},
	}
}

// deploy makes a deployment, once.
func (r *Reconciler) deploy(ctx context.Context, e *v1alpha1.Environment, d *v1alpha1.Deployment) error {
	err := r.Client.Create(ctx, d.DeepCopy(), client.FieldOwner(object.FieldManager))
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("creating Deployment %q: %w", d.Name, err)
		}
		return nil
	}
	found := &v1alpha1.Deployment{}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(d), found); err != nil {
		return fmt.Errorf("reading Deployment %q: %w", d.Name, err)
	}
	if string(found.Spec.Environment) != e.Name || !isOf(found, string(d.Spec.Source.Git.Commit)) {
		return &object.StalledError{Reason: v1alpha1.ReasonNameCollision, Message: fmt.Sprintf(
			"Deployment %q is another one than spec.git asks for; delete it", d.Name)}
	}
	return nil
}

// activate asks for a deployment to be live again.
func (r *Reconciler) activate(ctx context.Context, d *v1alpha1.Deployment) error {
	before := d.DeepCopy()
	at := metav1.NewTime(r.Now().Truncate(1e9))
	if a := d.Spec.Activation; a != nil && !a.RequestedAt.Before(&at) {
		at = metav1.NewTime(a.RequestedAt.Add(1e9))
	}
	d.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: at}
	err := r.Client.Patch(ctx, d, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(object.FieldManager))
	if err != nil {
		return fmt.Errorf("activating Deployment %q: %w", d.Name, err)
	}
	return nil
}
