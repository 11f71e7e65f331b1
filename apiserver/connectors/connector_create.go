// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// ConnectorCreate is a connector to create.
type ConnectorCreate struct {
	Name    rest.Name            `json:"name" minLength:"1" maxLength:"63" doc:"The connector's name. It must be unique in the environment without regard to case, also among current and former connectors of the project's code." example:"Tickets"`
	Type    rest.ConnectorType   `json:"type" doc:"The connector's type."`
	Mode    rest.ConnectorMode   `json:"mode,omitempty" default:"inbound" doc:"The connector's direction. A cron connector is inbound."`
	Enabled *bool                `json:"enabled,omitempty" default:"true" doc:"Whether the connector is enabled."`
	Config  ConnectorConfigInput `json:"config,omitempty" doc:"The connector's configuration, whose fields depend on type and mode. Default: all defaults. A cron connector needs a schedule."`
}

func (ConnectorCreate) Doc() string { return "The connector to create." }

// ConnectorCreateInput is the request that creates a connector.
type ConnectorCreateInput struct {
	rest.EnvironmentQuery
	AgentName string `query:"agent_name" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" patternDescription:"lower-case letters, digits and inner dashes" doc:"Links this agent in the same request; also needs connectors.link." example:"support"`
	Body      ConnectorCreate
}

var createConnector = rest.Handle((*API).createConnector, rest.Endpoint{
	Method: rest.Post, Path: "/connectors", ID: "createConnector",
	Permissions: []rest.Requirement{
		{Permission: "connectors.create"},
		{Permission: "connectors.link", With: "agent_name"},
	},
	Effect: rest.EffectCreate, Status: 201, Errors: rest.CreateErrors,
	HasETag: true,
	Summary: "Create a connector",
	Doc: "The call returns once the platform has processed the connector, and its link if `agent_name` is given, or after two " +
		"seconds. If one of them cannot be created, neither is. Returns 409 if another connector of the environment has the " +
		"name.",
	Example: rest.Example{
		Path: "/connectors?environment_id={environment}",
		Body: `{"name":"CRM","type":"webhook","mode":"sync","config":{"timeout_seconds":30}}`,
	},
})

func (s *API) createConnector(ctx context.Context, c *rest.Caller, in *ConnectorCreateInput) (rest.Response[Connector], error) {
	environment, err := s.Service.Environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return rest.Response[Connector]{}, err
	}
	conn, err := s.newConnector(ctx, c, environment.Name, in)
	if err != nil {
		return rest.Response[Connector]{}, err
	}
	if err := s.nameIsFree(ctx, c, conn); err != nil {
		return rest.Response[Connector]{}, err
	}
	made := rest.Creation{Service: s.Service, Caller: c}
	shown, err := s.makeConnector(ctx, &made, conn, environment, in.AgentName)
	if err != nil {
		made.Undo(ctx, err)
		return rest.Response[Connector]{}, err
	}
	return rest.CreatedResponse(ctx, shown, conn, "/connectors/"+shown.ID), nil
}

// makeConnector creates a connector and, if agent is not empty, its link.
func (s *API) makeConnector(
	ctx context.Context, n *rest.Creation, conn *v1alpha1.Connector, environment *v1alpha1.Environment, agent string,
) (Connector, error) {
	if err := n.Create(ctx, conn); err != nil {
		return Connector{}, err
	}
	objects, link := []v1alpha1.ConditionedObject{conn}, &v1alpha1.ConnectorLink{}
	if agent != "" {
		link = newLink(ctx, n.Caller, conn, agent)
		if err := n.Create(ctx, link); err != nil {
			return Connector{}, err
		}
		objects = append(objects, link)
	}
	n.Service.WaitReady(ctx, objects...)
	if rest.IsStalledBy(conn, v1alpha1.ReasonNameTaken) {
		return Connector{}, nameTaken
	}
	if err := refusal(link); err != nil {
		return Connector{}, err
	}
	links, err := s.Links.linksOf(ctx, n.Caller, conn)
	if err != nil {
		return Connector{}, err
	}
	shown, err := s.showConnector(ctx, n.Caller, conn, environment, links, nil)
	if err != nil {
		return shown, err
	}
	return shown, s.showPresent(ctx, n.Caller, []v1alpha1.Connector{*conn}, &shown)
}

// nameIsFree returns 409 if another connector of the environment has the name in any case, even a retired one.
func (s *API) nameIsFree(ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector) error {
	list, err := s.Service.ConnectorsOf(ctx, c, string(conn.Spec.Environment))
	if err != nil {
		return err
	}
	name := store.ConnectorName{Name: conn.Title()}
	for i := range list {
		other := &list[i]
		if other.Name == conn.Name || !name.ClashesWith(store.ConnectorName{Name: other.Title(), DefinedInCode: other.DefinedInCode()}) {
			continue
		}
		retired, err := s.retired(ctx, c, other)
		switch {
		case err != nil:
			return err
		case retired:
			return rest.NewProblem(http.StatusConflict, httpserver.CodeNameTaken, fmt.Sprintf(
				"a retired connector of the environment has the name %q; delete that connector, or choose another name", other.Title()))
		case other.DefinedInCode():
			return rest.NewProblem(http.StatusConflict, httpserver.CodeNameTaken, fmt.Sprintf(
				"the project's code defines a connector with the name %q (%s); choose another name", other.Title(), other.File()))
		}
		return nameTaken
	}
	return nil
}

var nameTaken = rest.NewProblem(http.StatusConflict, httpserver.CodeNameTaken, "another connector of the environment has this name; choose another")

// newConnector returns the object for a request.
func (s *API) newConnector(ctx context.Context, c *rest.Caller, environment string, in *ConnectorCreateInput) (*v1alpha1.Connector, error) {
	meta, id := c.NewMeta(ctx, "connector", string(in.Body.Name))
	conn := &v1alpha1.Connector{ObjectMeta: meta, Spec: v1alpha1.ConnectorSpec{
		ID: id, Environment: v1alpha1.EnvironmentName(environment), DisplayName: v1alpha1.DisplayName(in.Body.Name),
		Mode: v1alpha1.ConnectorModeOf(string(in.Body.Mode)), Enabled: in.Body.Enabled,
	}}
	config := in.Body.Config
	if !config.given() {
		config = ConnectorConfigInput("{}")
	}
	key, err := uuid.Parse(string(id))
	if err != nil {
		return nil, fmt.Errorf("reading the id of a new connector: %w", err)
	}
	return conn, s.applyConfig(c, key, conn, in.Body.Type, config)
}
