// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// ConnectorCreate is what a connector is made of.
type ConnectorCreate struct {
	Name    Name                 `json:"name" minLength:"1" maxLength:"63" doc:"Its name, unique in its environment in any case of letters, also against connectors that code defines or has defined." example:"Tickets"`
	Type    ConnectorType        `json:"type" doc:"What it is."`
	Mode    ConnectorMode        `json:"mode,omitempty" default:"inbound" doc:"In which direction it works: inbound, sync or outbound; a cron connector is inbound."`
	Enabled *bool                `json:"enabled,omitempty" default:"true" doc:"Whether it works at once."`
	Config  ConnectorConfigInput `json:"config,omitempty" doc:"How it behaves; the shape depends on type and mode. Without it all defaults, of which a schedule has none."`
}

// ConnectorCreateInput is the request that creates a connector.
type ConnectorCreateInput struct {
	EnvironmentQuery
	AgentName string `query:"agent_name" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" patternDescription:"lower-case letters, digits and inner dashes" doc:"Links that agent in the same request; needs connectors.link too." example:"support"`
	Body      ConnectorCreate
}

func (s *Server) createConnector(ctx context.Context, c *caller, in *ConnectorCreateInput) (answer[Connector], error) {
	environment, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return answer[Connector]{}, err
	}
	conn, err := s.newConnector(ctx, c, environment.Name, in)
	if err != nil {
		return answer[Connector]{}, err
	}
	if err := s.nameIsFree(ctx, c, conn); err != nil {
		return answer[Connector]{}, err
	}
	made := creation{Server: s, caller: c}
	shown, err := made.connector(ctx, conn, environment, in.AgentName)
	if err != nil {
		made.takeBack(ctx, err)
		return answer[Connector]{}, err
	}
	return created(ctx, shown, conn, "/connectors/"+shown.ID), nil
}

// connector creates a connector and, where agent is not empty, its link.
func (n *creation) connector(
	ctx context.Context, conn *v1alpha1.Connector, environment *v1alpha1.Environment, agent string,
) (Connector, error) {
	if err := n.create(ctx, conn); err != nil {
		return Connector{}, err
	}
	objects, link := []v1alpha1.ConditionedObject{conn}, &v1alpha1.ConnectorLink{}
	if agent != "" {
		link = newLink(ctx, n.caller, conn, agent)
		if err := n.create(ctx, link); err != nil {
			return Connector{}, err
		}
		objects = append(objects, link)
	}
	n.awaitReady(ctx, objects...)
	if stalledBy(conn, v1alpha1.ReasonNameTaken) {
		return Connector{}, nameTaken
	}
	if err := refusal(link); err != nil {
		return Connector{}, err
	}
	links, err := n.linksOf(ctx, n.caller, conn)
	if err != nil {
		return Connector{}, err
	}
	shown, err := n.showConnector(ctx, n.caller, conn, environment, links, nil)
	if err != nil {
		return shown, err
	}
	return shown, n.showPresent(ctx, n.caller, []v1alpha1.Connector{*conn}, &shown)
}

// nameIsFree answers 409 for the name of another connector of the environment, in any case of letters, such as one
// that code defines or has defined.
func (s *Server) nameIsFree(ctx context.Context, c *caller, conn *v1alpha1.Connector) error {
	list, err := s.connectorsOf(ctx, c, string(conn.Spec.Environment))
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
			return problem(http.StatusConflict, httpserver.CodeNameTaken, fmt.Sprintf(
				"a retired connector of the environment has the name %q: delete that one, or choose another name", other.Title()))
		case other.DefinedInCode():
			return problem(http.StatusConflict, httpserver.CodeNameTaken, fmt.Sprintf(
				"the project's code defines a connector with the name %q (%s); choose another name", other.Title(), other.File()))
		}
		return nameTaken
	}
	return nil
}

var nameTaken = problem(http.StatusConflict, httpserver.CodeNameTaken, "another connector of the environment has this name; choose another")

// stalledBy says whether a controller has refused an object for a reason.
func stalledBy(o v1alpha1.ConditionedObject, reason string) bool {
	return v1alpha1.IsStalled(o) && o.CommonStatus().Condition(v1alpha1.ConditionStalled).Reason == reason
}

// newConnector makes the object that a request asks for.
func (s *Server) newConnector(ctx context.Context, c *caller, environment string, in *ConnectorCreateInput) (*v1alpha1.Connector, error) {
	meta, id := c.meta(ctx, "connector", string(in.Body.Name))
	conn := &v1alpha1.Connector{ObjectMeta: meta, Spec: v1alpha1.ConnectorSpec{
		ID: id, Environment: v1alpha1.EnvironmentName(environment), DisplayName: v1alpha1.DisplayName(in.Body.Name),
		Mode: v1alpha1.ConnectorModeOf(string(in.Body.Mode)), Enabled: in.Body.Enabled,
	}}
	if err := refuseUnsupported(conn); err != nil {
		return nil, err
	}
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
