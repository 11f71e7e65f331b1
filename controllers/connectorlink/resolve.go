// SPDX-License-Identifier: Apache-2.0

package connectorlink

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

// identity are the ids of a link and of what it belongs to.
type identity struct{ project, connector, link uuid.UUID }

// row is the link as the store keeps it.
func (r *Reconciler) row(link *v1alpha1.ConnectorLink, ids identity) store.Link {
	return store.Link{
		Ref: r.Ref(link), ID: ids.link, ProjectID: ids.project, ConnectorID: ids.connector,
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
		link.MarkReady(fmt.Sprintf("in effect; runs wait until Environment %q has a live deployment", connector.Spec.Environment))
		return nil
	}
	live, err := r.Data.Deployment(ctx, store.Key{ProjectID: environment.ProjectID, ID: *environment.LiveDeploymentID})
	if err != nil {
		return object.FromStore(fmt.Errorf("reading the live deployment: %w", err))
	}
	var agents []string
	for _, a := range live.Agents {
		agents = append(agents, a.Name)
	}
	if !slices.Contains(agents, string(link.Spec.Agent)) {
		link.MarkAgentUnknown(string(connector.Spec.Environment), agents)
		return nil
	}
	link.MarkReferencesResolved()
	link.MarkReady("")
	return nil
}
