// SPDX-License-Identifier: Apache-2.0

package connectorlink

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

// identity are the ids of a link and of what it belongs to.
type identity struct{ project, connector, link uuid.UUID }

// row is the link as the store keeps it.
func row(ref store.ObjectRef, link *v1alpha1.ConnectorLink, ids identity) store.Link {
	return store.Link{
		Ref: ref, ID: ids.link, ProjectID: ids.project, ConnectorID: ids.connector,
		AgentName: string(link.Spec.Agent), ObjectCreatedAt: link.CreationTimestamp.Time,
	}
}

// findAgent marks the link ready when the live deployment has the agent, or
// there is none yet. The projection stands either way: a later deployment may
// have the agent.
func (r *Reconciler) findAgent(ctx context.Context, link *v1alpha1.ConnectorLink, connector *v1alpha1.Connector) error {
	_, environment, err := r.Environment(ctx, link.Namespace, connector.Spec.Environment)
	if err != nil {
		return err
	}
	if environment.LiveDeploymentID == nil {
		link.MarkAgentUndecided(string(connector.Spec.Environment))
		v1alpha1.MarkReady(link, fmt.Sprintf("in effect; runs wait until Environment %q has a live deployment", connector.Spec.Environment))
		return nil
	}
	live := store.Key{ProjectID: environment.ProjectID, ID: *environment.LiveDeploymentID}
	has, err := r.Store.HasAgent(ctx, live, string(link.Spec.Agent))
	if err != nil {
		return object.FromStore(fmt.Errorf("looking for the agent: %w", err))
	}
	if has {
		link.MarkReferencesResolved()
		v1alpha1.MarkReady(link, "")
		return nil
	}
	known, err := r.Store.AgentNames(ctx, live, v1alpha1.ShownAgents+1)
	if err != nil {
		return object.FromStore(fmt.Errorf("listing the live agents: %w", err))
	}
	link.MarkAgentUnknown(string(connector.Spec.Environment), known)
	return nil
}
