// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

// source is what a build fetches: what was uploaded, or a commit.
type source struct {
	// Upload is the digest of what was uploaded; "" of a commit.
	Upload string

	URL, Branch, Commit, Path string
	// Secret names the Secret with the Git credentials, or is empty.
	Secret string
}

// source is of the branch that was recorded when the deployment began, and of the folder that was
// when its build did, whatever is asked for now.
func (r *Reconciler) source(ctx context.Context, v *version) (s source, err error) {
	if digest := v.upload(); digest != "" {
		return source{Upload: digest}, nil
	}
	git := v.project.Spec.Git
	s = source{URL: git.URL, Branch: v.outcome.Branch, Commit: v.commit()}
	if git.SecretRef != nil {
		s.Secret = string(git.SecretRef.Name)
	}
	s.Path, err = r.folder(ctx, v)
	return s, err
}

// folder is the one of which the build was that has begun; else that of the same commit which was
// live, or which this deployment repeats; else what the project says now.
func (r *Reconciler) folder(ctx context.Context, v *version) (string, error) {
	switch {
	case v.outcome.Path != nil:
		return *v.outcome.Path, nil
	case v.Status.Live && v.Status.Path != nil && v.Status.Commit == v.commit():
		return *v.Status.Path, nil
	case v.outcome.RedeployOf != nil:
		of, err := r.Store.Deployment(ctx, store.Key{ProjectID: v.key.ProjectID, ID: *v.outcome.RedeployOf})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return "", object.FromStore(fmt.Errorf("reading what is deployed again: %w", err))
		}
		if of.Path != nil && of.ResolvedCommit == v.commit() {
			return *of.Path, nil
		}
	}
	return v.project.Spec.Git.Path, nil
}

// checkSource says whether there is something to build from. What was uploaded and is not
// stored does not come back, and ends the deployment; a repository may be named yet.
func (r *Reconciler) checkSource(ctx context.Context, v *version) (ended bool, err error) {
	digest := v.upload()
	switch {
	case digest == "" && v.project.Spec.Git == nil:
		return false, &object.WaitingError{Reason: v1alpha1.ReasonGitMissing, Message: fmt.Sprintf(
			"the project has no git repository: set spec.git of Project %q", v1alpha1.ProjectName)}
	case digest == "" || v.outcome.Status != store.DeploymentPending:
		return false, nil
	}
	err = r.Store.HasUpload(ctx, v.key.ProjectID, digest)
	if !errors.Is(err, store.ErrNotFound) {
		return false, object.FromStore(err)
	}
	return true, r.end(ctx, v, store.DeploymentFailed, store.FailureBuild, "nothing that was uploaded to this project has the digest "+digest+
		", or it is not kept any more; upload the folder again: agentctl deploy --upload FOLDER")
}

// upload is the digest of what was uploaded; "" of a deployment from git.
func (v *version) upload() string {
	if bundle := v.Spec.Source.Bundle; bundle != nil {
		return string(bundle.Digest)
	}
	return ""
}

// branch is what is asked for, else the environment's, else the project's; "" of an upload, and for the
// repository's default branch. A live version is built again from the branch that it was built from.
func (v *version) branch() string {
	if v.upload() != "" {
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

// commit is what is asked for; what was live is built again from the commit that
// was, whatever the branch has become.
func (v *version) commit() string {
	if git := v.Spec.Source.Git; git != nil && git.Commit != "" {
		return string(git.Commit)
	}
	if v.Status.Live {
		return v.Status.Commit
	}
	return ""
}
