// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
)

// beginDeployment resolves the project and the environment of a deployment and records the deployment in the
// store. The store returns the outcome so far. A deployment that the store already has does not begin
// again. If the store has it with another fingerprint, beginDeployment rejects it, because the recorded outcome
// belongs to another spec.
func (r *Reconciler) beginDeployment(ctx context.Context, v *deploymentState) error {
	var err error
	v.hadNoStatus = v.Status.Phase == ""
	if v.project, err = r.Project(ctx, v.Namespace); err != nil {
		return err
	}
	var environment store.Environment
	if v.environment, environment, err = r.Environment(ctx, v.Namespace, v.Spec.Environment); err != nil {
		return err
	}
	v.environmentKey = environment.Key()
	if v.hadNoStatus {
		if err := r.beginOlder(ctx, v); err != nil {
			return err
		}
	}
	spec, err := r.deploymentSpec(v)
	if err != nil {
		return err
	}
	v.outcome, err = r.Store.BeginDeployment(ctx, spec)
	if errors.Is(err, store.ErrNameReused) {
		v.MarkNameReused()
		stalled := v.Status.Condition(v1alpha1.ConditionStalled)
		return &base.StalledError{Reason: stalled.Reason, Message: stalled.Message}
	}
	if err != nil {
		return base.FromStore(fmt.Errorf("claiming the deployment: %w", err))
	}
	return nil
}

// beginOlder begins deployments that were created before a deployment that has not begun. If several
// were applied together, or while no manager ran, the newest goes live and supersedes the others, in
// whatever order the manager reads them.
func (r *Reconciler) beginOlder(ctx context.Context, v *deploymentState) error {
	switch _, err := r.Store.Deployment(ctx, v.key); {
	case err == nil:
		return nil
	case !errors.Is(err, store.ErrNotFound):
		return base.FromStore(fmt.Errorf("reading the deployment: %w", err))
	}
	list := &v1alpha1.DeploymentList{}
	err := r.Client.List(ctx, list, client.InNamespace(v.Namespace), client.MatchingFields{base.ByEnvironment: string(v.Spec.Environment)})
	if err != nil {
		return fmt.Errorf("listing the deployments: %w", err)
	}
	for _, d := range notBegun(list.Items, v.Deployment) {
		id, err := v1alpha1.ObjectID(v.key.ProjectID, d)
		if err != nil {
			continue // its own reconcile reports the reason
		}
		older := *v
		older.Deployment, older.key.ID = d, id
		spec, err := r.deploymentSpec(&older)
		if err != nil {
			return err
		}
		var taken *store.IDTakenError
		_, err = r.Store.BeginDeployment(ctx, spec)
		if err != nil && !errors.Is(err, store.ErrNameReused) && !errors.As(err, &taken) {
			return base.FromStore(fmt.Errorf("claiming the older Deployment %q: %w", d.Name, err))
		}
	}
	return nil
}

// notBegun returns the deployments to the same environment that were created before d and have no
// status yet, oldest first. Deployments of the same second are ordered by name.
func notBegun(all []v1alpha1.Deployment, d *v1alpha1.Deployment) (out []*v1alpha1.Deployment) {
	for i := range all {
		other := &all[i]
		if other.Spec.Environment == d.Spec.Environment && other.Status.Phase == "" && !v1alpha1.IsStalled(other) &&
			other.DeletionTimestamp == nil && base.OldestFirst(other, d) < 0 {
			out = append(out, other)
		}
	}
	slices.SortFunc(out, base.OldestFirst[*v1alpha1.Deployment])
	return out
}

// deploymentSpec returns the Deployment as the store records it.
func (r *Reconciler) deploymentSpec(v *deploymentState) (store.DeploymentSpec, error) {
	digest, err := v.Spec.Fingerprint()
	if err != nil {
		return store.DeploymentSpec{}, err
	}
	spec := store.DeploymentSpec{
		Ref: r.Ref(v.Deployment), ID: v.key.ID, ProjectID: v.key.ProjectID, EnvironmentID: v.environmentKey.ID,
		Fingerprint: digest, SourceType: "git", Branch: v.requestedBranch(), Commit: v.requestedCommit(), UploadDigest: v.uploadDigest(),
		// Of the earlier deployments, only the live one is built again.
		Lost:      v.Status.Phase.Terminal() && !v.Status.Live,
		SkipTests: v.Spec.SkipTests, SkipFailedConnectors: v.Spec.SkipFailedConnectors,
	}
	if spec.UploadDigest != "" {
		spec.SourceType = "upload"
	}
	if of, err := uuid.Parse(string(v.Spec.RedeployOf)); err == nil {
		spec.RedeployOf = &of
	}
	return spec, nil
}
