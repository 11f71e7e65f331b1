// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
)

// orphanAge is how long a Deployment that the platform created outlives its environment. An environment
// that is re-created with the same name, or restored from a backup, finds its live deployment.
const orphanAge = 10 * time.Minute

// handleOrphan ends a deployment that could not begin because its environment is deleted. The store has
// cancelled it with the environment, or has its earlier outcome. A deployment that the store does not
// have may come back with its environment from a backup.
func (r *Reconciler) handleOrphan(ctx context.Context, v *deploymentState, because error) (time.Duration, error) {
	missing := r.MissingEnvironment(ctx, v.Namespace, v.Spec.Environment, because)
	if missing == nil {
		return 0, because
	}
	outcome, err := r.Store.Deployment(ctx, v.key)
	switch digest, unreadable := v.Spec.Fingerprint(); {
	case errors.Is(err, store.ErrNotFound) && v.Status.Phase.Terminal(): // a new environment triggers a reconcile
		v1alpha1.MarkReferenceMissing(v, missing.Kind, missing.Name)
		return 0, nil
	case errors.Is(err, store.ErrNotFound):
		return 0, because
	case err != nil:
		return 0, base.FromStore(err)
	case unreadable != nil || digest != outcome.Fingerprint:
		return 0, because
	}
	v.outcome, v.environmentKey = outcome, outcome.Environment()
	switch _, err := r.Store.Environment(ctx, v.environmentKey); {
	case err == nil: // the environment's object was just deleted, or is not restored yet, as after a move
		v.showPhase()
		return 0, &base.WaitingError{Reason: v1alpha1.ReasonReferenceMissing, Message: missing.Error()}
	case !errors.Is(err, store.ErrNotFound):
		return 0, base.FromStore(err)
	case !outcome.Status.Terminal():
		return 0, fmt.Errorf("deployment %s continues without its environment", v.key)
	}
	ours, since := v.Labels[base.LabelManagedBy] == base.ManagedBy, v.orphanedAt()
	if ours && !since.IsZero() {
		return r.deleteOrphan(ctx, v, since)
	}
	if err := errors.Join(r.mirrorOutcome(ctx, v), r.cleanUp(ctx, v)); err != nil || !ours {
		return 0, err
	}
	v1alpha1.MarkReconciling(v, v1alpha1.ReasonEnvironmentGone, fmt.Sprintf(
		"Environment %q does not exist; the platform created this Deployment and deletes it after %v unless the Environment comes back", v.Spec.Environment, orphanAge))
	return orphanAge, nil
}

// orphanedAt returns when a Deployment of the platform became an orphan, or zero.
func (v *deploymentState) orphanedAt() time.Time {
	c := v.Status.Condition(v1alpha1.ConditionReconciling)
	if c == nil || c.Reason != v1alpha1.ReasonEnvironmentGone {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// deleteOrphan deletes an orphaned Deployment of the platform after orphanAge, and returns the retry
// interval. Its outcome stays in the store.
func (r *Reconciler) deleteOrphan(ctx context.Context, v *deploymentState, since time.Time) (time.Duration, error) {
	if left := orphanAge - r.Now().Sub(since); left > 0 {
		return left, nil
	}
	return 0, r.deleteDeployment(ctx, v.Deployment)
}
