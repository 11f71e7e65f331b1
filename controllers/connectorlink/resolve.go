// SPDX-License-Identifier: Apache-2.0

package connectorlink

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

// identity are the ids of a link and of what it belongs to.
type identity struct{ project, connector, link uuid.UUID }

// connector finds a connector that the store knows, by name.
func (r *Reconciler) connector(
	ctx context.Context, namespace string, name v1alpha1.ConnectorName,
) (*v1alpha1.Connector, uuid.UUID, error) {
	connector := &v1alpha1.Connector{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: string(name)}, connector)
	missing := &object.MissingError{Kind: connector.ObjectKind(), Name: string(name)}
	if apierrors.IsNotFound(err) {
		return nil, uuid.Nil, missing
	}
	if err != nil {
		return nil, uuid.Nil, fmt.Errorf("reading connector %q: %w", name, err)
	}
	if connector.Status.ID == "" {
		missing.Unready = true
		return nil, uuid.Nil, missing
	}
	id, err := uuid.Parse(connector.Status.ID)
	if err != nil {
		return nil, uuid.Nil, fmt.Errorf("reading the id of connector %q: %w", name, err)
	}
	return connector, id, nil
}

// row is the link as the store keeps it.
func (r *Reconciler) row(
	ctx context.Context, link *v1alpha1.ConnectorLink, connector *v1alpha1.Connector, ids identity,
) (store.Link, error) {
	row := store.Link{
		Ref: r.Ref(link), ID: ids.link, ProjectID: ids.project, ConnectorID: ids.connector,
		AgentName: string(link.Spec.Agent), FilesRequired: connector.RequiresFiles(), ObjectCreatedAt: link.CreationTimestamp.Time,
	}
	if link.Spec.FilesRequired != nil {
		row.FilesRequired = *link.Spec.FilesRequired
	}
	if connector.Spec.Mode != v1alpha1.ModeOutbound {
		return row, nil
	}
	outbound, err := r.outbound(ctx, link)
	row.Outbound = outbound
	return row, err
}

// outbound are the outbound settings in their REST shape, defaults filled.
func (r *Reconciler) outbound(ctx context.Context, link *v1alpha1.ConnectorLink) (json.RawMessage, error) {
	settings := link.Spec.Outbound
	if settings == nil {
		settings = &v1alpha1.OutboundLink{Mode: v1alpha1.OutboundAutomatic}
	}
	sources := []string{}
	for _, name := range settings.SourceConnectors {
		_, id, err := r.connector(ctx, link.Namespace, name)
		if err != nil {
			return nil, err
		}
		sources = append(sources, id.String())
	}
	statuses := settings.Statuses
	if len(statuses) == 0 {
		statuses = []v1alpha1.RunOutcome{v1alpha1.RunCompleted}
	}
	out, err := json.Marshal(map[string]any{
		"mode": settings.Mode, "action_name": settings.ActionName, "source_connector_ids": sources, "statuses": statuses,
	})
	if err != nil {
		return nil, fmt.Errorf("writing the outbound settings: %w", err)
	}
	return out, nil
}

// findAgent marks the link ready when the live deployment has the agent, or
// there is none yet. The projection stands either way: a later deployment may
// have the agent.
func (r *Reconciler) findAgent(ctx context.Context, link *v1alpha1.ConnectorLink, connector *v1alpha1.Connector) error {
	_, environmentID, err := r.Environment(ctx, link.Namespace, connector.Spec.Environment)
	if err != nil {
		return err
	}
	environment, err := r.Data.Environment(ctx, environmentID)
	if err != nil {
		return object.FromStore(fmt.Errorf("reading the environment: %w", err))
	}
	if environment.LiveDeploymentID == nil {
		link.MarkReady(fmt.Sprintf("in effect; runs wait until Environment %q has a live deployment", connector.Spec.Environment))
		return nil
	}
	live, err := r.Data.Deployment(ctx, *environment.LiveDeploymentID)
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
