// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
)

// source is the input of a build: an upload or a commit.
type source struct {
	// Upload is the digest of an upload, or "" for a commit.
	Upload string

	URL, Branch, Commit, Path string
	// Secret names the Secret with the Git credentials, or is empty.
	Secret string
}

// buildSource returns the input of a build. It uses the branch that was recorded when the deployment began,
// and the folder that was recorded when its build began, whatever the objects request now.
func (r *Reconciler) buildSource(ctx context.Context, v *deploymentState) (s source, err error) {
	if digest := v.uploadDigest(); digest != "" {
		return source{Upload: digest}, nil
	}
	git := v.project.Spec.Git
	s = source{URL: git.URL, Branch: v.outcome.Branch, Commit: v.requestedCommit()}
	if git.SecretRef != nil {
		s.Secret = string(git.SecretRef.Name)
	}
	s.Path, err = r.repositoryFolder(ctx, v)
	return s, err
}

// repositoryFolder returns the folder of the repository: the one of the started build; otherwise the one with
// which the same commit was live or which this deployment repeats; otherwise the current one of the
// project.
func (r *Reconciler) repositoryFolder(ctx context.Context, v *deploymentState) (string, error) {
	switch {
	case v.outcome.Path != nil:
		return *v.outcome.Path, nil
	case v.Status.Live && v.Status.Path != nil && v.Status.Commit == v.requestedCommit():
		return *v.Status.Path, nil
	case v.outcome.RedeployOf != nil:
		of, err := r.Store.Deployment(ctx, store.Key{ProjectID: v.key.ProjectID, ID: *v.outcome.RedeployOf})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return "", base.FromStore(fmt.Errorf("reading the deployment to repeat: %w", err))
		}
		if of.Path != nil && of.ResolvedCommit == v.requestedCommit() {
			return *of.Path, nil
		}
	}
	return v.project.Spec.Git.Path, nil
}

// checkSource reports whether the deployment ended because its source is missing. A missing upload
// cannot come back and fails the deployment. A missing repository can still be added.
func (r *Reconciler) checkSource(ctx context.Context, v *deploymentState) (ended bool, err error) {
	digest := v.uploadDigest()
	switch {
	case digest == "" && v.project.Spec.Git == nil:
		return false, &base.WaitingError{Reason: v1alpha1.ReasonGitMissing, Message: fmt.Sprintf(
			"the project has no Git repository; set spec.git of Project %q", v1alpha1.ProjectName)}
	case digest == "" || v.outcome.Status != store.DeploymentPending:
		return false, nil
	}
	err = r.Store.HasUpload(ctx, v.key.ProjectID, digest)
	if !errors.Is(err, store.ErrNotFound) {
		return false, base.FromStore(err)
	}
	return true, r.endBuild(ctx, v, store.DeploymentFailed, store.FailureBuild, "the project has no upload with the digest "+digest+
		", or it was deleted; upload the folder again: agentctl deploy --upload FOLDER")
}

// uploadDigest returns the digest of the upload, or "" for a deployment from Git.
func (v *deploymentState) uploadDigest() string {
	if bundle := v.Spec.Source.Bundle; bundle != nil {
		return string(bundle.Digest)
	}
	return ""
}

// requestedBranch returns the branch of the deployment, else of the environment, else of the project. It returns
// "" for an upload, and for the repository's default branch. A live version is built again from its
// recorded branch.
func (v *deploymentState) requestedBranch() string {
	if v.uploadDigest() != "" {
		return ""
	}
	if git := v.Spec.Source.Git; git != nil && git.Branch != "" {
		return string(git.Branch)
	}
	if v.Status.Live && v.Status.Branch != "" {
		return v.Status.Branch
	}
	if v.environment.Spec.Git.Branch != "" {
		return string(v.environment.Spec.Git.Branch)
	}
	if v.project.Spec.Git != nil {
		return string(v.project.Spec.Git.DefaultBranch)
	}
	return ""
}

// requestedCommit returns the requested commit. A version that was live is built again from its recorded commit,
// even if the branch has moved.
func (v *deploymentState) requestedCommit() string {
	if git := v.Spec.Source.Git; git != nil && git.Commit != "" {
		return string(git.Commit)
	}
	if v.Status.Live {
		return v.Status.Commit
	}
	return ""
}
