// SPDX-License-Identifier: Apache-2.0

// Package connectorlink brings ConnectorLinks into the store.
package connectorlink

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectorlinks,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectorlinks/status,verbs=get;patch;update

// Store is what the controller needs of the store.
type Store interface {
	PutLink(ctx context.Context, l store.Link) error
	Environment(ctx context.Context, id uuid.UUID) (store.Environment, error)
	Deployment(ctx context.Context, id uuid.UUID) (store.Deployment, error)
}

// Reconciler reconciles ConnectorLinks.
type Reconciler struct {
	*object.Keeper
	Data Store
}

// Reconcile brings one ConnectorLink into the store.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	link := &v1alpha1.ConnectorLink{}
	return r.Keeper.Reconcile(ctx, req, link, func(ctx context.Context) (time.Duration, error) {
		_, projectID, id, err := r.Owner(ctx, link)
		if err != nil {
			return 0, err
		}
		connector, connectorID, err := r.connector(ctx, link.Namespace, link.Spec.Connector)
		if err != nil {
			return 0, err
		}
		link.Status.Environment = string(connector.Spec.Environment)
		if mismatched(link, connector.Spec.Mode) {
			link.MarkModeMismatch(connector.Spec.Mode)
			return 0, nil
		}
		row, err := r.row(ctx, link, connector, identity{projectID, connectorID, id})
		if err != nil {
			return 0, err
		}
		if err := r.Data.PutLink(ctx, row); err != nil {
			return 0, object.FromStore(fmt.Errorf("projecting the link: %w", err))
		}
		link.Status.ID = id.String()
		return 0, r.findAgent(ctx, link, connector)
	})
}

// mismatched says whether the link has settings for another mode.
func mismatched(link *v1alpha1.ConnectorLink, mode v1alpha1.ConnectorMode) bool {
	if mode == v1alpha1.ModeOutbound {
		return link.Spec.FilesRequired != nil
	}
	return link.Spec.Outbound != nil
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	list := func() *v1alpha1.ConnectorLinkList { return &v1alpha1.ConnectorLinkList{} }
	return ctrl.NewControllerManagedBy(mgr).
		Named("connectorlink").
		For(&v1alpha1.ConnectorLink{}).
		Watches(&v1alpha1.ConnectorLink{}, r.Deleted()).
		Watches(&v1alpha1.Connector{}, object.Enqueue(r.Client, list, object.Links, linksTo)).
		Watches(&v1alpha1.Environment{}, object.Enqueue(r.Client, list, object.Links, livesIn)).
		Complete(r)
}

// linksTo picks the links of a connector.
func linksTo(connector client.Object, link v1alpha1.ConditionedObject) bool {
	l, ok := link.(*v1alpha1.ConnectorLink)
	return ok && string(l.Spec.Connector) == connector.GetName()
}

// livesIn picks the links of an environment.
func livesIn(environment client.Object, link v1alpha1.ConditionedObject) bool {
	l, ok := link.(*v1alpha1.ConnectorLink)
	return ok && l.Status.Environment == environment.GetName()
}
