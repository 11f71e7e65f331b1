// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

// orphanAge is how long a Deployment that the platform made outlives its environment: one that is
// made anew under its name, as by a replacement, or comes from a backup, finds what was live.
const orphanAge = 10 * time.Minute

// outlive ends what goes on for a deployment that could not be begun, because its environment is
// gone: the store has cancelled it with that, or knows how it ended before. What the store does
// not know may come back with both, from a backup.
func (r *Reconciler) outlive(ctx context.Context, v *version, because error) (time.Duration, error) {
	missing := r.Orphaned(ctx, v.Namespace, v.Spec.Environment, because)
	if missing == nil {
		return 0, because
	}
	outcome, err := r.Store.Deployment(ctx, v.key)
	switch digest, unreadable := v.Spec.Fingerprint(); {
	case errors.Is(err, store.ErrNotFound) && v.Status.Phase.Terminal(): // an environment that comes wakes it
		v1alpha1.MarkReferenceMissing(v, missing.Kind, missing.Name)
		return 0, nil
	case errors.Is(err, store.ErrNotFound):
		return 0, because
	case err != nil:
		return 0, object.FromStore(err)
	case unreadable != nil || digest != outcome.Fingerprint:
		return 0, because
	}
	v.outcome, v.environmentKey = outcome, outcome.Environment()
	switch _, err := r.Store.Environment(ctx, v.environmentKey); {
	case err == nil: // its object went just now, or comes yet, as after a move
		v.showPhase()
		return 0, &object.WaitingError{Reason: v1alpha1.ReasonReferenceMissing, Message: missing.Error()}
	case !errors.Is(err, store.ErrNotFound):
		return 0, object.FromStore(err)
	case !outcome.Status.Terminal():
		return 0, fmt.Errorf("deployment %s goes on without its environment", v.key)
	}
	ours, since := v.Labels[object.LabelManagedBy] == object.ManagedBy, v.orphanedAt()
	if ours && !since.IsZero() {
		return r.collect(ctx, v, since)
	}
	if err := errors.Join(r.mirror(ctx, v), r.cleanUp(ctx, v)); err != nil || !ours {
		return 0, err
	}
	v1alpha1.MarkReconciling(v, v1alpha1.ReasonEnvironmentGone, fmt.Sprintf(
		"Environment %q does not exist; this Deployment is the platform's own, and is deleted %v after it unless that comes back", v.Spec.Environment, orphanAge))
	return orphanAge, nil
}

// orphanedAt is when a Deployment of the platform's began to wait for its end; zero where it has not.
func (v *version) orphanedAt() time.Time {
	c := v.Status.Condition(v1alpha1.ConditionReconciling)
	if c == nil || c.Reason != v1alpha1.ReasonEnvironmentGone {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// collect deletes a Deployment of the platform's whose environment has not come back, and returns
// when to look again. What became of it stays in the store.
func (r *Reconciler) collect(ctx context.Context, v *version, since time.Time) (time.Duration, error) {
	if left := orphanAge - r.Now().Sub(since); left > 0 {
		return left, nil
	}
	return 0, r.discard(ctx, v.Deployment)
}
