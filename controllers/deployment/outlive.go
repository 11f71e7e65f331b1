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

// outlive ends what goes on for a deployment that could not be begun, because its environment is
// gone: the store has cancelled it with that, or knows how it ended before. What the store does
// not know may come back with both, from a backup.
func (r *Reconciler) outlive(ctx context.Context, v *version, because error) (time.Duration, error) {
	var missing *object.MissingError
	if !errors.As(because, &missing) || missing.Unready {
		return 0, because
	}
	outcome, err := r.Store.Deployment(ctx, v.key)
	switch digest, unreadable := v.Spec.Fingerprint(); {
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
	if err := r.mirror(ctx, v); err != nil {
		return 0, err
	}
	return 0, r.cleanUp(ctx, v)
}
