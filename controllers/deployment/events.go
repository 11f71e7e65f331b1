// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// announceLive sends an event if the deployment went live or was replaced. by is the deployment that
// replaced it, or "".
func (r *Reconciler) announceLive(v *deploymentState, was bool, by string) {
	reason, note := v1alpha1.ReasonActivated, fmt.Sprintf("live in Environment %q", v.Spec.Environment)
	switch {
	case v.Status.Live == was:
		return
	case was && by == "":
		reason, note = v1alpha1.ReasonNotLive, fmt.Sprintf("Environment %q runs no deployment", v.Spec.Environment)
	case was:
		reason, note = v1alpha1.ReasonNotLive, fmt.Sprintf("Environment %q runs Deployment %s", v.Spec.Environment, by)
	}
	r.Event(v.Deployment, corev1.EventTypeNormal, reason, note)
}

// displayName returns the name of a deployment for users, or its ID if the store does not have the name.
func (r *Reconciler) displayName(ctx context.Context, key store.Key) string {
	d, err := r.Store.Deployment(ctx, key)
	if err != nil {
		return key.ID.String()
	}
	return fmt.Sprintf("%q", d.Ref.Name)
}
