// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/agents"
	"github.com/agentplatform/agentplatform/apiserver/auditlog"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/deployments"
	"github.com/agentplatform/agentplatform/apiserver/environments"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
)

// Sections returns all sections of the contract with the receivers of their handlers. Paths in no
// section return 403.
func (s *Server) Sections() []rest.BoundSection {
	return []rest.BoundSection{
		rest.Bind(environments.Section, s.Environments), rest.Bind(environments.VariableSection, s.Variables),
		rest.Bind(agents.Section, s.Agents),
		rest.Bind(deployments.Section, s.Deployments),
		rest.Bind(connectors.Section, s.Connectors), rest.Bind(connectors.LinkSection, s.Links), rest.Bind(runs.ConnectorRunSection, s.ConnectorRuns),
		rest.Bind(runs.ReplaySection, s.Replays), rest.Bind(connectors.RejectionSection, s.Rejections),
		rest.Bind(runs.Section, s.Runs),
		rest.Bind(auditlog.Section, s.AuditLog),
		rest.Bind(unsupportedSection, s),
	}
}

// Document returns the OpenAPI description of the facade as JSON.
func Document() ([]byte, error) { return rest.Document((&Server{}).Sections()) }

// unsupportedSection has the endpoints of the contract that belong to no section of this release.
var unsupportedSection = rest.Section[*Server]{
	Name: "others",
	Endpoints: []rest.EndpointOf[*Server]{
		unsupported(rest.Post, "/retrieval/text", "addRetrievalText", "retrieval.create"),
		unsupported(rest.Post, "/retrieval/query", "queryRetrieval", "retrieval.view"),
		unsupported(rest.Get, "/approvals", "listApprovals", "approvals.view"),
		unsupported(rest.Post, "/approvals/{approval_id}/decide", "decideApproval", "approvals.decide"),
		unsupported(rest.Get, "/judges", "listJudges", "judges.view"),
		unsupported(rest.Get, "/budgets", "listBudgets", "budgets.view"),
	},
}

// unsupported returns an endpoint that is not in this release.
func unsupported(method, path, id string, permission v1alpha1.Permission) rest.EndpointOf[*Server] {
	return rest.Unsupported[*Server](rest.Endpoint{Method: method, Path: path, ID: id, Permissions: rest.Requires(permission)})
}
