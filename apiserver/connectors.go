// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// Connector is the REST shape of a connector.
type Connector struct {
	ID             string           `json:"id" format:"uuid" doc:"The connector's id."`
	EnvironmentID  *string          `json:"environment_id" format:"uuid" doc:"The environment whose agents it connects; null when that is gone."`
	Name           string           `json:"name" doc:"Its name, unique in its environment; of one that a file without name defines the file without its ending." example:"Tickets"`
	Type           ConnectorType    `json:"type" doc:"What it is."`
	Mode           ConnectorMode    `json:"mode" doc:"In which direction it works."`
	Enabled        bool             `json:"enabled" doc:"Whether it works; false where somebody has disabled it, it is retired, or its environment was deleted."`
	DisabledReason *string          `json:"disabled_reason" doc:"Why its webhooks are refused, its schedule stands still, or it sends nothing, at present: disabled, retired, its environment deleted, or what keeps it from working although nobody disabled it; null while it works."`
	Config         ConnectorConfig  `json:"config" doc:"How it behaves; the shape depends on type and mode."`
	DefinedInCode  bool             `json:"defined_in_code" doc:"Whether the project's code defines it; it is changed there alone."`
	Retired        bool             `json:"retired" doc:"Whether it was removed from the project's code."`
	WebhookURL     *string          `json:"webhook_url" format:"uri" doc:"Where callers send to (inbound, sync); null for those that nobody calls."`
	Secret         *string          `json:"secret" doc:"What callers send as X-Service-Secret, or what a provider signs with; null without authentication, ******** when it is the project's own."`
	SigningSecret  *string          `json:"signing_secret" doc:"What deliveries are signed with (outbound), ******** when it is the project's own; null for others."`
	NextTickAt     *time.Time       `json:"next_tick_at" doc:"When a cron connector ticks next; null for others, and while it does not work."`
	LastTickAt     *time.Time       `json:"last_tick_at" doc:"The newest tick of a cron connector that was run or skipped; null for others, and before the first."`
	Delivering     Null[Delivering] `json:"delivering" doc:"How its deliveries go (outbound); null for others."`
	Agents         []string         `json:"agents" doc:"The linked agents, oldest link first."`
	UnreadyAgents  []UnreadyAgent   `json:"unready_agents" doc:"Those of them whose link is not in effect, and why; empty while all are."`
	CreatedAt      time.Time        `json:"created_at" doc:"When it was created."`
	UpdatedAt      time.Time        `json:"updated_at" doc:"When it was last changed."`
}

func (c Connector) audited() store.AuditObject {
	return store.AuditObject{Kind: "connector", ID: c.ID, Name: c.Name}
}

// ConnectorPath names a connector.
type ConnectorPath struct {
	ProjectPath
	ConnectorID ID `path:"connector_id" doc:"The connector."`
}

// listConnectors asks Kubernetes and the store a few times in all, however many
// connectors there are.
func (s *Server) listConnectors(ctx context.Context, c *caller, in *EnvironmentQuery) (answer[[]Connector], error) {
	environment, err := s.environment(ctx, c, in.EnvironmentID)
	var list []v1alpha1.Connector
	switch {
	case isNotFound(err) && c.reachesAll():
		environment = nil
		list, err = s.leftConnectors(ctx, c, in.EnvironmentID, err)
	case err == nil:
		list, err = s.connectorsOf(ctx, c, environment.Name)
	}
	if err != nil {
		return answer[[]Connector]{}, err
	}
	out := make([]Connector, 0, len(list))
	if len(list) == 0 {
		return plainly(out, nil)
	}
	links, err := s.links(ctx, c)
	if err != nil {
		return answer[[]Connector]{}, err
	}
	ids := make([]uuid.UUID, len(list))
	for i := range list {
		ids[i] = c.keyOf(&list[i]).ID
	}
	derivations, err := s.claims.DerivationKeys(ctx, c.projectID, ids)
	if err != nil {
		return answer[[]Connector]{}, fmt.Errorf("choosing the keys of the secrets of connectors: %w", err)
	}
	slices.SortFunc(list, func(a, b v1alpha1.Connector) int {
		return cmp.Or(compareNames(a.Title(), b.Title()), strings.Compare(a.Name, b.Name))
	})
	for i := range list {
		shown, err := s.showConnector(ctx, c, &list[i], environment, links[list[i].Name], derivations)
		if err != nil {
			return answer[[]Connector]{}, err
		}
		out = append(out, shown)
	}
	shown := make([]*Connector, len(out))
	for i := range out {
		shown[i] = &out[i]
	}
	return plainly(out, s.showPresent(ctx, c, list, shown...))
}

func (s *Server) getConnector(ctx context.Context, c *caller, in *ConnectorPath) (answer[Connector], error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return answer[Connector]{}, err
	}
	shown, _, err := s.describeConnector(ctx, c, conn)
	return answer[Connector]{Body: shown, ETag: etag(conn)}, err
}

// describeConnector reads what belongs to a connector and shows it all; it returns
// the links too.
func (s *Server) describeConnector(ctx context.Context, c *caller, conn *v1alpha1.Connector) (Connector, []v1alpha1.ConnectorLink, error) {
	environment, err := s.environmentOf(ctx, c, conn)
	if err != nil {
		return Connector{}, nil, err
	}
	links, err := s.linksOf(ctx, c, conn)
	if err != nil {
		return Connector{}, nil, err
	}
	shown, err := s.showConnector(ctx, c, conn, environment, links, nil)
	if err != nil {
		return Connector{}, nil, err
	}
	return shown, links, s.showPresent(ctx, c, []v1alpha1.Connector{*conn}, &shown)
}

// showPresent fills in what the store alone knows of connectors, with a question each kind.
func (s *Server) showPresent(ctx context.Context, c *caller, conns []v1alpha1.Connector, shown ...*Connector) error {
	for _, show := range []func(context.Context, *caller, []v1alpha1.Connector, []*Connector) error{
		s.showTicks, s.showRetired, s.showLeftBehind, s.showDelivering,
	} {
		if err := show(ctx, c, conns, shown); err != nil {
			return err
		}
	}
	return nil
}

// environmentOf is the environment of a connector; nil when it is gone.
func (s *Server) environmentOf(ctx context.Context, c *caller, conn *v1alpha1.Connector) (*v1alpha1.Environment, error) {
	return s.environmentNamed(ctx, c, conn.Spec.Environment)
}

// connectorsOf lists the connectors of an environment.
func (s *Server) connectorsOf(ctx context.Context, c *caller, environment string) ([]v1alpha1.Connector, error) {
	var list v1alpha1.ConnectorList
	err := s.list(ctx, c, store.KindConnector, &list, client.MatchingFields{"spec.environment": environment})
	return list.Items, err
}

// leftConnectors lists the connectors that an environment which is gone has left behind; where it has
// left none, there is none.
func (s *Server) leftConnectors(ctx context.Context, c *caller, environment ID, none error) ([]v1alpha1.Connector, error) {
	var connectors v1alpha1.ConnectorList
	if err := s.list(ctx, c, store.KindConnector, &connectors); err != nil {
		return nil, err
	}
	there, err := s.environments(ctx, c)
	if err != nil {
		return nil, err
	}
	of, err := s.store.ConnectorsOf(ctx, c.row(environment))
	if err != nil {
		return nil, fmt.Errorf("looking for the connectors of environment %s: %w", environment, err)
	}
	known := map[uuid.UUID]bool{}
	for _, id := range of {
		known[id] = true
	}
	left := slices.DeleteFunc(connectors.Items, func(conn v1alpha1.Connector) bool {
		stays := slices.ContainsFunc(there, func(e v1alpha1.Environment) bool { return e.Name == string(conn.Spec.Environment) })
		return stays || !known[c.keyOf(&conn).ID]
	})
	if len(left) == 0 {
		return nil, none
	}
	return left, nil
}

// showConnector is the REST shape; environment may be nil. What derivations do not
// tell, which may be nil too, is asked for.
func (s *Server) showConnector(
	ctx context.Context, c *caller, conn *v1alpha1.Connector, environment *v1alpha1.Environment, links []v1alpha1.ConnectorLink,
	derivations map[store.Derivation]string,
) (Connector, error) {
	out := Connector{
		ID: idOf(conn), Name: conn.Title(), Type: ConnectorType(conn.Type()), Mode: ConnectorMode(conn.Spec.Mode.Word()),
		Enabled: conn.IsEnabled(), DisabledReason: disabledReason(conn), Config: showConfig(conn),
		DefinedInCode: conn.DefinedInCode(), Agents: make([]string, 0, len(links)), UnreadyAgents: []UnreadyAgent{},
		CreatedAt: conn.CreationTimestamp.UTC(), UpdatedAt: updatedAt(conn),
	}
	if environment != nil {
		out.EnvironmentID = opt(idOf(environment))
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

// showSecrets fills in URL and secrets of a webhook.
func (s *Server) showSecrets(
	ctx context.Context, c *caller, conn *v1alpha1.Connector, derivations map[store.Derivation]string, out *Connector,
) error {
	if conn.Type() == v1alpha1.ConnectorCron {
		return nil // nothing is received, nothing is signed
	}
	id, err := uuid.Parse(out.ID)
	if err != nil {
		return fmt.Errorf("reading the id of connector %q: %w", conn.Name, err)
	}
	if conn.HasSecret() {
		secret, err := s.secretOf(ctx, c, conn, id, derivations)
		if err != nil {
			return err
		}
		if conn.Sends() {
			out.SigningSecret = &secret
			return nil
		}
		out.Secret = &secret
	}
	out.WebhookURL = opt(v1alpha1.WebhookURL(s.gatewayURL, c.projectID, id))
	return nil
}

// secretOf is the generated secret; a project's own is never shown.
func (s *Server) secretOf(
	ctx context.Context, c *caller, conn *v1alpha1.Connector, id uuid.UUID, derivations map[store.Derivation]string,
) (string, error) {
	if !conn.GeneratesSecret() {
		return masked, nil
	}
	of := seal.Generated{ProjectID: c.projectID, ConnectorID: id, Version: int64(conn.SecretVersionInEffect()),
		Standard: conn.Authentication() == v1alpha1.AuthenticationStandardWebhooks}
	key, known := derivations[store.Derivation{ConnectorID: id, Version: of.Version}]
	if !known {
		var err error
		if key, err = s.claims.DerivationKey(ctx, store.Key{ProjectID: c.projectID, ID: id}, of.Version); err != nil {
			return "", fmt.Errorf("choosing the key of the secret of connector %q: %w", conn.Name, err)
		}
	}
	derive := s.platform.Secret
	if conn.Sends() {
		derive = s.platform.SigningSecret
	}
	secret, err := derive(key, of)
	if err != nil {
		return "", fmt.Errorf("deriving the secret of connector %q: %w", conn.Name, err)
	}
	return secret, nil
}

// disabledReason says why the gateway refuses a connector's webhooks, or why it does
// not refuse them yet although the connector is disabled; nil while it takes them as
// it should, whatever else there is to say of it.
func disabledReason(conn *v1alpha1.Connector) *string {
	still := "webhooks are taken"
	switch {
	case conn.Type() == v1alpha1.ConnectorCron:
		still = "its schedule goes on"
	case conn.Sends():
		still = "results are sent"
	}
	switch takes := conn.TakesEvents(); {
	case !conn.IsEnabled() && takes:
		return opt("to be disabled; until then " + still + ": " + whyNotReady(conn))
	case !conn.IsEnabled():
		return opt("disabled")
	case takes:
		return nil
	default:
		return opt(whyNotReady(conn))
	}
}

// whyNotReady is what a controller says of an object that is not ready.
func whyNotReady(o v1alpha1.ConditionedObject) string {
	ready := o.CommonStatus().Condition(v1alpha1.ConditionReady)
	if ready == nil || ready.Message == "" || ready.Status == metav1.ConditionTrue {
		return "the platform has not taken it up yet"
	}
	return ready.Message
}
