// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// Link is the REST shape of a connector link.
type Link struct {
	ID            string             `json:"id" format:"uuid"`
	ConnectorID   string             `json:"connector_id" format:"uuid"`
	AgentName     string             `json:"agent_name"`
	FilesRequired *bool              `json:"files_required" doc:"null: as the connector has it."`
	Outbound      Null[OutboundLink] `json:"outbound" doc:"null unless the connector is outbound."`
	CreatedAt     time.Time          `json:"created_at"`
	UpdatedAt     time.Time          `json:"updated_at"`
}

// OutboundLink says when and how an agent's results are sent.
type OutboundLink struct {
	Mode               string   `json:"mode" enum:"automatic,agent_tool,middleware"`
	ActionName         string   `json:"action_name"`
	SourceConnectorIDs []string `json:"source_connector_ids" nullable:"false" doc:"Whose runs are sent; none: all of the agent."`
	Statuses           []string `json:"statuses" nullable:"false" doc:"Which ended runs are sent."`
}

// LinkCreate is what a link is made of.
type LinkCreate struct {
	AgentName     string              `json:"agent_name" minLength:"1" maxLength:"253"`
	FilesRequired *bool               `json:"files_required,omitempty"`
	Outbound      *OutboundLinkCreate `json:"outbound,omitempty" doc:"For outbound connectors."`
}

// OutboundLinkCreate is the outbound policy of a new link.
type OutboundLinkCreate struct {
	Mode               string   `json:"mode,omitempty" enum:"automatic,agent_tool,middleware" default:"automatic"`
	ActionName         string   `json:"action_name,omitempty" maxLength:"64"`
	SourceConnectorIDs []string `json:"source_connector_ids,omitempty" format:"uuid"`
	Statuses           []string `json:"statuses,omitempty" enum:"completed,failed,cancelled"`
}

// LinkCreateInput is the request that creates a link.
type LinkCreateInput struct {
	ConnectorPath
	Body LinkCreate
}

func (s *Server) listLinks(ctx context.Context, c *caller, in *ConnectorPath) ([]Link, error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return nil, err
	}
	links, err := s.linksOf(ctx, c, conn)
	if err != nil {
		return nil, err
	}
	ids, err := s.connectorIDs(ctx, c, conn)
	if err != nil {
		return nil, err
	}
	out := make([]Link, 0, len(links))
	for i := range links {
		out = append(out, showLink(c, conn, &links[i], ids))
	}
	return out, nil
}

func (s *Server) createLink(ctx context.Context, c *caller, in *LinkCreateInput) (Link, string, error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return Link{}, "", err
	}
	if definedInCode(conn) {
		return Link{}, "", problem(http.StatusConflict, "the connector is defined in code: its links are too")
	}
	links, err := s.linksOf(ctx, c, conn)
	if err != nil {
		return Link{}, "", err
	}
	for _, l := range links {
		if string(l.Spec.Agent) == in.Body.AgentName {
			return Link{}, "", problem(http.StatusConflict, "this agent is linked to the connector already")
		}
	}
	ids, err := s.connectorIDs(ctx, c, conn)
	if err != nil {
		return Link{}, "", err
	}
	link := newLink(conn, in.Body.AgentName)
	link.Spec.FilesRequired = in.Body.FilesRequired
	if err := applyOutbound(link, conn, in.Body.Outbound, ids); err != nil {
		return Link{}, "", err
	}
	if err := s.createAll(ctx, []client.Object{link}); err != nil {
		return Link{}, "", err
	}
	if err := s.awaitReady(ctx, link); err != nil {
		return Link{}, "", err
	}
	shown := showLink(c, conn, link, ids)
	return shown, "/connectors/" + shown.ConnectorID + "/links/" + shown.ID, nil
}

// newLink ties an agent to a connector, with an id and a name of its own.
func newLink(conn *v1alpha1.Connector, agent string) *v1alpha1.ConnectorLink {
	return &v1alpha1.ConnectorLink{
		ObjectMeta: metav1.ObjectMeta{Namespace: conn.Namespace, Name: v1alpha1.NameFor(conn.Title()+"-"+agent, "link", suffix())},
		Spec: v1alpha1.ConnectorLinkSpec{
			ID: v1alpha1.UUID(uuid.NewString()), Connector: v1alpha1.ConnectorName(conn.Name), Agent: v1alpha1.AgentName(agent),
		},
	}
}

// applyOutbound reads the outbound policy; ids are the connectors of the
// environment, by name.
func applyOutbound(link *v1alpha1.ConnectorLink, conn *v1alpha1.Connector, in *OutboundLinkCreate, ids map[string]string) error {
	if in == nil {
		return nil
	}
	if conn.Spec.Mode != v1alpha1.ModeOutbound {
		return invalid(FieldError{Location: "body.outbound", Message: "is for outbound connectors"})
	}
	out := &v1alpha1.OutboundLink{Mode: v1alpha1.OutboundMode(in.Mode), ActionName: in.ActionName}
	names := map[string]string{}
	for name, id := range ids {
		names[id] = name
	}
	for _, id := range in.SourceConnectorIDs {
		name, ok := names[strings.ToLower(id)]
		if !ok {
			return invalid(FieldError{Location: "body.outbound.source_connector_ids", Message: "the environment has no such connector"})
		}
		out.SourceConnectors = append(out.SourceConnectors, v1alpha1.ConnectorName(name))
	}
	for _, status := range in.Statuses {
		out.Statuses = append(out.Statuses, v1alpha1.RunOutcome(status))
	}
	link.Spec.Outbound = out
	return nil
}

// linksOf lists the links of a connector, oldest first.
func (s *Server) linksOf(ctx context.Context, c *caller, conn *v1alpha1.Connector) ([]v1alpha1.ConnectorLink, error) {
	var list v1alpha1.ConnectorLinkList
	err := s.client.List(ctx, &list, client.InNamespace(c.namespace), client.MatchingFields{"spec.connector": conn.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the links of connector %q: %w", conn.Name, err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.ConnectorLink) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return list.Items, nil
}

// connectorIDs are the ids of the connectors beside this one, by name; none are
// read where nothing asks for them.
func (s *Server) connectorIDs(ctx context.Context, c *caller, conn *v1alpha1.Connector) (map[string]string, error) {
	if conn.Spec.Mode != v1alpha1.ModeOutbound {
		return nil, nil
	}
	list, err := s.connectorsOf(ctx, c, string(conn.Spec.Environment))
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for i := range list {
		ids[list[i].Name] = c.idOf(&list[i])
	}
	return ids, nil
}

func showLink(c *caller, conn *v1alpha1.Connector, link *v1alpha1.ConnectorLink, ids map[string]string) Link {
	out := Link{
		ID: c.idOf(link), ConnectorID: c.idOf(conn), AgentName: string(link.Spec.Agent), FilesRequired: link.Spec.FilesRequired,
		CreatedAt: link.CreationTimestamp.UTC(), UpdatedAt: updatedAt(link),
	}
	if conn.Spec.Mode != v1alpha1.ModeOutbound {
		return out
	}
	in := cmp.Or(link.Spec.Outbound, &v1alpha1.OutboundLink{})
	shown := &OutboundLink{
		Mode: string(cmp.Or(in.Mode, v1alpha1.OutboundAutomatic)), ActionName: cmp.Or(in.ActionName, "send_to_"+conn.Title()),
		SourceConnectorIDs: []string{}, Statuses: []string{},
	}
	for _, name := range in.SourceConnectors {
		if id, ok := ids[string(name)]; ok {
			shown.SourceConnectorIDs = append(shown.SourceConnectorIDs, id)
		}
	}
	for _, status := range in.Statuses {
		shown.Statuses = append(shown.Statuses, string(status))
	}
	if len(shown.Statuses) == 0 {
		shown.Statuses = append(shown.Statuses, string(v1alpha1.RunCompleted))
	}
	out.Outbound.Value = shown
	return out
}
