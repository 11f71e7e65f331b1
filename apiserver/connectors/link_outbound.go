// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/store"
)

// OutboundLink are the rules for sending an agent's results.
type OutboundLink struct {
	Mode               OutboundMode `json:"mode" doc:"When something is sent."`
	ActionName         *string      `json:"action_name" doc:"The name of the tool (agent_tool); null for other modes."`
	SourceConnectorIDs []string     `json:"source_connector_ids" format:"uuid" doc:"The connectors whose runs are sent (automatic); empty for all runs of the agent."`
	Statuses           []LinkStatus `json:"statuses" doc:"The statuses that are sent (automatic); empty for other modes."`
}

func (OutboundLink) Doc() string { return "The rules for sending an agent's results." }

// OutboundLinkInput are the rules for sending an agent's results in a request.
type OutboundLinkInput struct {
	Mode               OutboundMode `json:"mode,omitempty" default:"automatic" doc:"When something is sent."`
	ActionName         *string      `json:"action_name,omitempty" nullable:"true" pattern:"^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$" patternDescription:"at most 64 letters, digits, underscores and dashes, no digit or dash first" doc:"The name of the tool (agent_tool), unique for the agent in its environment. Default: send_to_ and the connector's name." example:"send_to_crm"`
	SourceConnectorIDs []rest.ID    `json:"source_connector_ids,omitempty" maxItems:"32" doc:"Only results of runs that these connectors of the environment started. Default: results of all runs of the agent."`
	Statuses           []LinkStatus `json:"statuses,omitempty" maxItems:"4" doc:"Only results of runs that ended as completed, failed or cancelled; delivery_failed sends reports of failed deliveries. Default: completed."`
}

func (OutboundLinkInput) Doc() string { return "The rules to set for sending an agent's results." }

// sources are the connectors of an environment that start runs. Links can name them.
type sources struct {
	project uuid.UUID
	// ids has the IDs of the connectors by name.
	ids map[v1alpha1.ConnectorName]string
}

// sourcesOf reads the sources for an outbound connector.
func (s *Links) sourcesOf(ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector) (sources, error) {
	out := sources{project: c.ProjectID, ids: map[v1alpha1.ConnectorName]string{}}
	if !conn.Sends() {
		return out, nil
	}
	list, err := s.Service.ConnectorsOf(ctx, c, string(conn.Spec.Environment))
	if err != nil {
		return out, err
	}
	for i := range list {
		if !list[i].Sends() {
			out.ids[v1alpha1.ConnectorName(list[i].Name)] = rest.ObjectID(&list[i])
		}
	}
	return out, nil
}

// applyTo writes settings into the spec of a link to a connector. It returns 422 for settings without an effect on that
// connector.
func (in LinkSettings) applyTo(spec *v1alpha1.ConnectorLinkSpec, conn *v1alpha1.Connector, from sources) error {
	filesRequired := in.FilesRequired != nil && *in.FilesRequired
	switch {
	case in.Outbound != nil && !conn.Sends():
		return rest.InvalidField("body.outbound", "is a field of links to outbound connectors")
	case filesRequired && conn.Sends():
		return rest.InvalidField("body.files_required", "is a field of links to connectors that start runs")
	}
	spec.FilesRequired, spec.Outbound = filesRequired, nil
	if in.Outbound == nil {
		return nil
	}
	policy, err := in.Outbound.policy(from)
	spec.Outbound = policy
	return err
}

// policy returns the settings in the form of the object.
func (in OutboundLinkInput) policy(from sources) (*v1alpha1.OutboundLink, error) {
	out := &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAutomatic}
	if in.Mode != "" {
		if out.Mode = v1alpha1.LinkModeOf(string(in.Mode)); out.Mode == "" {
			return nil, rest.InvalidField("body.outbound.mode", "must be automatic, agent_tool or middleware")
		}
	}
	if err := in.fits(out.Mode); err != nil {
		return nil, err
	}
	if in.ActionName != nil {
		out.ActionName = v1alpha1.ActionName(*in.ActionName)
	}
	for i, id := range in.SourceConnectorIDs {
		name, found := from.named(uuid.UUID(id).String())
		switch {
		case !found:
			return nil, rest.InvalidField(fmt.Sprintf("body.outbound.source_connector_ids[%d]", i), "is not a connector of the environment that starts runs")
		case slices.Contains(out.SourceConnectors, name):
			return nil, rest.InvalidField(fmt.Sprintf("body.outbound.source_connector_ids[%d]", i), "is in the list twice")
		}
		out.SourceConnectors = append(out.SourceConnectors, name)
	}
	for i, status := range in.Statuses {
		word := v1alpha1.LinkStatusOf(string(status))
		switch {
		case word == "":
			return nil, rest.InvalidField(fmt.Sprintf("body.outbound.statuses[%d]", i), "must be completed, failed, cancelled or delivery_failed")
		case slices.Contains(out.Statuses, word):
			return nil, rest.InvalidField(fmt.Sprintf("body.outbound.statuses[%d]", i), "is in the list twice")
		}
		out.Statuses = append(out.Statuses, word)
	}
	return out, nil
}

// fits returns 422 for settings without an effect in a mode.
func (in OutboundLinkInput) fits(mode v1alpha1.LinkMode) error {
	link := connector.Policy{Mode: mode.EnumValue(), SourceConnectors: make([]string, len(in.SourceConnectorIDs)), Statuses: make([]string, len(in.Statuses))}
	if in.ActionName != nil {
		link.ActionName = *in.ActionName
	}
	problems := link.CheckMode()
	if len(problems) == 0 {
		return nil
	}
	field := problems[0].Field
	if field == "source_connectors" {
		field = "source_connector_ids"
	}
	return rest.InvalidField("body.outbound."+field, problems[0].Problem)
}

// named returns the name of the connector with an ID.
func (s sources) named(id string) (v1alpha1.ConnectorName, bool) {
	for name, of := range s.ids {
		if strings.EqualFold(of, id) {
			return name, true
		}
	}
	return "", false
}

// id returns the ID of the connector with a name. For a deleted connector it returns an ID derived from the name, which
// no link accepts. So a client that sends the settings back gets an error, and the link is not widened.
func (s sources) id(name v1alpha1.ConnectorName) string {
	if id, there := s.ids[name]; there {
		return id
	}
	return v1alpha1.ProjectObjectID(s.project, store.KindConnector, string(name)).String()
}

// showOutboundLink returns the settings of a link to an outbound connector with their defaults, or nil for other links.
func showOutboundLink(conn *v1alpha1.Connector, link *v1alpha1.ConnectorLink, from sources) *OutboundLink {
	if !conn.Sends() {
		return nil
	}
	out := &OutboundLink{Mode: OutboundMode(v1alpha1.LinkAutomatic.EnumValue()), SourceConnectorIDs: []string{}, Statuses: []LinkStatus{}}
	if spec := link.Spec.Outbound; spec != nil {
		if spec.Mode != "" {
			out.Mode = OutboundMode(spec.Mode.EnumValue())
		}
		for _, name := range spec.SourceConnectors {
			out.SourceConnectorIDs = append(out.SourceConnectorIDs, from.id(name))
		}
		for _, status := range spec.Statuses {
			out.Statuses = append(out.Statuses, LinkStatus(status.EnumValue()))
		}
	}
	switch out.Mode {
	case connector.AgentTool:
		out.ActionName = rest.Optional(cmp.Or(string(link.Spec.Outbound.ActionName), connector.DefaultActionName(conn.Title())))
	case connector.Automatic:
		if len(out.Statuses) == 0 {
			out.Statuses = []LinkStatus{LinkStatus(v1alpha1.LinkCompleted.EnumValue())}
		}
	}
	return out
}
