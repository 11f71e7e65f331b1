// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectors,verbs=delete

// orphanAge is how long a mirror outlives its environment, like a Deployment of the platform.
const orphanAge = 10 * time.Minute

// handleOrphan ends a mirror of code whose environment is deleted, and returns the retry interval. It keeps a
// mirror with a rotated secret. Otherwise a later deployment of the same name would get the previous
// secret.
func (r *Reconciler) handleOrphan(ctx context.Context, c *v1alpha1.Connector, key store.Key, because error) (time.Duration, error) {
	missing := r.MissingEnvironment(ctx, c.Namespace, c.Spec.Environment, because)
	if missing == nil {
		return 0, because
	}
	row, err := r.Store.Connector(ctx, key)
	known := err == nil
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return 0, base.FromStore(err)
	case known && !row.Retired, !known && !projection.IsCreatedByPlatform(c): // its environment is not restored yet, or a user created it
		return 0, because
	}
	c.Status.Retired = true
	if max(row.SecretVersion, int64(c.SecretVersion())) > 1 {
		v1alpha1.MarkReferenceMissing(c, missing.Kind, missing.Name)
		return 0, nil // a new environment triggers a reconcile
	}
	if since := orphanedAt(c); !since.IsZero() {
		return r.deleteOrphan(ctx, c, since)
	}
	meta.RemoveStatusCondition(&c.Status.Conditions, v1alpha1.ConditionReconciling) // its time may be of another reason
	v1alpha1.MarkReconciling(c, v1alpha1.ReasonEnvironmentGone, fmt.Sprintf(
		"Environment %q does not exist; this mirror of its code is deleted after %v unless the Environment comes back", c.Spec.Environment, orphanAge))
	return orphanAge, nil
}

// orphanedAt returns when a mirror became an orphan, or zero.
func orphanedAt(c *v1alpha1.Connector) time.Time {
	is := c.Status.Condition(v1alpha1.ConditionReconciling)
	if is == nil || is.Reason != v1alpha1.ReasonEnvironmentGone {
		return time.Time{}
	}
	return is.LastTransitionTime.Time
}

// deleteOrphan deletes an orphaned mirror and its children after orphanAge.
func (r *Reconciler) deleteOrphan(ctx context.Context, c *v1alpha1.Connector, since time.Time) (time.Duration, error) {
	if left := orphanAge - r.Now().Sub(since); left > 0 {
		return left, nil
	}
	err := r.Client.Delete(ctx, c, client.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("deleting Connector %q of a deleted Environment: %w", c.Name, err)
	}
	return 0, nil
}
