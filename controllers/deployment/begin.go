// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

// begin claims the fingerprint, and finds what the store knows of them.
func (r *Reconciler) begin(ctx context.Context, v *version) error {
	var err error
	v.restored = v.Status.Phase == ""
	if v.project, err = r.Project(ctx, v.Namespace); err != nil {
		return err
	}
	var environment store.Environment
	if v.environment, environment, err = r.Environment(ctx, v.Namespace, v.Spec.Environment); err != nil {
		return err
	}
	v.environmentKey = environment.Key()
	spec, err := r.spec(v)
	if err != nil {
		return err
	}
	v.outcome, err = r.Data.BeginDeployment(ctx, spec)
	if errors.Is(err, store.ErrNameReused) {
		v.MarkNameReused()
		stalled := v.Status.Condition(v1alpha1.ConditionStalled)
		return &object.StalledError{Reason: stalled.Reason, Message: stalled.Message}
	}
	if err != nil {
		return object.FromStore(fmt.Errorf("claiming the deployment: %w", err))
	}
	return nil
}

// spec is the Deployment as the store records it.
func (r *Reconciler) spec(v *version) (store.DeploymentSpec, error) {
	digest, err := fingerprint(v.Spec)
	if err != nil {
		return store.DeploymentSpec{}, err
	}
	spec := store.DeploymentSpec{
		Ref: r.Ref(v.Deployment), ID: v.key.ID, ProjectID: v.key.ProjectID, EnvironmentID: v.environmentKey.ID,
		Fingerprint: digest, SourceType: "git", Branch: v.branch(), Commit: v.commit(),
		// Of what was once deployed, only the one that is live is built again.
		Lost: v.Status.Phase.Terminal() && !v.Status.Live,
	}
	if of, err := uuid.Parse(string(v.Spec.RedeployOf)); err == nil {
		spec.RedeployOf = &of
	}
	return spec, nil
}

// fingerprint is a digest of what is deployed where.
func fingerprint(spec v1alpha1.DeploymentSpec) (string, error) {
	text, err := json.Marshal(map[string]any{"environment": spec.Environment, "source": spec.Source})
	if err != nil {
		return "", fmt.Errorf("taking the fingerprint: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// branch is what is asked for, else the environment's, else the project's.
func (v *version) branch() string {
	if git := v.Spec.Source.Git; git != nil && git.Branch != "" {
		return string(git.Branch)
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
