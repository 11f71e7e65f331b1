// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"cmp"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/store"
)

// LinkRow returns the row of the link that ref names, without its outbound policy.
func LinkRow(ref store.ObjectRef, link *v1alpha1.ConnectorLink, id, connector store.Key) store.Link {
	return store.Link{
		Ref: ref, ID: id.ID, ProjectID: id.ProjectID, ConnectorID: connector.ID, AgentName: string(link.Spec.Agent),
		FilesRequired: link.Spec.FilesRequired, Activation: link.Activation(), ObjectCreatedAt: linkAge(link),
	}
}

// Policy returns the outbound policy of a link, or nil if its connector sends no results. sources are
// the IDs of the connectors that the link names.
func Policy(link *v1alpha1.ConnectorLink, c *v1alpha1.Connector, sources []uuid.UUID) *store.OutboundPolicy {
	if !c.Sends() {
		return nil
	}
	out := &store.OutboundPolicy{Mode: store.LinkAutomatic}
	spec := link.Spec.Outbound
	if spec == nil {
		return out
	}
	if spec.Mode != "" {
		out.Mode = store.LinkMode(spec.Mode.EnumValue())
	}
	if out.Mode == store.LinkAgentTool {
		out.ActionName = cmp.Or(string(spec.ActionName), connector.DefaultActionName(c.Title()))
	}
	for _, status := range spec.Statuses {
		out.Statuses = append(out.Statuses, store.RunStatus(status.EnumValue()))
	}
	out.SourceConnectorIDs = sources
	return out
}

// linkAge returns the time that orders the links of a connector. Links of the code come first, in the
// order of their file, whenever their mirrors were created.
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

// objectKey returns the ID of an object without spec.id.
func objectKey(project uuid.UUID, kind, name string) store.Key {
	return store.Key{ProjectID: project, ID: v1alpha1.ProjectObjectID(project, kind, name)}
}
