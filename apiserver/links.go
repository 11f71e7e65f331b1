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
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// Link is the REST shape of a connector link.
type Link struct {
	ID            string             `json:"id" format:"uuid" doc:"The link's id."`
	ConnectorID   string             `json:"connector_id" format:"uuid" doc:"The connector."`
	AgentName     string             `json:"agent_name" doc:"The agent that its events start, or whose results it sends." example:"support"`
	FilesRequired bool               `json:"files_required" doc:"Whether runs fail of an event that has no attachment, or one that is omitted."`
	Outbound      Null[OutboundLink] `json:"outbound" doc:"When and how results are sent; null unless the connector is outbound."`
	Ready         bool               `json:"ready" doc:"Whether it is in effect: events of the connector start the agent, or the connector sends what the link says."`
	// NotReadyReason is a condition's, as REST writes words.
	NotReadyReason *string   `json:"not_ready_reason" doc:"Why it is not in effect, in a word, such as agent_unknown: the live deployment has no such agent, and events of the connector start runs that fail; null while it is. Words are added." example:"agent_unknown"`
	Message        *string   `json:"message" doc:"Why it is not in effect, with the remedy; null while it is."`
	CreatedAt      time.Time `json:"created_at" doc:"When it was created."`
	UpdatedAt      time.Time `json:"updated_at" doc:"When it was last changed."`
}

func (l Link) audited() store.AuditObject {
	return store.AuditObject{Kind: "link", ID: l.ID, Name: l.AgentName}
}

// LinkCreate is what a link is made of.
type LinkCreate struct {
	AgentName string `json:"agent_name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" patternDescription:"lower-case letters, digits and inner dashes" doc:"The agent, by the name that its YAML file gives it. It need not be deployed yet." example:"support"`
	LinkSettings
}

// LinkSettings is what can be changed of a link.
type LinkSettings struct {
	FilesRequired *bool              `json:"files_required,omitempty" doc:"Whether runs fail of an event that has no attachment, or one that is omitted; without it: false."`
	Outbound      *OutboundLinkInput `json:"outbound,omitempty" doc:"When and how results are sent, for links to outbound connectors; without it those of all completed runs."`
}

// LinkUpdate are the settings that a link gets in place of those that it has.
type LinkUpdate struct{ LinkSettings }

// LinkCreateInput is the request that creates a link.
type LinkCreateInput struct {
	ConnectorPath
	Body LinkCreate
}

// LinkPath names a link.
type LinkPath struct {
	ConnectorPath
	LinkID ID `path:"link_id" doc:"The link."`
}

// LinkUpdateInput is the request that replaces the settings of a link.
type LinkUpdateInput struct {
	LinkPath
	Body LinkUpdate
}

func (s *Server) listLinks(ctx context.Context, c *caller, in *ConnectorPath) (answer[[]Link], error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return answer[[]Link]{}, err
	}
	links, err := s.linksOf(ctx, c, conn)
	if err != nil {
		return answer[[]Link]{}, err
	}
	from, err := s.sourcesOf(ctx, c, conn)
	if err != nil {
		return answer[[]Link]{}, err
	}
	out := make([]Link, 0, len(links))
	for i := range links {
		out = append(out, showLink(conn, &links[i], from))
	}
	return plainly(out, nil)
}

func (s *Server) getLink(ctx context.Context, c *caller, in *LinkPath) (answer[Link], error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return answer[Link]{}, err
	}
	link, err := s.link(ctx, c, conn, in.LinkID)
	if err != nil {
		return answer[Link]{}, err
	}
	from, err := s.sourcesOf(ctx, c, conn)
	return answer[Link]{Body: showLink(conn, link, from), ETag: etag(link)}, err
}

// link finds a link of a connector by id.
func (s *Server) link(ctx context.Context, c *caller, conn *v1alpha1.Connector, id ID) (*v1alpha1.ConnectorLink, error) {
	link := &v1alpha1.ConnectorLink{}
	if err := s.byID(ctx, c, "link", id, link); err != nil {
		return nil, err
	}
	if string(link.Spec.Connector) != conn.Name {
		return nil, notFound("link")
	}
	return link, nil
}

func (s *Server) createLink(ctx context.Context, c *caller, in *LinkCreateInput) (answer[Link], error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return answer[Link]{}, err
	}
	if conn.DefinedInCode() {
		return answer[Link]{}, errLinkInCode(conn)
	}
	from, err := s.sourcesOf(ctx, c, conn)
	if err != nil {
		return answer[Link]{}, err
	}
	link := newLink(ctx, c, conn, in.Body.AgentName)
	if err := in.Body.applyTo(&link.Spec, conn, from); err != nil {
		return answer[Link]{}, err
	}
	links, err := s.linksOf(ctx, c, conn)
	if err != nil {
		return answer[Link]{}, err
	}
	for _, l := range links {
		if l.Spec.Agent == link.Spec.Agent && l.Name != link.Name {
			return answer[Link]{}, linkedAlready
		}
	}
	made := creation{Server: s, caller: c}
	if err := made.link(ctx, link); err != nil {
		made.takeBack(ctx, err)
		return answer[Link]{}, err
	}
	shown := showLink(conn, link, from)
	return created(ctx, shown, link, "/connectors/"+shown.ConnectorID+"/links/"+shown.ID), nil
}

// updateLink replaces the settings of a link: what is not sent gets its default.
func (s *Server) updateLink(ctx context.Context, c *caller, in *LinkUpdateInput) (answer[Link], error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return answer[Link]{}, err
	}
	link, err := s.link(ctx, c, conn, in.LinkID)
	if err != nil {
		return answer[Link]{}, err
	}
	from, err := s.sourcesOf(ctx, c, conn)
	if err != nil {
		return answer[Link]{}, err
	}
	before := showLink(conn, link, from)
	var was *v1alpha1.ConnectorLink
	repeated, err := s.amend(ctx, c, link, func() error {
		if conn.DefinedInCode() {
			return errLinkInCode(conn)
		}
		was = link.DeepCopy()
		return in.Body.applyTo(&link.Spec, conn, from)
	})
	if err != nil {
		return answer[Link]{}, err
	}
	s.awaitReady(ctx, link)
	if refused := refusal(link); refused != nil && !repeated {
		s.putBack(ctx, link, func() { link.Spec, link.Annotations = *was.Spec.DeepCopy(), was.Annotations })
		return answer[Link]{}, refused
	}
	shown := showLink(conn, link, from)
	changed(ctx, shown.audited(), before, shown)
	return answer[Link]{Body: shown, ETag: etag(link)}, nil
}

// link creates a link.
func (n *creation) link(ctx context.Context, link *v1alpha1.ConnectorLink) error {
	if err := n.create(ctx, link); err != nil {
		return err
	}
	n.awaitReady(ctx, link)
	return refusal(link)
}

// refusal is why a controller does not take a link up; nil where it does, or may yet.
func refusal(link *v1alpha1.ConnectorLink) error {
	switch {
	case stalledBy(link, v1alpha1.ReasonDuplicateLink):
		return linkedAlready
	case stalledBy(link, v1alpha1.ReasonLimitReached):
		return problem(http.StatusConflict, httpserver.CodeLimitReached,
			fmt.Sprintf("the connector has %d links, or the agent %d to outbound connectors in the environment, as many as it may have",
				store.MaxLinks, store.MaxOutboundLinks))
	case stalledBy(link, v1alpha1.ReasonActionNameTaken):
		return problem(http.StatusConflict, httpserver.CodeNameTaken, "the agent has another tool of this action_name in the environment")
	default:
		return nil
	}
}

var linkedAlready = problem(http.StatusConflict, httpserver.CodeAlreadyExists, "this agent is linked to the connector already")

// newLink ties an agent to a connector, with an id and a name of its own.
func newLink(ctx context.Context, c *caller, conn *v1alpha1.Connector, agent string) *v1alpha1.ConnectorLink {
	meta, id := c.meta(ctx, "link", conn.Title()+"-"+agent)
	return &v1alpha1.ConnectorLink{ObjectMeta: meta, Spec: v1alpha1.ConnectorLinkSpec{
		ID: id, Connector: v1alpha1.ConnectorName(conn.Name), Agent: v1alpha1.AgentName(agent),
	}}
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

func showLink(conn *v1alpha1.Connector, link *v1alpha1.ConnectorLink, from sources) Link {
	out := Link{
		ID: idOf(link), ConnectorID: idOf(conn), AgentName: string(link.Spec.Agent), FilesRequired: link.Spec.FilesRequired, Ready: v1alpha1.IsReady(link),
		CreatedAt: link.CreationTimestamp.UTC(), UpdatedAt: updatedAt(link),
	}
	out.Outbound.Value = showOutboundLink(conn, link, from)
	out.NotReadyReason, out.Message = unready(link)
	return out
}

// UnreadyAgent is a linked agent whose link is not in effect.
type UnreadyAgent struct {
	AgentName      string `json:"agent_name" doc:"The agent." example:"support"`
	NotReadyReason string `json:"not_ready_reason" doc:"Why its link is not in effect, in a word; see links." example:"agent_unknown"`
	Message        string `json:"message" doc:"Why its link is not in effect, with the remedy."`
}

// unready says why a link is not in effect, in a word and in a sentence; both are nil while it is.
func unready(link *v1alpha1.ConnectorLink) (reason, message *string) {
	if v1alpha1.IsReady(link) {
		return nil, nil
	}
	word := "progressing"
	if ready := link.Status.Condition(v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
		word = snakeCase(ready.Reason)
	}
	return &word, opt(whyNotReady(link))
}

// snakeCase is the reason of a condition as REST writes words.
func snakeCase(reason string) string {
	var b strings.Builder
	for i, r := range reason {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
