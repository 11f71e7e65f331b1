// SPDX-License-Identifier: Apache-2.0

// Package connector brings Connectors into the store, from which the gateway
// serves them, and shows their secrets.
package connector

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectors,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectors/status,verbs=get;patch;update
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch

// secretsInterval is how often Secrets that users own are looked at for changes.
const secretsInterval = time.Minute

// Store is what the controller needs of the store.
type Store interface {
	PutConnector(ctx context.Context, c store.Connector) error
	Connector(ctx context.Context, id uuid.UUID) (store.Connector, error)
}

// Reconciler reconciles Connectors.
type Reconciler struct {
	*object.Keeper
	Data          Store
	DerivationKey seal.DerivationKey
	Sealer        *seal.Sealer
	// GatewayURL is the public start of webhook URLs.
	GatewayURL string
}

// Reconcile brings one Connector into the store.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c := &v1alpha1.Connector{}
	return r.Keeper.Reconcile(ctx, req, c, func(ctx context.Context) (time.Duration, error) {
		_, projectID, id, err := r.Owner(ctx, c)
		if err != nil {
			return 0, err
		}
		_, environmentID, err := r.Environment(ctx, c.Namespace, c.Spec.Environment)
		if err != nil {
			return 0, err
		}
		ids := identity{projectID, environmentID, id}
		secrets, err := r.secrets(ctx, c, ids)
		if err != nil {
			return 0, err
		}
		row, err := r.row(ctx, c, ids, secrets)
		if err != nil {
			return 0, err
		}
		if err := r.Data.PutConnector(ctx, row); err != nil {
			return 0, object.FromStore(fmt.Errorf("projecting the connector: %w", err))
		}
		c.Status.ID = id.String()
		if c.Spec.Webhook != nil && c.Spec.Mode != v1alpha1.ModeOutbound {
			c.Status.URL = strings.TrimSuffix(r.GatewayURL, "/") + "/hooks/" + id.String()
		}
		c.MarkRoutesReady()
		if c.Spec.Mode == v1alpha1.ModeOutbound {
			c.MarkDelivering()
		}
		if err := r.showSecrets(ctx, c, secrets); err != nil {
			return 0, err
		}
		c.MarkReady(readyMessage(c))
		return recheck(c), nil
	})
}

// recheck is when Secrets that are not watched are read again.
func recheck(c *v1alpha1.Connector) time.Duration {
	if c.Spec.SecretRef != nil || c.Spec.HeadersSecretRef != nil {
		return secretsInterval
	}
	return 0
}

func readyMessage(c *v1alpha1.Connector) string {
	if !c.IsEnabled() {
		return "in effect; disabled by spec.enabled"
	}
	return ""
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("connector").
		For(&v1alpha1.Connector{}).
		Watches(&v1alpha1.Connector{}, r.Deleted()).
		Complete(r)
}
