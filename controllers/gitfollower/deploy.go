// SPDX-License-Identifier: Apache-2.0

package gitfollower

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=deployments,verbs=get;create;patch

// maxRevisions is the maximum number of consecutive revisions whose name may be taken.
const maxRevisions = 50

// createDeployment creates the Deployment of asked.Commit once, and sets asked.Revision and
// asked.Deployment. It returns the same Deployment until the status has that revision. It reuses neither a
// Deployment that has ended nor a name that the store has already.
func (f *Follower) createDeployment(ctx context.Context, e *v1alpha1.Environment, branch string, asked *v1alpha1.EnvironmentGitStatus, key store.Key) error {
	for range maxRevisions {
		asked.Revision++
		d := commitDeployment(e, branch, asked.Commit, asked.Revision)
		made, err := f.createIfFree(ctx, d, target{commit: asked.Commit, path: *asked.Path}, key)
		if err != nil {
			return err
		}
		if made {
			asked.Deployment = d.Name
			return nil
		}
	}
	return &base.StalledError{Reason: v1alpha1.ReasonNameCollision, Message: fmt.Sprintf(
		"the names of the next %d Deployments of commit %s are taken; delete Deployments of this commit that have ended", maxRevisions, asked.Commit)}
}

// commitDeployment returns the Deployment of a commit to an environment, for this revision.
func commitDeployment(e *v1alpha1.Environment, branch, commit string, revision int64) *v1alpha1.Deployment {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", e.UID, commit, revision))
	return &v1alpha1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Namespace, Name: fmt.Sprintf("%s-%.8s-%s", e.Name, commit, hex.EncodeToString(sum[:4])),
			Labels: map[string]string{base.LabelManagedBy: base.ManagedBy},
		},
		Spec: v1alpha1.DeploymentSpec{
			Environment: v1alpha1.EnvironmentName(e.Name),
			Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{
				Branch: v1alpha1.GitBranch(branch), Commit: v1alpha1.GitCommit(commit),
			}},
		},
	}
}

// createIfFree creates a Deployment. made is false if another Deployment has its name, or the Deployment
// has ended. It reads without a cache, which may not have a new object yet.
func (f *Follower) createIfFree(ctx context.Context, d *v1alpha1.Deployment, to target, key store.Key) (made bool, err error) {
	found := &v1alpha1.Deployment{}
	err = f.Reader.Get(ctx, client.ObjectKeyFromObject(d), found)
	there := err == nil
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading Deployment %q: %w", d.Name, err)
	}
	id := v1alpha1.ProjectObjectID(key.ProjectID, d.ObjectKind(), d.Name)
	row, err := f.Store.Deployment(ctx, store.Key{ProjectID: key.ProjectID, ID: id})
	known := err == nil
	switch {
	case !known && !errors.Is(err, store.ErrNotFound):
		return false, base.FromStore(err)
	case there && known:
		copyStored(found, row)
	}
	if there || known {
		return there && isOpen(found) && found.Spec.Environment == d.Spec.Environment && to.matches(found), nil
	}
	if err := f.Client.Create(ctx, d, client.FieldOwner(base.FieldManager)); err != nil {
		return false, fmt.Errorf("creating Deployment %q: %w", d.Name, err)
	}
	return true, nil
}
