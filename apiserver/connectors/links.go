// SPDX-License-Identifier: Apache-2.0

package connectors

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
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// Links serves the links of connectors.
type Links struct {
	Service    *rest.Service
	Connectors *API
}

// LinkSection has the endpoints of links; Links serves them.
var LinkSection = rest.Section[*Links]{
	Name: "connectors",
	Endpoints: []rest.EndpointOf[*Links]{
		createLink, listLinks, getLink, updateLink, deleteLink,
	},
}

// Link is the REST shape of a connector link.
type Link struct {
	ID            string                  `json:"id" format:"uuid" doc:"The link's ID."`
	ConnectorID   string                  `json:"connector_id" format:"uuid" doc:"The connector."`
	AgentName     string                  `json:"agent_name" doc:"The agent that events start, or whose results are sent." example:"support"`
	FilesRequired bool                    `json:"files_required" doc:"Whether runs of an event fail if it has no attachment or if an attachment is omitted."`
	Outbound      rest.Null[OutboundLink] `json:"outbound" doc:"The rules for sending results; null unless the connector is outbound."`
	Ready         bool                    `json:"ready" doc:"Whether the link is in effect: events of the connector start the agent, or the connector sends the agent's results."`
	// NotReadyReason is the reason of a condition in snake case.
	NotReadyReason *string   `json:"not_ready_reason" doc:"Why the link is not in effect, as a code; null if it is. With agent_unknown the live deployment has no such agent, and events start runs that fail. With middleware_missing no middleware of the agent sends over the link. New codes can be added." example:"agent_unknown"`
	Message        *string   `json:"message" doc:"Why the link is not in effect, with the remedy; null if it is."`
	CreatedAt      time.Time `json:"created_at" doc:"When the link was created."`
	UpdatedAt      time.Time `json:"updated_at" doc:"When the link was last changed."`
}

func (Link) Doc() string {
	return "A link connects an agent to a connector: events of the connector start the agent, or the connector sends the agent's results."
}

func (l Link) Audited() store.AuditObject {
	return store.AuditObject{Kind: "link", ID: l.ID, Name: l.AgentName}
}

// LinkCreate is a link to create.
type LinkCreate struct {
	AgentName string `json:"agent_name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" patternDescription:"lower-case letters, digits and inner dashes" doc:"The agent's name in its YAML file. The agent need not be deployed yet." example:"support"`
	LinkSettings
}

func (LinkCreate) Doc() string { return "The link to create." }

// LinkSettings are the settings of a link that can change.
type LinkSettings struct {
	FilesRequired *bool              `json:"files_required,omitempty" doc:"Whether runs of an event fail if it has no attachment or if an attachment is omitted. Default: false."`
	Outbound      *OutboundLinkInput `json:"outbound,omitempty" doc:"The rules for sending results, for links to outbound connectors. Default: results of all completed runs."`
}

// LinkUpdate has the new settings of a link.
type LinkUpdate struct{ LinkSettings }

func (LinkUpdate) Doc() string {
	return "The new settings of a link, which replace all current settings."
}

// LinkCreateInput is the request that creates a link.
type LinkCreateInput struct {
	rest.ConnectorPath
	Body LinkCreate
}

// LinkPath names a link.
type LinkPath struct {
	rest.ConnectorPath
	LinkID rest.ID `path:"link_id" resource:"link" doc:"The link."`
}

// LinkUpdateInput is the request that replaces the settings of a link.
type LinkUpdateInput struct {
	LinkPath
	Body LinkUpdate
}

var listLinks = rest.Handle((*Links).listLinks, rest.Endpoint{
	Method: rest.Get, Path: "/connectors/{connector_id}/links", ID: "listLinks",
	Permissions: rest.Requires("connectors.view"), Errors: rest.ReadErrors,
	Summary: "List the links of a connector",
	Doc:     "Returns the oldest link first.",
	Example: rest.Example{Path: "/connectors/{connector}/links"},
})

func (s *Links) listLinks(ctx context.Context, c *rest.Caller, in *rest.ConnectorPath) (rest.Response[[]Link], error) {
	conn, err := s.Service.Connector(ctx, c, in.ConnectorID)
	if err != nil {
		return rest.Response[[]Link]{}, err
	}
	links, err := s.linksOf(ctx, c, conn)
	if err != nil {
		return rest.Response[[]Link]{}, err
	}
	from, err := s.sourcesOf(ctx, c, conn)
	if err != nil {
		return rest.Response[[]Link]{}, err
	}
	return rest.NewResponse(rest.ShowAll(links, func(l v1alpha1.ConnectorLink) Link { return showLink(conn, &l, from) }), nil)
}

var getLink = rest.Handle((*Links).getLink, rest.Endpoint{
	Method: rest.Get, Path: "/connectors/{connector_id}/links/{link_id}", ID: "getLink",
	Permissions: rest.Requires("connectors.view"), Errors: rest.ReadErrors,
	HasETag: true,
	Summary: "Get a link",
	Doc:     "Returns the link and whether it is in effect.",
	Example: rest.Example{Path: "/connectors/{connector}/links/{link}"},
})

func (s *Links) getLink(ctx context.Context, c *rest.Caller, in *LinkPath) (rest.Response[Link], error) {
	conn, err := s.Service.Connector(ctx, c, in.ConnectorID)
	if err != nil {
		return rest.Response[Link]{}, err
	}
	link, err := s.link(ctx, c, conn, in.LinkID)
	if err != nil {
		return rest.Response[Link]{}, err
	}
	from, err := s.sourcesOf(ctx, c, conn)
	return rest.Response[Link]{Body: showLink(conn, link, from), ETag: rest.ETag(link)}, err
}

// link finds a link of a connector by ID.
func (s *Links) link(ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector, id rest.ID) (*v1alpha1.ConnectorLink, error) {
	link := &v1alpha1.ConnectorLink{}
	if err := s.Service.GetByID(ctx, c, "link", id, link); err != nil {
		return nil, err
	}
	if string(link.Spec.Connector) != conn.Name {
		return nil, rest.NotFound("link")
	}
	return link, nil
}

var createLink = rest.Handle((*Links).createLink, rest.Endpoint{
	Method: rest.Post, Path: "/connectors/{connector_id}/links", ID: "createLink",
	Permissions: rest.Requires("connectors.link"), Effect: rest.EffectCreate, Status: 201, Errors: rest.CreateErrors,
	HasETag: true,
	Summary: "Link an agent to a connector",
	Doc: "Events of the connector now start the agent, or the connector now sends the agent's results. The call returns once " +
		"the platform has processed the link, or after two seconds. `ready` and `message` say whether the link is in effect. " +
		"Returns 409 if the project's code defines the connector.",
	Example: rest.Example{Path: "/connectors/{connector}/links", Body: `{"agent_name":"other"}`},
})

func (s *Links) createLink(ctx context.Context, c *rest.Caller, in *LinkCreateInput) (rest.Response[Link], error) {
	conn, err := s.Service.Connector(ctx, c, in.ConnectorID)
	if err != nil {
		return rest.Response[Link]{}, err
	}
	if conn.DefinedInCode() {
		return rest.Response[Link]{}, errLinkInCode(conn)
	}
	if err := s.Connectors.mustHaveEnvironment(ctx, c, conn); err != nil {
		return rest.Response[Link]{}, err
	}
	from, err := s.sourcesOf(ctx, c, conn)
	if err != nil {
		return rest.Response[Link]{}, err
	}
	link := newLink(ctx, c, conn, in.Body.AgentName)
	if err := in.Body.applyTo(&link.Spec, conn, from); err != nil {
		return rest.Response[Link]{}, err
	}
	links, err := s.linksOf(ctx, c, conn)
	if err != nil {
		return rest.Response[Link]{}, err
	}
	for _, l := range links {
		if l.Spec.Agent == link.Spec.Agent && l.Name != link.Name {
			return rest.Response[Link]{}, linkedAlready
		}
	}
	made := rest.Creation{Service: s.Service, Caller: c}
	if err := makeLink(ctx, &made, link); err != nil {
		made.Undo(ctx, err)
		return rest.Response[Link]{}, err
	}
	shown := showLink(conn, link, from)
	return rest.CreatedResponse(ctx, shown, link, "/connectors/"+shown.ConnectorID+"/links/"+shown.ID), nil
}

var updateLink = rest.Handle((*Links).updateLink, rest.Endpoint{
	Method: rest.Patch, Path: "/connectors/{connector_id}/links/{link_id}", ID: "updateLink",
	Permissions: rest.Requires("connectors.link"), Effect: rest.EffectUpdate, Errors: rest.UpdateErrors,
	HasETag: true,
	Summary: "Replace the settings of a link",
	Doc: "Settings that the request leaves out get their defaults. The agent never changes; create another link instead. " +
		"Returns 409 if the project's code defines the connector.",
	Example: rest.Example{Path: "/connectors/{connector}/links/{link}", Body: `{"files_required":false}`},
})

// updateLink replaces the settings of a link. Omitted settings get their defaults.
func (s *Links) updateLink(ctx context.Context, c *rest.Caller, in *LinkUpdateInput) (rest.Response[Link], error) {
	conn, err := s.Service.Connector(ctx, c, in.ConnectorID)
	if err != nil {
		return rest.Response[Link]{}, err
	}
	link, err := s.link(ctx, c, conn, in.LinkID)
	if err != nil {
		return rest.Response[Link]{}, err
	}
	from, err := s.sourcesOf(ctx, c, conn)
	if err != nil {
		return rest.Response[Link]{}, err
	}
	before := showLink(conn, link, from)
	var was *v1alpha1.ConnectorLink
	repeated, err := s.Service.UpdateObject(ctx, c, link, func() error {
		if conn.DefinedInCode() {
			return errLinkInCode(conn)
		}
		if err := s.Connectors.mustHaveEnvironment(ctx, c, conn); err != nil {
			return err
		}
		was = link.DeepCopy()
		return in.Body.applyTo(&link.Spec, conn, from)
	})
	if err != nil {
		return rest.Response[Link]{}, err
	}
	s.Service.WaitReady(ctx, link)
	if refused := refusal(link); refused != nil && !repeated {
		s.Service.Revert(ctx, link, func() { link.Spec, link.Annotations = *was.Spec.DeepCopy(), was.Annotations })
		return rest.Response[Link]{}, refused
	}
	shown := showLink(conn, link, from)
	rest.RecordChange(ctx, shown.Audited(), before, shown)
	return rest.Response[Link]{Body: shown, ETag: rest.ETag(link)}, nil
}

// makeLink creates a link.
func makeLink(ctx context.Context, n *rest.Creation, link *v1alpha1.ConnectorLink) error {
	if err := n.Create(ctx, link); err != nil {
		return err
	}
	n.Service.WaitReady(ctx, link)
	return refusal(link)
}

// refusal returns why the platform rejects a link, or nil.
func refusal(link *v1alpha1.ConnectorLink) error {
	switch {
	case rest.IsStalledBy(link, v1alpha1.ReasonDuplicateLink):
		return linkedAlready
	case rest.IsStalledBy(link, v1alpha1.ReasonLimitReached):
		return rest.NewProblem(http.StatusConflict, httpserver.CodeLimitReached,
			fmt.Sprintf("the connector has reached its limit of %d links, or the agent its limit of %d links to outbound connectors in the environment",
				store.MaxLinks, store.MaxOutboundLinks))
	case rest.IsStalledBy(link, v1alpha1.ReasonActionNameTaken):
		return rest.NewProblem(http.StatusConflict, httpserver.CodeNameTaken, "another tool of the agent in the environment has this action_name; choose another")
	default:
		return nil
	}
}

var linkedAlready = rest.NewProblem(http.StatusConflict, httpserver.CodeAlreadyExists, "the agent is already linked to the connector")

// newLink returns a link between an agent and a connector, with a new ID and name.
func newLink(ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector, agent string) *v1alpha1.ConnectorLink {
	meta, id := c.NewMeta(ctx, "link", conn.Title()+"-"+agent)
	return &v1alpha1.ConnectorLink{ObjectMeta: meta, Spec: v1alpha1.ConnectorLinkSpec{
		ID: id, Connector: v1alpha1.ConnectorName(conn.Name), Agent: v1alpha1.AgentName(agent),
	}}
}

// linksOf lists the links of a connector, oldest first.
func (s *Links) linksOf(ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector) ([]v1alpha1.ConnectorLink, error) {
	links, err := s.links(ctx, c, client.MatchingFields{"spec.connector": conn.Name})
	return links[conn.Name], err
}

// AcceptedLinks lists the links of the project that the platform has not rejected, by the name of their connector.
func (s *Links) AcceptedLinks(ctx context.Context, c *rest.Caller) (map[string][]v1alpha1.ConnectorLink, error) {
	all, err := s.links(ctx, c)
	for connector, links := range all {
		all[connector] = slices.DeleteFunc(links, func(link v1alpha1.ConnectorLink) bool { return refusal(&link) != nil })
	}
	return all, err
}

// links lists links by the name of their connector, oldest first, with one request for all connectors.
func (s *Links) links(ctx context.Context, c *rest.Caller, opts ...client.ListOption) (map[string][]v1alpha1.ConnectorLink, error) {
	var list v1alpha1.ConnectorLinkList
	if err := s.Service.List(ctx, c, store.KindConnectorLink, &list, opts...); err != nil {
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
		ID: rest.ObjectID(link), ConnectorID: rest.ObjectID(conn), AgentName: string(link.Spec.Agent), FilesRequired: link.Spec.FilesRequired, Ready: v1alpha1.IsReady(link),
		CreatedAt: link.CreationTimestamp.UTC(), UpdatedAt: rest.UpdatedAt(link),
	}
	out.Outbound.Value = showOutboundLink(conn, link, from)
	out.NotReadyReason, out.Message = unready(link)
	return out
}

// UnreadyAgent is a linked agent whose link is not in effect.
type UnreadyAgent struct {
	AgentName      string `json:"agent_name" doc:"The agent." example:"support"`
	NotReadyReason string `json:"not_ready_reason" doc:"Why the link is not in effect, as a code; see links." example:"agent_unknown"`
	Message        string `json:"message" doc:"Why the link is not in effect, with the remedy."`
}

func (UnreadyAgent) Doc() string {
	return "A linked agent whose link is not in effect, with the reason."
}

// unready returns reason and message of a link that is not in effect, or nil.
func unready(link *v1alpha1.ConnectorLink) (reason, message *string) {
	if v1alpha1.IsReady(link) {
		return nil, nil
	}
	word := "progressing"
	if ready := link.Status.Condition(v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
		word = snakeCase(ready.Reason)
	}
	return &word, rest.Optional(rest.NotReadyMessage(link))
}

// snakeCase returns the reason of a condition in snake case.
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

func (l *Link) Texts() []*string { return rest.PresentTexts(l.Message) }
