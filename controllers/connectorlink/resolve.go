// SPDX-License-Identifier: Apache-2.0

package connectorlink

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	kinds "github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/store"
)

// modeProblem returns the field of the link that has no effect for its connector, or "".
func modeProblem(link *v1alpha1.ConnectorLink, connector *v1alpha1.Connector) string {
	switch {
	case link.Spec.Outbound != nil && !connector.Sends():
		return "spec.outbound is for connectors of mode Outbound"
	case link.Spec.FilesRequired && connector.Sends():
		return "spec.filesRequired is for connectors that start runs"
	}
	return ""
}

// outboundPolicy returns the outbound policy of a link, or nil if its connector sends no results. The policy
// has the IDs of the connectors in the link. problem names the connectors that cannot start runs.
func (r *Reconciler) outboundPolicy(
	ctx context.Context, link *v1alpha1.ConnectorLink, connector *v1alpha1.Connector,
) (out *store.OutboundPolicy, problem string, err error) {
	var sources []uuid.UUID
	for _, name := range link.SourceConnectors() {
		source, id, _, err := r.findConnector(ctx, link.Namespace, name) // in effect or not, because it may have started runs
		switch {
		case err != nil:
			return nil, "", err
		case source.Spec.Environment != connector.Spec.Environment, source.Sends():
			return nil, fmt.Sprintf("spec.outbound.sourceConnectors names %q: runs come from %s connectors of the same environment",
				name, kinds.NamesOf(kinds.Kind.StartsRuns, "and")), nil
		}
		sources = append(sources, id)
	}
	return projection.Policy(link, connector, sources), "", nil
}

// findConnector returns a connector by name, with its ID. waits reports that the connector holds the ID and is
// not in effect. Its links are projected anyway, so that they work as soon as the connector does.
func (r *Reconciler) findConnector(
	ctx context.Context, namespace string, name v1alpha1.ConnectorName,
) (connector *v1alpha1.Connector, id uuid.UUID, waits, err error) {
	connector, stored, err := r.Connector(ctx, namespace, name)
	var missing *base.MissingError
	if !errors.As(err, &missing) || !missing.Unready {
		return connector, stored.ID, nil, err
	}
	key := store.Key{ProjectID: r.ProjectID(namespace)}
	if key.ID, err = v1alpha1.ObjectID(key.ProjectID, connector); err != nil {
		return nil, uuid.Nil, nil, err
	}
	holder, err := r.Base.Store.Holder(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, uuid.Nil, nil, missing
	case err != nil:
		return nil, uuid.Nil, nil, base.FromStore(fmt.Errorf("reading the holder of the connector's ID: %w", err))
	case !holder.SameObject(r.Ref(connector)), holder.ObjectUID != string(connector.UID):
		return nil, uuid.Nil, nil, missing
	}
	return connector, key.ID, missing, nil
}

// withoutLiveDeployment describes what happens to a connector's events while its environment has no live
// deployment.
func withoutLiveDeployment(c *v1alpha1.Connector) string {
	if crd.KindOf(c).Answers() {
		return "the webhook returns 409 no_live_deployment"
	}
	return "runs wait"
}

// findAgent marks the link ready if the live deployment has the agent, or if there is no live
// deployment yet. The link stays projected in any case, because a later deployment may have the agent.
func (r *Reconciler) findAgent(ctx context.Context, link *v1alpha1.ConnectorLink, connector *v1alpha1.Connector) error {
	_, environment, err := r.Environment(ctx, link.Namespace, connector.Spec.Environment)
	if err != nil {
		return err
	}
	if environment.LiveDeploymentID == nil {
		link.MarkAgentUndecided(string(connector.Spec.Environment))
		v1alpha1.MarkReady(link, fmt.Sprintf("in effect; %s until Environment %q has a live deployment", withoutLiveDeployment(connector), connector.Spec.Environment))
		return nil
	}
	live := store.Key{ProjectID: environment.ProjectID, ID: *environment.LiveDeploymentID}
	has, err := r.Store.HasAgent(ctx, live, string(link.Spec.Agent))
	if err != nil {
		return base.FromStore(fmt.Errorf("finding the agent: %w", err))
	}
	if has {
		return r.findMiddleware(ctx, link, live)
	}
	known, err := r.Store.AgentNames(ctx, live, v1alpha1.ShownAgents+1)
	if err != nil {
		return base.FromStore(fmt.Errorf("listing the live agents: %w", err))
	}
	link.MarkAgentUnknown(known)
	return nil
}

// findMiddleware marks the link to an agent of the live deployment ready, unless the link is for middleware and
// the middleware does not send.
func (r *Reconciler) findMiddleware(ctx context.Context, link *v1alpha1.ConnectorLink, live store.Key) error {
	if o := link.Spec.Outbound; o != nil && o.Mode == v1alpha1.LinkMiddleware {
		sends, err := r.Store.SendsByMiddleware(ctx, live, string(link.Spec.Agent))
		if err != nil {
			return base.FromStore(fmt.Errorf("finding the middleware of the agent: %w", err))
		}
		if !sends {
			link.MarkMiddlewareMissing()
			return nil
		}
	}
	link.MarkReferencesResolved()
	v1alpha1.MarkReady(link, "")
	return nil
}
