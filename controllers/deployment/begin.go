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

// begin claims id and fingerprint, and finds what the store knows of them.
func (r *Reconciler) begin(ctx context.Context, v *version) error {
	var err error
	v.restored = v.Status.Phase == ""
	if v.project, v.projectID, v.id, err = r.Owner(ctx, v.Deployment); err != nil {
		return err
	}
	if v.environment, v.environmentID, err = r.Environment(ctx, v.Namespace, v.Spec.Environment); err != nil {
		return err
	}
	if v.Spec.Source.Bundle != nil {
		return &object.StalledError{
			Reason:  v1alpha1.ReasonInvalidSpec,
			Message: "bundles cannot be uploaded to this release yet; create a Deployment with source.git",
		}
	}
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
	v.Status.ID = v.id.String()
	return nil
}

// spec is the Deployment as the store records it.
func (r *Reconciler) spec(v *version) (store.DeploymentSpec, error) {
	print, err := fingerprint(v.Spec)
	if err != nil {
		return store.DeploymentSpec{}, err
	}
	spec := store.DeploymentSpec{
		Ref: r.Ref(v.Deployment), ID: v.id, ProjectID: v.projectID, EnvironmentID: v.environmentID,
		Fingerprint: print, SourceType: "git", Branch: v.branch(), Commit: v.commit(),
		SkipTests: v.Spec.SkipTests, SkipFailedConnectors: v.Spec.SkipFailedConnectors,
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

func (v *version) commit() string {
	if v.Spec.Source.Git == nil {
		return ""
	}
	return string(v.Spec.Source.Git.Commit)
}
