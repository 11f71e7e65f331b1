// SPDX-License-Identifier: Apache-2.0

// Package apikey reports the state of APIKeys in their status. The facade reads the specs: it accepts
// or rejects a key regardless of its status.
package apikey

import (
	"context"
	"fmt"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=apikeys,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=apikeys/status,verbs=patch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=environments,verbs=list;watch

// Reconciler reconciles APIKeys.
type Reconciler struct {
	*base.Base
	// Audit records the creation and revocation of keys, by any client.
	Audit Auditor
}

// Reconcile reports the state of one APIKey.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	key := &v1alpha1.APIKey{}
	return r.Base.Reconcile(ctx, req, key, func(ctx context.Context, row store.Key) (time.Duration, error) {
		// A key that has ended needs no project.
		over := key.Spec.Revoked || key.Ended(r.Now())
		if !over {
			if _, err := r.Project(ctx, key.Namespace); err != nil {
				return 0, err
			}
		}
		if err := r.recordAudit(ctx, row.ProjectID, row.ID, key); err != nil {
			return 0, err
		}
		missing, err := r.missingEnvironments(ctx, key)
		if err != nil {
			return 0, err
		}
		return r.reportState(key, missing), nil
	})
}

// missingEnvironments returns the environments that a key names and that do not exist.
func (r *Reconciler) missingEnvironments(ctx context.Context, key *v1alpha1.APIKey) (missing []v1alpha1.EnvironmentName, err error) {
	if !namesEnvironments(nil, key) {
		return nil, nil
	}
	list := &v1alpha1.EnvironmentList{}
	if err := r.Client.List(ctx, list, client.InNamespace(key.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the environments that a key names: %w", err)
	}
	for _, name := range key.Spec.Environments {
		if !slices.ContainsFunc(list.Items, func(e v1alpha1.Environment) bool { return e.Name == string(name) }) {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// namesEnvironments picks the keys that are limited to environments.
func namesEnvironments(_ client.Object, key v1alpha1.ConditionedObject) bool {
	k, ok := key.(*v1alpha1.APIKey)
	return ok && k.Spec.EnvironmentAccess == v1alpha1.AccessSelected && len(k.Spec.Environments) > 0
}

// reportState sets the state of the key and returns the time until it changes, or 0.
func (r *Reconciler) reportState(key *v1alpha1.APIKey, missing []v1alpha1.EnvironmentName) time.Duration {
	now := r.Now()
	if key.Spec.Revoked {
		key.MarkRevoked()
		return 0
	}
	if key.Ended(now) {
		key.MarkExpired()
		return 0
	}
	switch unknown := key.UnknownPermissions(); {
	case len(unknown) > 0:
		key.MarkUnknownPermissions(unknown)
	case len(missing) > 0:
		key.MarkUnknownEnvironments(missing)
	default:
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
		Watches(&v1alpha1.Project{}, r.Enqueue(&v1alpha1.APIKeyList{}, nil), base.IDChanged).
		Watches(&v1alpha1.Environment{}, r.Enqueue(&v1alpha1.APIKeyList{}, namesEnvironments), base.IDChanged).
		Complete(r)
}
