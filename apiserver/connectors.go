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
	slices.SortFunc(list, func(a, b v1alpha1.Connector) int { return strings.Compare(a.Name, b.Name) })
	out := make([]Connector, 0, len(list))
	for i := range list {
		shown, err := s.showConnector(ctx, c, &list[i], environment)
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
	environment := &v1alpha1.Environment{}
	key := client.ObjectKey{Namespace: c.namespace, Name: string(conn.Spec.Environment)}
	if err := s.client.Get(ctx, key, environment); isNotFound(err) {
		environment = nil
	} else if err != nil {
		return Connector{}, fmt.Errorf("reading environment %q: %w", key.Name, err)
	}
	return s.showConnector(ctx, c, conn, environment)
}

// connectorsOf lists the connectors of an environment.
func (s *Server) connectorsOf(ctx context.Context, c *caller, environment string) ([]v1alpha1.Connector, error) {
	var list v1alpha1.ConnectorList
	err := s.client.List(ctx, &list, client.InNamespace(c.namespace), client.MatchingFields{"spec.environment": environment})
	if err != nil {
		return nil, fmt.Errorf("listing the connectors of %q: %w", environment, err)
	}
	return list.Items, nil
}

// showConnector is the REST shape; environment may be nil.
func (s *Server) showConnector(ctx context.Context, c *caller, conn *v1alpha1.Connector, environment *v1alpha1.Environment) (Connector, error) {
	links, err := s.linksOf(ctx, c, conn)
	if err != nil {
		return Connector{}, err
	}
	config, err := s.showConfig(ctx, conn)
	if err != nil {
		return Connector{}, err
	}
	out := Connector{
		ID: c.idOf(conn), Name: conn.Title(), Type: string(conn.Type()), Mode: string(conn.Spec.Mode),
		Enabled: conn.IsEnabled() && !conn.Status.Retired, DisabledReason: disabledReason(conn), Config: config,
		DefinedInCode: definedInCode(conn),
		Retired:       conn.Status.Retired, Agents: make([]string, 0, len(links)),
		CreatedAt: conn.CreationTimestamp.UTC(), UpdatedAt: updatedAt(conn),
	}
	if environment != nil {
		out.EnvironmentID = opt(c.idOf(environment))
	}
	for _, link := range links {
		out.Agents = append(out.Agents, string(link.Spec.Agent))
	}
	return out, s.showSecrets(conn, &out)
}

// showSecrets fills in URL and secrets of a webhook.
func (s *Server) showSecrets(conn *v1alpha1.Connector, out *Connector) error {
	if conn.Spec.Webhook == nil {
		return nil
	}
	id, err := uuid.Parse(out.ID)
	if err != nil {
		return fmt.Errorf("reading the id of connector %q: %w", conn.Name, err)
	}
	version := int64(conn.SecretVersion())
	secret := s.derivation.Secret(id, version)
	if conn.Spec.Mode == v1alpha1.ModeOutbound {
		secret = s.derivation.SigningSecret(id, version)
	}
	if conn.Spec.SecretRef != nil {
		secret = masked
	}
	switch {
	case conn.Spec.Mode == v1alpha1.ModeOutbound:
		out.SigningSecret = &secret
		return nil
	case conn.RequiresAuthentication():
		out.Secret = &secret
	}
	out.WebhookURL = opt(s.gatewayURL + "/hooks/" + out.ID)
	return nil
}

// disabledReason says why a connector does not work; nil while it does.
func disabledReason(conn *v1alpha1.Connector) *string {
	delivering := conn.Status.Condition(v1alpha1.ConditionDelivering)
	switch {
	case conn.Status.Retired:
		return opt("the live deployment's code no longer has it")
	case !conn.IsEnabled():
		return opt("disabled")
	case conn.IsStalled():
		return opt(conn.Status.Condition(v1alpha1.ConditionStalled).Message)
	case delivering != nil && delivering.Status == "False":
		return opt(delivering.Message)
	default:
		return nil
	}
}
