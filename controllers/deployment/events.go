// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// announceLive sends an event when the deployment came to life or was replaced.
func (r *Reconciler) announceLive(v *version, was bool) {
	if v.Status.Live == was {
		return
	}
	reason, note := v1alpha1.ReasonActivated, fmt.Sprintf("live in Environment %q", v.Spec.Environment)
	if was {
		reason, note = v1alpha1.ReasonNotLive, v.Status.Condition(v1alpha1.ConditionLive).Message
	}
	r.Event(v.Deployment, corev1.EventTypeNormal, reason, note)
}

// nameOf is the name of a deployment for people; its id when the store cannot say.
func (r *Reconciler) nameOf(ctx context.Context, key store.Key) string {
	d, err := r.Store.Deployment(ctx, key)
	if err != nil {
		return key.ID.String()
	}
	return fmt.Sprintf("%q", d.Ref.Name)
}
