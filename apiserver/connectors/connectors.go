// SPDX-License-Identifier: Apache-2.0

// Package connectors serves connectors, their links to agents, and the requests that they rejected.
package connectors

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// API serves connectors.
type API struct {
	Service     *rest.Service
	Store       Store
	Links       *Links
	Keys        *secrets.Keys
	Derivations Derivations
	// GatewayURL is the public URL of the gateway.
	GatewayURL string
}

// Store has the methods of the store that connectors use.
type Store interface {
	store.Catalog
	// TickTimes is a method of store.Ticks.
	TickTimes(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[uuid.UUID]store.TickTimes, error)
	// DestinationsOf is a method of store.Destinations, ResumeDestination of store.Deliveries.
	DestinationsOf(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[uuid.UUID]store.Destination, error)
	ResumeDestination(ctx context.Context, connector store.Key) error
}

// Section has the endpoints of connectors; API serves them.
var Section = rest.Section[*API]{
	Complete: describeConfigs,
	Name:     "connectors", Doc: "Webhooks and schedules, their links to agents, and their events and deliveries.",
	Endpoints: []rest.EndpointOf[*API]{
		createConnector, listConnectors, getConnector, updateConnector, deleteConnector, rotateSecret},
}

// Connector is the REST shape of a connector.
type Connector struct {
	ID             string                `json:"id" format:"uuid" doc:"The connector's ID."`
	EnvironmentID  *string               `json:"environment_id" format:"uuid" doc:"The connector's environment; null if it was deleted."`
	Name           string                `json:"name" doc:"The connector's name, unique in its environment. If a file of the code gives no name, the file name without its extension." example:"Tickets"`
	Type           rest.ConnectorType    `json:"type" doc:"The connector's type."`
	Mode           rest.ConnectorMode    `json:"mode" doc:"The connector's direction."`
	Enabled        bool                  `json:"enabled" doc:"Whether the connector is enabled; false if it was disabled or retired, or if its environment was deleted."`
	DisabledReason *string               `json:"disabled_reason" doc:"Why the connector does not work at present: disabled, retired, environment deleted, or another problem; null while it works."`
	Config         ConnectorConfig       `json:"config" doc:"The connector's configuration, whose fields depend on type and mode."`
	DefinedInCode  bool                  `json:"defined_in_code" doc:"Whether the project's code defines the connector. Only the code can change it then."`
	Retired        bool                  `json:"retired" doc:"Whether the connector was removed from the project's code."`
	WebhookURL     *string               `json:"webhook_url" format:"uri" doc:"The URL for callers (inbound, sync); null for other connectors."`
	Secret         *string               `json:"secret" doc:"The secret that callers send as X-Service-Secret, or that a provider signs with. Null without authentication; ******** for the project's own secret."`
	SigningSecret  *string               `json:"signing_secret" doc:"The secret that signs deliveries (outbound); ******** for the project's own secret; null for other connectors."`
	NextTickAt     *time.Time            `json:"next_tick_at" doc:"The next tick of a cron connector; null for other connectors and while the connector does not work."`
	LastTickAt     *time.Time            `json:"last_tick_at" doc:"The newest tick of a cron connector that ran or was skipped; null for other connectors and before the first tick."`
	Delivering     rest.Null[Delivering] `json:"delivering" doc:"The state of the deliveries (outbound); null for other connectors."`
	Agents         []string              `json:"agents" doc:"The linked agents, the agent of the oldest link first."`
	UnreadyAgents  []UnreadyAgent        `json:"unready_agents" doc:"Linked agents whose link is not in effect, with the reason; empty if all links are in effect."`
	CreatedAt      time.Time             `json:"created_at" doc:"When the connector was created."`
	UpdatedAt      time.Time             `json:"updated_at" doc:"When the connector was last changed."`
}

func (Connector) Doc() string { return "A connector links agents to the outside world." }

func (c Connector) Audited() store.AuditObject {
	return store.AuditObject{Kind: "connector", ID: c.ID, Name: c.Name}
}

var listConnectors = rest.Handle((*API).listConnectors, rest.Endpoint{
	Method: rest.Get, Path: "/connectors", ID: "listConnectors",
	Permissions: rest.Requires("connectors.view"), Errors: rest.ReadErrors,
	Summary: "List connectors",
	Doc: "Returns the connectors by the names of their Kubernetes objects. Generated secrets are shown; the project's own " +
		"credentials are `********`. Keys that reach all environments can also list the connectors of a deleted environment.",
	Example: rest.Example{Path: "/connectors?environment_id={environment}"},
})

// listConnectors makes a fixed number of requests to Kubernetes and the store, regardless of the number of connectors.
func (s *API) listConnectors(ctx context.Context, c *rest.Caller, in *rest.EnvironmentQuery) (rest.Response[[]Connector], error) {
	environment, err := s.Service.Environment(ctx, c, in.EnvironmentID)
	var list []v1alpha1.Connector
	switch {
	case rest.IsNotFound(err) && c.ReachesAll():
		environment = nil
		list, err = s.connectorsOfDeleted(ctx, c, in.EnvironmentID, err)
	case err == nil:
		list, err = s.Service.ConnectorsOf(ctx, c, environment.Name)
	}
	if err != nil {
		return rest.Response[[]Connector]{}, err
	}
	out := make([]Connector, 0, len(list))
	if len(list) == 0 {
		return rest.NewResponse(out, nil)
	}
	links, err := s.Links.links(ctx, c)
	if err != nil {
		return rest.Response[[]Connector]{}, err
	}
	ids := make([]uuid.UUID, len(list))
	for i := range list {
		ids[i] = c.ObjectKey(&list[i]).ID
	}
	derivations, err := s.Derivations.DerivationKeys(ctx, c.ProjectID, ids)
	if err != nil {
		return rest.Response[[]Connector]{}, fmt.Errorf("choosing the keys of the secrets of connectors: %w", err)
	}
	slices.SortFunc(list, func(a, b v1alpha1.Connector) int {
		return cmp.Or(rest.CompareNames(a.Title(), b.Title()), strings.Compare(a.Name, b.Name))
	})
	for i := range list {
		shown, err := s.showConnector(ctx, c, &list[i], environment, links[list[i].Name], derivations)
		if err != nil {
			return rest.Response[[]Connector]{}, err
		}
		out = append(out, shown)
	}
	shown := make([]*Connector, len(out))
	for i := range out {
		shown[i] = &out[i]
	}
	return rest.NewResponse(out, s.showPresent(ctx, c, list, shown...))
}

var getConnector = rest.Handle((*API).getConnector, rest.Endpoint{
	Method: rest.Get, Path: "/connectors/{connector_id}", ID: "getConnector",
	Permissions: rest.Requires("connectors.view"), Errors: rest.ReadErrors,
	HasETag: true,
	Summary: "Get a connector",
	Doc: "Returns the connector with its URL and its secret. Generated secrets are shown; the project's own credentials are " +
		"`********`.",
	Example: rest.Example{Path: "/connectors/{connector}"},
})

func (s *API) getConnector(ctx context.Context, c *rest.Caller, in *rest.ConnectorPath) (rest.Response[Connector], error) {
	conn, err := s.Service.Connector(ctx, c, in.ConnectorID)
	if err != nil {
		return rest.Response[Connector]{}, err
	}
	shown, _, err := s.describeConnector(ctx, c, conn)
	return rest.Response[Connector]{Body: shown, ETag: rest.ETag(conn)}, err
}

// describeConnector returns a connector with everything that belongs to it, and its links.
func (s *API) describeConnector(ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector) (Connector, []v1alpha1.ConnectorLink, error) {
	environment, err := s.environmentOf(ctx, c, conn)
	if err != nil {
		return Connector{}, nil, err
	}
	links, err := s.Links.linksOf(ctx, c, conn)
	if err != nil {
		return Connector{}, nil, err
	}
	shown, err := s.showConnector(ctx, c, conn, environment, links, nil)
	if err != nil {
		return Connector{}, nil, err
	}
	return shown, links, s.showPresent(ctx, c, []v1alpha1.Connector{*conn}, &shown)
}

// showPresent fills in the fields from the store, with one query per kind of field.
func (s *API) showPresent(ctx context.Context, c *rest.Caller, conns []v1alpha1.Connector, shown ...*Connector) error {
	for _, show := range []func(context.Context, *rest.Caller, []v1alpha1.Connector, []*Connector) error{
		s.showTicks, s.showRetired, s.showDeletedEnvironment, s.showDelivering,
	} {
		if err := show(ctx, c, conns, shown); err != nil {
			return err
		}
	}
	return nil
}

// environmentOf returns the environment of a connector, or nil if it was deleted.
func (s *API) environmentOf(ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector) (*v1alpha1.Environment, error) {
	return s.Service.EnvironmentByName(ctx, c, conn.Spec.Environment)
}

// connectorsOfDeleted lists the connectors of a deleted environment. It returns 404 if there are none.
func (s *API) connectorsOfDeleted(ctx context.Context, c *rest.Caller, environment rest.ID, none error) ([]v1alpha1.Connector, error) {
	var connectors v1alpha1.ConnectorList
	if err := s.Service.List(ctx, c, store.KindConnector, &connectors); err != nil {
		return nil, err
	}
	there, err := s.Service.Environments(ctx, c)
	if err != nil {
		return nil, err
	}
	of, err := s.Store.ConnectorsOf(ctx, c.RowKey(environment))
	if err != nil {
		return nil, fmt.Errorf("looking for the connectors of environment %s: %w", environment, err)
	}
	known := map[uuid.UUID]bool{}
	for _, id := range of {
		known[id] = true
	}
	left := slices.DeleteFunc(connectors.Items, func(conn v1alpha1.Connector) bool {
		stays := slices.ContainsFunc(there, func(e v1alpha1.Environment) bool { return e.Name == string(conn.Spec.Environment) })
		return stays || !known[c.ObjectKey(&conn).ID]
	})
	if len(left) == 0 {
		return nil, none
	}
	return left, nil
}

// showConnector returns the REST shape. environment and derivations can be nil; keys that are not in derivations are
// read from the store.
func (s *API) showConnector(
	ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector, environment *v1alpha1.Environment, links []v1alpha1.ConnectorLink,
	derivations map[store.Derivation]string,
) (Connector, error) {
	out := Connector{
		ID: rest.ObjectID(conn), Name: conn.Title(), Type: rest.ConnectorType(conn.Type()), Mode: rest.ConnectorMode(conn.Spec.Mode.EnumValue()),
		Enabled: conn.IsEnabled(), DisabledReason: disabledReason(conn), Config: showConfig(conn),
		DefinedInCode: conn.DefinedInCode(), Agents: make([]string, 0, len(links)), UnreadyAgents: []UnreadyAgent{},
		CreatedAt: conn.CreationTimestamp.UTC(), UpdatedAt: rest.UpdatedAt(conn),
	}
	if environment != nil {
		out.EnvironmentID = rest.Optional(rest.ObjectID(environment))
	}
	for i := range links {
		if refusal(&links[i]) != nil {
			continue
		}
		out.Agents = append(out.Agents, string(links[i].Spec.Agent))
		if reason, message := unready(&links[i]); reason != nil {
			agent := UnreadyAgent{AgentName: string(links[i].Spec.Agent), NotReadyReason: *reason, Message: *message}
			out.UnreadyAgents = append(out.UnreadyAgents, agent)
		}
	}
	var err error
	if out.Retired, err = s.retired(ctx, c, conn); err != nil {
		return out, err
	}
	return out, s.showSecrets(ctx, c, conn, derivations, &out)
}

// showSecrets fills in the URL and the secrets of a webhook.
func (s *API) showSecrets(
	ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector, derivations map[store.Derivation]string, out *Connector,
) error {
	kind := crd.KindOf(conn)
	if !kind.HasCallers() && !kind.Sends() {
		return nil // no webhook and no signature
	}
	id, err := uuid.Parse(out.ID)
	if err != nil {
		return fmt.Errorf("reading the id of connector %q: %w", conn.Name, err)
	}
	if crd.HasSecret(conn) {
		secret, err := s.secretOf(ctx, c, conn, id, derivations)
		if err != nil {
			return err
		}
		if kind.Sends() {
			out.SigningSecret = &secret
			return nil
		}
		out.Secret = &secret
	}
	out.WebhookURL = rest.Optional(v1alpha1.WebhookURL(s.GatewayURL, c.ProjectID, id))
	return nil
}

// secretOf returns the generated secret. A secret of the project is never shown.
func (s *API) secretOf(
	ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector, id uuid.UUID, derivations map[store.Derivation]string,
) (string, error) {
	if !crd.GeneratesSecret(conn) {
		return rest.Masked, nil
	}
	of := secrets.Generated{ProjectID: c.ProjectID, ConnectorID: id, Version: int64(conn.SecretVersionInEffect()),
		Standard: conn.Authentication() == v1alpha1.AuthenticationStandardWebhooks}
	key, known := derivations[store.Derivation{ConnectorID: id, Version: of.Version}]
	if !known {
		var err error
		if key, err = s.Derivations.DerivationKey(ctx, store.Key{ProjectID: c.ProjectID, ID: id}, of.Version); err != nil {
			return "", fmt.Errorf("choosing the key of the secret of connector %q: %w", conn.Name, err)
		}
	}
	derive := s.Keys.Secret
	if conn.Sends() {
		derive = s.Keys.SigningSecret
	}
	secret, err := derive(key, of)
	if err != nil {
		return "", fmt.Errorf("deriving the secret of connector %q: %w", conn.Name, err)
	}
	return secret, nil
}

// disabledReason returns why the gateway rejects a connector's webhooks, or why it still accepts the webhooks of a
// disabled connector. It returns nil if an enabled connector accepts webhooks.
func disabledReason(conn *v1alpha1.Connector) *string {
	switch takes := conn.TakesEvents(); {
	case !conn.IsEnabled() && takes:
		return rest.Optional("being disabled; until then " + crd.KindOf(conn).Works() + ": " + rest.NotReadyMessage(conn))
	case !conn.IsEnabled():
		return rest.Optional("disabled")
	case takes:
		return nil
	default:
		return rest.Optional(rest.NotReadyMessage(conn))
	}
}

func (c *Connector) Texts() []*string {
	out := rest.PresentTexts(c.DisabledReason)
	for i := range c.UnreadyAgents {
		out = append(out, &c.UnreadyAgents[i].Message)
	}
	return out
}

// Derivations are the keys that derive generated secrets.
type Derivations interface {
	// DerivationKey is DerivationKey of store.KeyLedger.
	DerivationKey(ctx context.Context, connector store.Key, version int64) (string, error)
	// DerivationKeys is DerivationKeys of store.KeyLedger.
	DerivationKeys(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[store.Derivation]string, error)
}
