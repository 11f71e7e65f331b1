// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// Connector is the REST shape of a connector.
type Connector struct {
	ID             string         `json:"id" format:"uuid"`
	EnvironmentID  *string        `json:"environment_id" format:"uuid" doc:"null when the environment is gone."`
	Name           string         `json:"name"`
	Type           string         `json:"type" enum:"webhook,cron"`
	Mode           string         `json:"mode" enum:"inbound,sync,outbound"`
	Enabled        bool           `json:"enabled"`
	DisabledReason *string        `json:"disabled_reason" doc:"Why it does not work although nobody disabled it, or that somebody did."`
	Config         map[string]any `json:"config" doc:"Depends on type and mode; credentials are ********."`
	DefinedInCode  bool           `json:"defined_in_code"`
	Retired        bool           `json:"retired"`
	WebhookURL     *string        `json:"webhook_url" doc:"Where callers send to (inbound, sync)."`
	Secret         *string        `json:"secret" doc:"What callers send (inbound, sync); ******** when it is the project's own."`
	SigningSecret  *string        `json:"signing_secret" doc:"What deliveries are signed with (outbound)."`
	Agents         []string       `json:"agents" nullable:"false" doc:"The linked agents, oldest link first."`
	CreatedAt      time.Time      `json:"created_at"`
	UpdatedAt      time.Time      `json:"updated_at"`
}

func (c Connector) audited() store.AuditObject {
	return store.AuditObject{Kind: "connector", ID: c.ID, Name: c.Name}
}

// ConnectorPath names a connector.
type ConnectorPath struct {
	ProjectPath
	ConnectorID string `path:"connector_id" format:"uuid"`
}

func (s *Server) listConnectors(ctx context.Context, c *caller, in *EnvironmentQuery) ([]Connector, error) {
	environment, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return nil, err
	}
	list, err := s.connectorsOf(ctx, c, environment.Name)
	if err != nil {
		return nil, err
	}
	links, err := s.links(ctx, c)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b v1alpha1.Connector) int { return strings.Compare(a.Name, b.Name) })
	out := make([]Connector, 0, len(list))
	for i := range list {
		shown, err := s.showConnector(ctx, c, &list[i], environment, links[list[i].Name])
		if err != nil {
			return nil, err
		}
		out = append(out, shown)
	}
	return out, nil
}

func (s *Server) getConnector(ctx context.Context, c *caller, in *ConnectorPath) (Connector, error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return Connector{}, err
	}
	environment, err := s.environmentOf(ctx, c, conn)
	if err != nil {
		return Connector{}, err
	}
	links, err := s.linksOf(ctx, c, conn)
	if err != nil {
		return Connector{}, err
	}
	return s.showConnector(ctx, c, conn, environment, links)
}

// environmentOf is the environment of a connector; nil when it is gone.
func (s *Server) environmentOf(ctx context.Context, c *caller, conn *v1alpha1.Connector) (*v1alpha1.Environment, error) {
	var list v1alpha1.EnvironmentList
	name := client.MatchingFields{"metadata.name": string(conn.Spec.Environment)}
	if err := s.list(ctx, c, store.KindEnvironment, &list, name); err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}

// connectorsOf lists the connectors of an environment.
func (s *Server) connectorsOf(ctx context.Context, c *caller, environment string) ([]v1alpha1.Connector, error) {
	var list v1alpha1.ConnectorList
	err := s.list(ctx, c, store.KindConnector, &list, client.MatchingFields{"spec.environment": environment})
	return list.Items, err
}

// showConnector is the REST shape; environment may be nil.
func (s *Server) showConnector(
	ctx context.Context, c *caller, conn *v1alpha1.Connector, environment *v1alpha1.Environment, links []v1alpha1.ConnectorLink,
) (Connector, error) {
	out := Connector{
		ID: idOf(conn), Name: conn.Title(), Type: string(conn.Type()), Mode: string(conn.Spec.Mode),
		Enabled: conn.IsEnabled(), DisabledReason: disabledReason(conn), Config: showConfig(conn),
		DefinedInCode: definedInCode(conn), Agents: make([]string, 0, len(links)),
		CreatedAt: conn.CreationTimestamp.UTC(), UpdatedAt: updatedAt(conn),
	}
	if environment != nil {
		out.EnvironmentID = opt(idOf(environment))
	}
	for _, link := range links {
		out.Agents = append(out.Agents, string(link.Spec.Agent))
	}
	return out, s.showSecrets(ctx, c, conn, &out)
}

// showSecrets fills in URL and secrets of a webhook.
func (s *Server) showSecrets(ctx context.Context, c *caller, conn *v1alpha1.Connector, out *Connector) error {
	if conn.Spec.Mode == v1alpha1.ModeOutbound {
		return nil // not supported: nothing is received, nothing is signed
	}
	id, err := uuid.Parse(out.ID)
	if err != nil {
		return fmt.Errorf("reading the id of connector %q: %w", conn.Name, err)
	}
	secret, err := s.secretOf(ctx, c, conn, id)
	if err != nil {
		return err
	}
	if conn.RequiresAuthentication() {
		out.Secret = &secret
	}
	out.WebhookURL = opt(s.gatewayURL + "/hooks/" + c.projectID.String() + "/" + out.ID)
	return nil
}

// secretOf is the generated secret; a project's own is never shown.
func (s *Server) secretOf(ctx context.Context, c *caller, conn *v1alpha1.Connector, id uuid.UUID) (string, error) {
	if conn.Spec.SecretRef != nil {
		return masked, nil
	}
	of := seal.Generated{ProjectID: c.projectID, ConnectorID: id, Version: int64(conn.SecretVersion())}
	key, err := s.claims.DerivationKey(ctx, store.Key{ProjectID: c.projectID, ID: id}, of.Version)
	if err != nil {
		return "", fmt.Errorf("choosing the key of the secret of connector %q: %w", conn.Name, err)
	}
	secret, err := s.platform.Secret(key, of)
	if err != nil {
		return "", fmt.Errorf("deriving the secret of connector %q: %w", conn.Name, err)
	}
	return secret, nil
}

// disabledReason says why a connector does not work; nil while it does.
func disabledReason(conn *v1alpha1.Connector) *string {
	switch {
	case !conn.IsEnabled():
		return opt("disabled")
	case conn.IsStalled():
		return opt(conn.Status.Condition(v1alpha1.ConditionStalled).Message)
	default:
		return nil
	}
}
