// SPDX-License-Identifier: Apache-2.0

// Package connectorlink brings ConnectorLinks into the store.
package connectorlink

import (
	"context"
	"errors"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectorlinks,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectorlinks/status,verbs=patch

// Store is what the controller needs of the store.
type Store interface {
	PutLink(ctx context.Context, l store.Link) error
	Deployment(ctx context.Context, key store.Key) (store.Deployment, error)
}

// Reconciler reconciles ConnectorLinks.
type Reconciler struct {
	*object.Keeper
	Data Store
}

// Reconcile brings one ConnectorLink into the store.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	link := &v1alpha1.ConnectorLink{}
	return r.Keeper.Reconcile(ctx, req, link, func(ctx context.Context, key store.Key) (time.Duration, error) {
		if _, err := r.Project(ctx, link.Namespace); err != nil {
			return 0, err
		}
		connector, stored, err := r.Connector(ctx, link.Namespace, link.Spec.Connector)
		if err != nil {
			return 0, err
		}
		link.Status.Environment = string(connector.Spec.Environment)
		err = r.Data.PutLink(ctx, r.row(link, identity{key.ProjectID, stored.ID, key.ID}))
		var (
			duplicate *store.DuplicateError
			many      *store.TooManyLinksError
		)
		switch {
		case errors.As(err, &duplicate):
			link.MarkDuplicate(duplicate.Holder.String())
			return object.Later, nil
		case errors.As(err, &many):
			link.MarkTooMany(store.MaxLinks)
			return object.Later, nil
		}
		if err != nil {
			return 0, object.FromStore(fmt.Errorf("projecting the link: %w", err))
		}
		return 0, r.findAgent(ctx, link, connector)
	})
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	list := func() *v1alpha1.ConnectorLinkList { return &v1alpha1.ConnectorLinkList{} }
	return ctrl.NewControllerManagedBy(mgr).
		Named("connectorlink").
		For(&v1alpha1.ConnectorLink{}).
		Watches(&v1alpha1.ConnectorLink{}, r.Deleted()).
		Watches(&v1alpha1.ConnectorLink{}, object.Enqueue(r.Client, list, object.Links, twin)).
		Watches(&v1alpha1.Project{}, object.Enqueue(r.Client, list, object.Links, object.Always), object.ComesOrGoes).
		Watches(&v1alpha1.Connector{}, object.Enqueue(r.Client, list, object.Links, linksTo)).
		Watches(&v1alpha1.Environment{}, object.Enqueue(r.Client, list, object.Links, livesIn)).
		Complete(r)
}

// twin picks the links that join what a link that changed joins.
func twin(changed client.Object, candidate v1alpha1.ConditionedObject) bool {
	l, isLink := changed.(*v1alpha1.ConnectorLink)
	other, isCandidate := candidate.(*v1alpha1.ConnectorLink)
	return isLink && isCandidate && l.Name != other.Name && l.Spec.Connector == other.Spec.Connector &&
		l.Spec.Agent == other.Spec.Agent && other.IsStalled()
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
