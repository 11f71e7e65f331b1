// SPDX-License-Identifier: Apache-2.0

// Package apikey shows the state of APIKeys. The facade reads the objects
// themselves: a key works before, and is refused after, whatever its status says.
package apikey

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=apikeys,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=apikeys/status,verbs=get;patch;update

// Reconciler reconciles APIKeys.
type Reconciler struct{ *object.Keeper }

// Reconcile shows the state of one APIKey.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	key := &v1alpha1.APIKey{}
	return r.Keeper.Reconcile(ctx, req, key, func(ctx context.Context) (time.Duration, error) {
		_, _, id, err := r.Owner(ctx, key)
		if err != nil {
			return 0, err
		}
		key.Status.ID = id.String()
		expires := key.Spec.ExpiresAt
		switch {
		case key.Spec.Revoked:
			key.MarkRevoked()
		case expires != nil && !time.Now().Before(expires.Time):
			key.MarkExpired()
		case expires != nil:
			key.MarkReady("")
			return time.Until(expires.Time) + time.Second, nil
		default:
			key.MarkReady("")
		}
		return 0, nil
	})
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("apikey").For(&v1alpha1.APIKey{}).Complete(r)
}
