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
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=apikeys,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=apikeys/status,verbs=patch

// Reconciler reconciles APIKeys.
type Reconciler struct {
	*object.Base
	// Audit records that keys appear and are revoked, whoever wrote them.
	Audit Auditor
}

// Reconcile shows the state of one APIKey.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	key := &v1alpha1.APIKey{}
	return r.Base.Reconcile(ctx, req, key, func(ctx context.Context, row store.Key) (time.Duration, error) {
		// A key that is over is so whatever its project is.
		over := key.Spec.Revoked || key.Ended(r.Now())
		if !over {
			if _, err := r.Project(ctx, key.Namespace); err != nil {
				return 0, err
			}
		}
		if err := r.record(ctx, row.ProjectID, row.ID, key); err != nil {
			return 0, err
		}
		return r.show(key), nil
	})
}

// show marks the key's state and returns when it changes by time, 0 for never.
func (r *Reconciler) show(key *v1alpha1.APIKey) time.Duration {
	now := r.Now()
	if key.Spec.Revoked {
		key.MarkRevoked()
		return 0
	}
	if key.Ended(now) {
		key.MarkExpired()
		return 0
	}
	if unknown := key.UnknownPermissions(); len(unknown) > 0 {
		key.MarkUnknownPermissions(unknown)
	} else {
		key.MarkInForce()
	}
	if end := key.EndsAt(); end != nil {
		return end.Sub(now) + time.Second
	}
	return 0
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("apikey").
		WithOptions(r.ControllerOptions()).
		For(&v1alpha1.APIKey{}).
		Watches(&v1alpha1.APIKey{}, r.Deleted()).
		Watches(&v1alpha1.Project{}, r.Enqueue(&v1alpha1.APIKeyList{}, nil), object.ComesOrGoes).
		Complete(r)
}
