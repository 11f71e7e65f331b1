// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"slices"
)

// Statuses that routes may answer besides success: every one, those that name
// something, those that create, those that delete an object, those that delete one which
// may have to stay, those that change one, those that change what is none, and those that
// do so by creating, without a body.
var (
	always    = []int{401, 403, 422, 429, 500, 503}
	naming    = append(slices.Clone(always), 404)
	creating  = append(slices.Clone(naming), 400, 408, 409, 413, 415)
	deleting  = append(slices.Clone(naming), 409, 412)
	removing  = append(slices.Clone(deleting), 400)
	changing  = append(slices.Clone(creating), 412)
	acting    = append(slices.Clone(naming), 409)
	launching = append(slices.Clone(acting), 400)
)

// Sections of the API; describe.go says what each is about.
const (
	tagEnvironments = "environments"
	tagAgents       = "agents"
	tagDeployments  = "deployments"
	tagConnectors   = "connectors"
	tagRuns         = "runs"
	tagAuditLog     = "audit log"
	tagOthers       = "others"
)

const get, post, put, patch, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete

// needs are permissions that a route asks for in any case.
func needs(permissions ...string) (out []grant) {
	for _, p := range permissions {
		out = append(out, grant{permission: p})
	}
	return out
}

// routes are all endpoints. A path that is not here is answered 403, one without a
// handler 501.
var routes = []route{
	{method: get, path: "/environments", id: "listEnvironments", tag: tagEnvironments, needs: needs("environments.view"), status: 200, errors: always,
		summary: "List environments", description: aboutListEnvironments, mount: handle((*Server).listEnvironments)},
	{method: get, path: "/environments/{environment_id}", id: "getEnvironment", tag: tagEnvironments, needs: needs("environments.view"), status: 200, errors: naming,
		summary: "Read an environment", description: aboutGetEnvironment, tagged: true, mount: handle((*Server).getEnvironment)},
	{method: post, path: "/environments", id: "createEnvironment", tag: tagEnvironments, does: creates, status: 201, errors: creating,
		needs: []grant{
			{permission: "environments.create"},
			{permission: "variables.view", with: "copy_from_environment_id", inBody: true}, {permission: "variables.create", with: "copy_from_environment_id", inBody: true},
		},
		summary: "Create an environment", description: aboutCreateEnvironment, tagged: true, mount: handle((*Server).createEnvironment)},
	{method: patch, path: "/environments/{environment_id}", id: "updateEnvironment", tag: tagEnvironments, does: alters, needs: needs("environments.update"), status: 200, errors: changing,
		summary: "Change an environment", description: aboutUpdateEnvironment, tagged: true, mount: handle((*Server).updateEnvironment)},
	{method: del, path: "/environments/{environment_id}", id: "deleteEnvironment", tag: tagEnvironments, does: alters, needs: needs("environments.delete"), status: 200, errors: removing,
		summary: "Delete an environment", description: aboutDeleteEnvironment, mount: handle((*Server).deleteEnvironment)},
	{method: post, path: "/environments/{environment_id}/set-default", id: "setDefaultEnvironment", tag: tagEnvironments, does: acts, needs: needs("environments.update"), status: 200, errors: acting,
		summary: "Make an environment the default", description: aboutSetDefaultEnvironment, mount: handle((*Server).setDefaultEnvironment)},
	{method: get, path: "/environments/{environment_id}/variables", id: "getVariables", tag: tagEnvironments, needs: needs("variables.view"), status: 200, errors: naming,
		summary: "Read the variables of an environment", description: aboutGetVariables, tagged: true, mount: handle((*Server).getVariables)},
	{method: put, path: "/environments/{environment_id}/variables", id: "replaceVariables", tag: tagEnvironments, does: alters, needs: needs("variables.update"), status: 200, errors: changing,
		summary: "Replace the variables of an environment", description: aboutReplaceVariables, tagged: true, mount: handle((*Server).replaceVariables)},
	{method: put, path: "/environments/{environment_id}/session", id: "holdTestSession", tag: tagEnvironments, does: acts, needs: needs("environments.update"), status: 200, errors: creating,
		summary: "Begin or renew a test session", description: aboutHoldTestSession, mount: handle((*Server).holdTestSession)},
	{method: del, path: "/environments/{environment_id}/session", id: "endTestSession", tag: tagEnvironments, does: acts, needs: needs("environments.update"), status: 200, errors: acting,
		summary: "End a test session", description: aboutEndTestSession, mount: handle((*Server).endTestSession)},

	{method: get, path: "/agents", id: "listAgents", tag: tagAgents, needs: needs("agents.view"), status: 200, errors: naming,
		summary: "List agents", description: aboutListAgents, mount: handle(ofHistory((*Server).listAgents))},
	{method: get, path: "/agents/{agent_name}", id: "getAgent", tag: tagAgents,
		needs: needs("agents.view"), status: 200, errors: naming,
		summary: "Read an agent", description: aboutGetAgent, mount: handle(ofHistory((*Server).getAgent))},

	{method: get, path: "/deployments", id: "listDeployments", tag: tagDeployments, needs: needs("deployments.view"), status: 200, errors: naming,
		summary: "List deployments", description: aboutListDeployments, mount: handle((*Server).listDeployments)},
	{method: get, path: "/deployments/{deployment_id}", id: "getDeployment", tag: tagDeployments, needs: needs("deployments.view"), status: 200, errors: naming,
		summary: "Read a deployment", description: aboutGetDeployment, mount: handle((*Server).getDeployment)},
	{method: post, path: "/deployments", id: "createDeployment", tag: tagDeployments, does: creates, needs: needs("deployments.create"), status: 201, errors: creating,
		summary: "Deploy a commit", description: aboutCreateDeployment, mount: handle((*Server).createDeployment)},
	{method: post, path: "/deployments/upload", id: "uploadDeployment", tag: tagDeployments, does: creates, needs: needs("deployments.create"), status: 201, errors: creating,
		summary: "Deploy a folder", description: aboutUploadDeployment, takes: archive, mount: handle((*Server).uploadDeployment)},
	{method: get, path: "/deployments/{deployment_id}/test-runs", id: "listTestRuns", tag: tagDeployments, needs: needs("deployments.test"), status: 200, errors: naming,
		summary: "List the test results of a deployment", description: aboutListTestRuns, mount: handle((*Server).listTestRuns)},
	{method: get, path: "/deployments/{deployment_id}/logs", id: "streamDeploymentLogs", tag: tagDeployments, needs: needs("deployments.view"), status: 200, errors: naming,
		summary: "Follow the log of a build", description: aboutStreamDeploymentLogs, stream: true, mount: handle((*Server).streamDeploymentLog)},
	{method: post, path: "/deployments/{deployment_id}/cancel", id: "cancelDeployment", tag: tagDeployments, does: acts, needs: needs("deployments.cancel"), status: 200, errors: acting,
		summary: "Cancel a deployment", description: aboutCancelDeployment, mount: handle((*Server).cancelDeployment)},
	{method: post, path: "/deployments/{deployment_id}/activate", id: "activateDeployment", tag: tagDeployments, does: acts, needs: needs("deployments.activate"), status: 200, errors: acting,
		summary: "Make a deployment live", description: aboutActivateDeployment, mount: handle((*Server).activateDeployment)},
	{method: post, path: "/deployments/{deployment_id}/redeploy", id: "redeploy", tag: tagDeployments, does: creates, needs: needs("deployments.redeploy"), status: 200, errors: launching,
		summary: "Deploy the same code again", description: aboutRedeploy, mount: handle((*Server).redeploy)},
	{method: post, path: "/deployments/{deployment_id}/deploy-anyway", id: "deployAnyway", tag: tagDeployments, does: creates, needs: needs("deployments.override"), status: 200, errors: launching,
		summary: "Deploy in spite of failed tests or connectors", description: aboutDeployAnyway, mount: handle((*Server).deployAnyway)},

	{method: post, path: "/connectors", id: "createConnector", tag: tagConnectors, does: creates, status: 201, errors: creating,
		needs:   []grant{{permission: "connectors.create"}, {permission: "connectors.link", with: "agent_name"}},
		summary: "Create a connector", description: aboutCreateConnector, tagged: true, mount: handle((*Server).createConnector)},
	{method: get, path: "/connectors", id: "listConnectors", tag: tagConnectors, needs: needs("connectors.view"), status: 200, errors: naming,
		summary: "List connectors", description: aboutListConnectors, mount: handle((*Server).listConnectors)},
	{method: get, path: "/connectors/{connector_id}", id: "getConnector", tag: tagConnectors, needs: needs("connectors.view"), status: 200, errors: naming,
		summary: "Read a connector", description: aboutGetConnector, tagged: true, mount: handle((*Server).getConnector)},
	{method: patch, path: "/connectors/{connector_id}", id: "updateConnector", tag: tagConnectors, does: alters, needs: needs("connectors.update"), status: 200, errors: changing,
		summary: "Change a connector", description: aboutUpdateConnector, tagged: true, mount: handle((*Server).updateConnector)},
	{method: del, path: "/connectors/{connector_id}", id: "deleteConnector", tag: tagConnectors, does: alters, needs: needs("connectors.delete"), status: 200, errors: deleting,
		summary: "Delete a connector", description: aboutDeleteConnector, mount: handle((*Server).deleteConnector)},
	{method: post, path: "/connectors/{connector_id}/rotate-secret", id: "rotateSecret", tag: tagConnectors, does: alters, needs: needs("connectors.update"), status: 200, errors: changing,
		summary: "Rotate the secret of a connector", description: aboutRotateSecret, tagged: true, mount: handle((*Server).rotateSecret)},
	{method: post, path: "/connectors/{connector_id}/test", id: "testConnector", tag: tagConnectors, does: creates, needs: needs("connectors.update"), status: 201, errors: acting,
		summary: "Send a test to the destination of a connector", description: aboutTestConnector, mount: handle((*Server).testConnector)},
	{method: post, path: "/connectors/{connector_id}/links", id: "createLink", tag: tagConnectors, does: creates, needs: needs("connectors.link"), status: 201, errors: creating,
		summary: "Link an agent to a connector", description: aboutCreateLink, tagged: true, mount: handle((*Server).createLink)},
	{method: get, path: "/connectors/{connector_id}/links", id: "listLinks", tag: tagConnectors, needs: needs("connectors.view"), status: 200, errors: naming,
		summary: "List the links of a connector", description: aboutListLinks, mount: handle((*Server).listLinks)},
	{method: get, path: "/connectors/{connector_id}/links/{link_id}", id: "getLink", tag: tagConnectors, needs: needs("connectors.view"), status: 200, errors: naming,
		summary: "Read a link", description: aboutGetLink, tagged: true, mount: handle((*Server).getLink)},
	{method: patch, path: "/connectors/{connector_id}/links/{link_id}", id: "updateLink", tag: tagConnectors, does: alters, needs: needs("connectors.link"), status: 200, errors: changing,
		summary: "Replace the settings of a link", description: aboutUpdateLink, tagged: true, mount: handle((*Server).updateLink)},
	{method: del, path: "/connectors/{connector_id}/links/{link_id}", id: "deleteLink", tag: tagConnectors, does: alters, needs: needs("connectors.link"), status: 200, errors: deleting,
		summary: "Delete a link", description: aboutDeleteLink, mount: handle((*Server).deleteLink)},
	{method: get, path: "/connectors/{connector_id}/runs", id: "listConnectorRuns", tag: tagConnectors, needs: needs("connectors.view"), status: 200, errors: naming,
		summary: "List the runs of a connector", description: aboutListConnectorRuns, mount: handle(ofHistory((*Server).listConnectorRuns))},
	{method: get, path: "/connectors/{connector_id}/runs/{run_id}", id: "getConnectorRun", tag: tagConnectors, needs: needs("connectors.view"), status: 200, errors: naming,
		summary: "Read a run of a connector", description: aboutGetConnectorRun, mount: handle((*Server).getConnectorRun)},
	{method: get, path: "/connectors/{connector_id}/stats", id: "getConnectorStats", tag: tagConnectors, needs: needs("connectors.view"), status: 200, errors: naming,
		summary: "Count the runs of a connector", description: aboutGetConnectorStats, mount: handle(ofHistory((*Server).getConnectorStats))},
	{method: post, path: "/connectors/{connector_id}/runs/{run_id}/replay", id: "replayConnectorRun", tag: tagConnectors, does: creates, needs: needs("connectors.update"), status: 201, also: 200, errors: acting,
		summary: "Replay an event or a delivery", description: aboutReplayConnectorRun, mount: handle((*Server).replayConnectorRun)},
	{method: post, path: "/connectors/{connector_id}/replays", id: "createReplay", tag: tagConnectors, does: creates, needs: needs("connectors.update"), status: 201, also: 200, errors: creating,
		summary: "Replay many events or deliveries", description: aboutCreateReplay, mount: handle(ofHistory((*Server).createReplay))},
	{method: get, path: "/connectors/{connector_id}/replays", id: "listReplays", tag: tagConnectors, needs: needs("connectors.view"), status: 200, errors: naming,
		summary: "List the replays of a connector", description: aboutListReplays, mount: handle((*Server).listReplays)},
	{method: get, path: "/connectors/{connector_id}/replays/{replay_id}", id: "getReplay", tag: tagConnectors, needs: needs("connectors.view"), status: 200, errors: naming,
		summary: "Read a replay", description: aboutGetReplay, mount: handle((*Server).getReplay)},
	{method: post, path: "/connectors/{connector_id}/replays/{replay_id}/cancel", id: "cancelReplay", tag: tagConnectors, does: acts, needs: needs("connectors.update"), status: 200, errors: acting,
		summary: "Cancel a replay", description: aboutCancelReplay, mount: handle((*Server).cancelReplay)},
	{method: get, path: "/connectors/{connector_id}/rejections", id: "listRejections", tag: tagConnectors, needs: needs("connectors.view"), status: 200, errors: naming,
		summary: "List the requests that a connector refused", description: aboutListRejections, mount: handle((*Server).listRejections)},

	{method: get, path: "/runs", id: "listRuns", tag: tagRuns, needs: needs("runs.view"), status: 200, errors: naming,
		summary: "List agent runs", description: aboutListRuns, mount: handle(ofHistory((*Server).listRuns))},
	{method: get, path: "/runs/{run_id}", id: "getRun", tag: tagRuns, needs: needs("runs.view"), status: 200, errors: naming,
		summary: "Read an agent run", description: aboutGetRun, mount: handle((*Server).getRun)},
	{method: get, path: "/runs/{run_id}/files/{number}", id: "readRunFile", tag: tagRuns, needs: needs("runs.view"), status: 200, errors: naming,
		summary: "Read an attachment of an agent run", description: aboutReadRunFile, file: true, mount: handle((*Server).readRunFile)},
	{method: post, path: "/runs/{run_id}/cancel", id: "cancelRun", tag: tagRuns, does: acts, needs: needs("runs.cancel"), status: 200, errors: acting,
		summary: "Cancel an agent run", description: aboutCancelRun, mount: handle((*Server).cancelRun)},
	{method: del, path: "/runs/{run_id}", id: "eraseRun", tag: tagRuns, does: acts, needs: needs("runs.delete"), status: 200, errors: acting,
		summary: "Erase an agent run", description: aboutEraseRun, mount: handle((*Server).eraseRun)},

	{method: get, path: "/audit-log", id: "listAuditLog", tag: tagAuditLog, needs: needs("audit_logs.view"), status: 200, errors: always,
		summary: "List who changed what", description: aboutListAuditLog, mount: handle(ofHistory((*Server).listAuditLog))},

	// What the contract has and this release has not.
	{method: get, path: "/runs/{run_id}/events", id: "streamRunEvents", tag: tagRuns, needs: needs("runs.view"), instead: "read the run from time to time"},

	{method: post, path: "/retrieval/text", id: "addRetrievalText", tag: tagOthers, needs: needs("retrieval.create")},
	{method: post, path: "/retrieval/query", id: "queryRetrieval", tag: tagOthers, needs: needs("retrieval.view")},
	{method: get, path: "/approvals", id: "listApprovals", tag: tagOthers, needs: needs("approvals.view")},
	{method: post, path: "/approvals/{approval_id}/decide", id: "decideApproval", tag: tagOthers, needs: needs("approvals.decide")},
	{method: get, path: "/judges", id: "listJudges", tag: tagOthers, needs: needs("judges.view")},
	{method: get, path: "/budgets", id: "listBudgets", tag: tagOthers, needs: needs("budgets.view")},
}
