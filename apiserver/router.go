// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	"github.com/danielgtaylor/huma/v2"
)

// projectPath begins every path.
const projectPath = "/v1/projects/{project_id}"

// route is an endpoint and the permission that it asks for.
type route struct {
	method, path, permission, id string

	mount func(huma.API, huma.Operation)
}

// routes are all endpoints.
func (s *Server) routes() []route {
	return []route{
		{"GET", "/environments", "environments.view", "listEnvironments", read(s, s.listEnvironments)},
		{"GET", "/environments/{environment_id}", "environments.view", "getEnvironment", read(s, s.getEnvironment)},

		{"GET", "/agents", "agents.view", "listAgents", read(s, s.listAgents)},
		{"GET", "/agents/{agent_name}", "agents.view", "getAgent", read(s, s.getAgent)},

		{"GET", "/deployments", "deployments.view", "listDeployments", read(s, s.listDeployments)},
		{"GET", "/deployments/{deployment_id}", "deployments.view", "getDeployment", read(s, s.getDeployment)},

		{"POST", "/connectors", "connectors.create", "createConnector", create(s, s.createConnector)},
		{"GET", "/connectors", "connectors.view", "listConnectors", read(s, s.listConnectors)},
		{"GET", "/connectors/{connector_id}", "connectors.view", "getConnector", read(s, s.getConnector)},
		{"POST", "/connectors/{connector_id}/links", "connectors.link", "createLink", create(s, s.createLink)},
		{"GET", "/connectors/{connector_id}/links", "connectors.view", "listLinks", read(s, s.listLinks)},
		{"GET", "/connectors/{connector_id}/runs", "connectors.view", "listConnectorRuns", read(s, s.listConnectorRuns)},
		{"GET", "/connectors/{connector_id}/runs/{run_id}", "connectors.view", "getConnectorRun", read(s, s.getConnectorRun)},

		{"GET", "/runs", "runs.view", "listRuns", read(s, s.listRuns)},
		{"GET", "/runs/{run_id}", "runs.view", "getRun", read(s, s.getRun)},

		{"GET", "/audit-log", "audit_logs.view", "listAuditLog", read(s, s.listAuditLog)},
	}
}

// ProjectPath is the part of the path that all endpoints have.
type ProjectPath struct {
	ProjectID string `path:"project_id" format:"uuid" doc:"The project that the key belongs to."`
}

// answer is a body with status 200.
type answer[T any] struct{ Body T }

// made is a body with status 201.
type made[T any] struct {
	Location string `header:"Location" doc:"The path of what was created."`
	Body     T
}

// read makes an endpoint of a function that looks something up.
func read[I, T any](s *Server, f func(context.Context, *caller, *I) (T, error)) func(huma.API, huma.Operation) {
	return func(api huma.API, op huma.Operation) {
		huma.Register(api, op, func(ctx context.Context, in *I) (*answer[T], error) {
			body, err := f(ctx, callerOf(ctx), in)
			if err != nil {
				return nil, s.asProblem(ctx, err)
			}
			return &answer[T]{Body: body}, nil
		})
	}
}

// create makes an endpoint of a function that creates something and says where
// below the project it is.
func create[I any, T auditable](s *Server, f func(context.Context, *caller, *I) (T, string, error)) func(huma.API, huma.Operation) {
	return func(api huma.API, op huma.Operation) {
		huma.Register(api, op, func(ctx context.Context, in *I) (*made[T], error) {
			c := callerOf(ctx)
			body, path, err := f(ctx, c, in)
			if err != nil {
				return nil, s.asProblem(ctx, err)
			}
			changed(ctx, body.audited(), nil, body)
			return &made[T]{Location: "/v1/projects/" + c.projectID.String() + path, Body: body}, nil
		})
	}
}
