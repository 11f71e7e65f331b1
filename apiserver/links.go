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
	"github.com/agentplatform/agentplatform/store"
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

func (l Link) audited() store.AuditObject {
	return store.AuditObject{Kind: "link", ID: l.ID, Name: l.AgentName}
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
	AgentName     string         `json:"agent_name" minLength:"1" maxLength:"253"`
	FilesRequired *bool          `json:"files_required,omitempty" doc:"Only false: this release takes no files."`
	Outbound      map[string]any `json:"outbound,omitempty" doc:"Not supported in this release."`
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
	out := make([]Link, 0, len(links))
	for i := range links {
		out = append(out, showLink(conn, &links[i]))
	}
	return out, nil
}

func (s *Server) createLink(ctx context.Context, c *caller, in *LinkCreateInput) (Link, string, error) {
	if in.Body.FilesRequired != nil && *in.Body.FilesRequired {
		return Link{}, "", invalid(notSupported("body.files_required"))
	}
	if in.Body.Outbound != nil {
		return Link{}, "", invalid(notSupported("body.outbound"))
	}
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
	link := newLink(conn, in.Body.AgentName)
	if err := s.createAll(ctx, c, []v1alpha1.ConditionedObject{link}); err != nil {
		return Link{}, "", err
	}
	if err := s.awaitReady(ctx, link); err != nil {
		return Link{}, "", err
	}
	if stalledBy(link, v1alpha1.ReasonDuplicateLink) {
		s.undo(ctx, []v1alpha1.ConditionedObject{link})
		return Link{}, "", problem(http.StatusConflict, "this agent is linked to the connector already")
	}
	if stalledBy(link, v1alpha1.ReasonLimitReached) {
		s.undo(ctx, []v1alpha1.ConditionedObject{link})
		return Link{}, "", problem(http.StatusConflict, fmt.Sprintf("the connector has %d links, as many as it may have", store.MaxLinks))
	}
	shown := showLink(conn, link)
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

// linksOf lists the links of a connector, oldest first.
func (s *Server) linksOf(ctx context.Context, c *caller, conn *v1alpha1.Connector) ([]v1alpha1.ConnectorLink, error) {
	links, err := s.links(ctx, c, client.MatchingFields{"spec.connector": conn.Name})
	return links[conn.Name], err
}

// links lists links by the name of their connector, oldest first: one request,
// however many connectors there are.
func (s *Server) links(ctx context.Context, c *caller, opts ...client.ListOption) (map[string][]v1alpha1.ConnectorLink, error) {
	var list v1alpha1.ConnectorLinkList
	if err := s.list(ctx, c, store.KindConnectorLink, &list, opts...); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.ConnectorLink) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	out := map[string][]v1alpha1.ConnectorLink{}
	for _, link := range list.Items {
		out[string(link.Spec.Connector)] = append(out[string(link.Spec.Connector)], link)
	}
	return out, nil
}

func showLink(conn *v1alpha1.Connector, link *v1alpha1.ConnectorLink) Link {
	return Link{
		ID: idOf(link), ConnectorID: idOf(conn), AgentName: string(link.Spec.Agent),
		CreatedAt: link.CreationTimestamp.UTC(), UpdatedAt: updatedAt(link),
	}
}
