// SPDX-License-Identifier: Apache-2.0

// Package connectorlink projects ConnectorLinks into the store.
package connectorlink

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectorlinks,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectorlinks/status,verbs=patch

// Store has the store methods that the controller needs.
type Store interface {
	PutLink(ctx context.Context, l store.Link) error
	HasAgent(ctx context.Context, deployment store.Key, name string) (bool, error)
	SendsByMiddleware(ctx context.Context, deployment store.Key, agent string) (bool, error)
	AgentNames(ctx context.Context, deployment store.Key, limit int) ([]string, error)
}

// Reconciler reconciles ConnectorLinks.
type Reconciler struct {
	*base.Base
	Store Store
}

// Reconcile projects one ConnectorLink into the store.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	link := &v1alpha1.ConnectorLink{}
	return r.ReconcilePut(ctx, req, link, func(ctx context.Context, key store.Key) (time.Duration, error) {
		if _, err := r.Project(ctx, link.Namespace); err != nil {
			return 0, err
		}
		connector, id, waits, err := r.findConnector(ctx, link.Namespace, link.Spec.Connector)
		if err != nil {
			return 0, err
		}
		link.Status.Environment = string(connector.Spec.Environment)
		if problem := modeProblem(link, connector); problem != "" {
			link.MarkInvalid(problem + ", which Connector " + strconv.Quote(connector.Name) + " is not; remove it")
			return 0, nil
		}
		if link.DefinedInCode() && link.Activation() == 0 {
			return 0, &base.WaitingError{Message: fmt.Sprintf("the label %s is reserved for the platform; remove it to use the link as your own", v1alpha1.LabelDefinedInCode)}
		}
		written := projection.LinkRow(r.Ref(link), link, key, store.Key{ProjectID: key.ProjectID, ID: id})
		policy, problem, err := r.outboundPolicy(ctx, link, connector)
		switch {
		case err != nil:
			return 0, err
		case problem != "":
			link.MarkInvalid(problem)
			return 0, nil
		}
		written.Outbound = policy
		if held, err := r.projectRow(ctx, link, written); err != nil || !held {
			return base.MaxRetryInterval, err
		}
		if waits != nil {
			return 0, waits
		}
		return 0, r.findAgent(ctx, link, connector)
	})
}

// projectRow writes the projection. held is false if a user has to resolve a conflict first.
func (r *Reconciler) projectRow(ctx context.Context, link *v1alpha1.ConnectorLink, written store.Link) (held bool, err error) {
	var (
		duplicate *store.DuplicateError
		many      *store.TooManyLinksError
		taken     *store.ActionTakenError
		sends     *store.TooManyOutboundLinksError
	)
	err = r.Store.PutLink(ctx, written)
	switch {
	case errors.As(err, &duplicate):
		link.MarkDuplicate(duplicate.Holder.String())
		return false, nil
	case errors.As(err, &many):
		link.MarkTooMany(store.MaxLinks)
		return false, nil
	case errors.As(err, &taken):
		link.MarkActionTaken(taken.Name, taken.Holder.String())
		return false, nil
	case errors.As(err, &sends):
		link.MarkTooManyOutbound(store.MaxOutboundLinks)
		return false, nil
	case errors.Is(err, store.ErrNothingLive):
		return false, &base.WaitingError{Reason: v1alpha1.ReasonNotLive, Message: "the connector's environment has no live deployment; deploy code with this link to restore it"}
	case errors.Is(err, store.ErrNotLive):
		return false, &base.WaitingError{Message: "another activation is in effect in the environment; its mirror follows"}
	case err != nil:
		return false, base.FromStore(fmt.Errorf("projecting the link: %w", err))
	}
	return true, nil
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	links := &v1alpha1.ConnectorLinkList{}
	inEnvironment := handler.EnqueueRequestsFromMapFunc(r.linksOfEnvironment)
	return ctrl.NewControllerManagedBy(mgr).
		Named("connectorlink").
		WithOptions(r.ControllerOptions()).
		For(&v1alpha1.ConnectorLink{}).
		Watches(&v1alpha1.ConnectorLink{}, r.Deleted()).
		Watches(&v1alpha1.ConnectorLink{}, base.EnqueueAfterRemoval(r.waitingLinks), builder.WithPredicates(base.Changed(noFields))).
		Watches(&v1alpha1.Project{}, r.Enqueue(links, nil), base.IDChanged).
		Watches(&v1alpha1.Connector{}, r.EnqueueBy(base.ByConnector, links, nil), builder.WithPredicates(base.Changed(connectorState))).
		Watches(&v1alpha1.Connector{}, r.EnqueueBy(base.BySource, links, nil), base.IDChanged).
		Watches(&v1alpha1.Environment{}, inEnvironment, builder.WithPredicates(base.Changed(liveState))).
		Complete(r)
}

// noFields returns a constant: no change of a link matters to other objects.
func noFields(v1alpha1.ConditionedObject) any { return nil }

// connectorState returns the fields of a connector that its links read: whether it is in effect, because
// another connector may have its name, and the name of its tool.
func connectorState(c *v1alpha1.Connector) any {
	return [3]any{c.Status.ID, c.Status.IsTrue(v1alpha1.ConditionRoutesReady), c.Title()}
}

// liveState returns the fields of an environment that links read.
func liveState(e *v1alpha1.Environment) any { return [2]string{e.Status.ID, e.Status.LiveDeploymentID} }

// waitingLinks returns the links that wait for a deleted one: for the same connector and agent, for the
// connector's limit of links, or for a tool name of the agent.
func (r *Reconciler) waitingLinks(ctx context.Context, deleted client.Object) []ctrl.Request {
	gone, ok := deleted.(*v1alpha1.ConnectorLink)
	if !ok {
		return nil
	}
	waits := func(l *v1alpha1.ConnectorLink) bool { return l.Name != gone.Name && v1alpha1.IsStalled(l) }
	out := r.linksOf(ctx, gone.Namespace, string(gone.Spec.Connector), waits)
	if o := gone.Spec.Outbound; o == nil || o.Mode != v1alpha1.LinkAgentTool {
		return out
	}
	return append(out, r.selectLinks(ctx, func(l *v1alpha1.ConnectorLink) bool {
		return l.Spec.Agent == gone.Spec.Agent && l.Spec.Connector != gone.Spec.Connector && waits(l)
	}, client.InNamespace(gone.Namespace))...)
}

// linksOfEnvironment returns the links of an environment.
func (r *Reconciler) linksOfEnvironment(ctx context.Context, environment client.Object) (out []ctrl.Request) {
	connectors := &v1alpha1.ConnectorList{}
	err := r.Client.List(ctx, connectors, client.InNamespace(environment.GetNamespace()),
		client.MatchingFields{base.ByEnvironment: environment.GetName()})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the connectors of an environment")
	}
	for i := range connectors.Items {
		out = append(out, r.linksOf(ctx, environment.GetNamespace(), connectors.Items[i].Name, nil)...)
	}
	return out
}

// linksOf returns the links of a connector that pick selects, or all if pick is nil.
func (r *Reconciler) linksOf(ctx context.Context, namespace, connector string, pick func(*v1alpha1.ConnectorLink) bool) (out []ctrl.Request) {
	return r.selectLinks(ctx, pick, client.InNamespace(namespace), client.MatchingFields{base.ByConnector: connector})
}

// selectLinks returns the links that match the list options and that pick selects.
func (r *Reconciler) selectLinks(ctx context.Context, pick func(*v1alpha1.ConnectorLink) bool, which ...client.ListOption) (out []ctrl.Request) {
	links := &v1alpha1.ConnectorLinkList{}
	if err := r.Client.List(ctx, links, which...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing links")
	}
	for i := range links.Items {
		if pick == nil || pick(&links.Items[i]) {
			out = append(out, base.Request(&links.Items[i]))
		}
	}
	return out
}
