// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"cmp"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/outbound"
	"github.com/agentplatform/agentplatform/store"
)

// LinkRow is the link that ref names as the store keeps it, but for its outbound policy.
func LinkRow(ref store.ObjectRef, link *v1alpha1.ConnectorLink, id, connector store.Key) store.Link {
	return store.Link{
		Ref: ref, ID: id.ID, ProjectID: id.ProjectID, ConnectorID: connector.ID, AgentName: string(link.Spec.Agent),
		FilesRequired: link.Spec.FilesRequired, Activation: link.Activation(), ObjectCreatedAt: linkAge(link),
	}
}

// Policy is which results go out over a link; nil for one to a connector that sends none. The
// sources are the ids of the connectors that the link names.
func Policy(link *v1alpha1.ConnectorLink, connector *v1alpha1.Connector, sources []uuid.UUID) *store.OutboundPolicy {
	if !connector.Sends() {
		return nil
	}
	out := &store.OutboundPolicy{Mode: store.LinkAutomatic}
	spec := link.Spec.Outbound
	if spec == nil {
		return out
	}
	if spec.Mode != "" {
		out.Mode = store.LinkMode(spec.Mode.Word())
	}
	if out.Mode == store.LinkAgentTool {
		out.ActionName = cmp.Or(string(spec.ActionName), outbound.DefaultActionName(connector.Title()))
	}
	for _, status := range spec.Statuses {
		out.Statuses = append(out.Statuses, store.RunStatus(status.Word()))
	}
	out.SourceConnectorIDs = sources
	return out
}

// linkAge orders the links of a connector. Those of the code come first, as their file has
// them, whenever their mirrors were made.
func linkAge(link *v1alpha1.ConnectorLink) time.Time {
	if !link.DefinedInCode() {
		return link.CreationTimestamp.Time
	}
	position, err := strconv.ParseUint(link.Labels[v1alpha1.LabelPosition], 10, 16)
	if err != nil {
		position = store.MaxLinks
	}
	return time.UnixMicro(int64(position)).UTC()
}

// objectKey is the id that an object without spec.id has.
func objectKey(project uuid.UUID, kind, name string) store.Key {
	return store.Key{ProjectID: project, ID: v1alpha1.ProjectObjectID(project, kind, name)}
}
