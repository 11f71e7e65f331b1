// SPDX-License-Identifier: Apache-2.0

// Package agents serves the agents of a project with their statistics.
package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/costs"
	"github.com/agentplatform/agentplatform/apiserver/history"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// API serves agents.
type API struct {
	Service     *rest.Service
	Store       Store
	Links       linkLister
	Deployments deploymentFinder
	Searches    *history.Searches
	Costs       *costs.Reader
}

// linkLister lists links.
type linkLister interface {
	// AcceptedLinks lists the links of the project that the platform has not rejected, by the name of their connector.
	AcceptedLinks(ctx context.Context, c *rest.Caller) (map[string][]v1alpha1.ConnectorLink, error)
}

// deploymentFinder finds deployments.
type deploymentFinder interface {
	Deployment(ctx context.Context, c *rest.Caller, id rest.ID) (store.Deployment, error)
}

// Store has the methods of the store that agents use.
type Store interface {
	store.Catalog
	store.Statistics
	store.DriftReader
}

// Section has the endpoints of agents; API serves them.
var Section = rest.Section[*API]{
	Name: "agents", Doc: "Agents of the project's code in each environment.",
	Endpoints: []rest.EndpointOf[*API]{
		listAgents, getAgent,
	},
}

// Agent is the REST shape of an agent in lists.
type Agent struct {
	Name                string          `json:"name" doc:"The agent's name in its YAML file." example:"support"`
	Description         *string         `json:"description" doc:"The agent's purpose; null if the live deployment lacks the agent or gives no description."`
	Type                *string         `json:"type" doc:"The agent's type; null if the live deployment lacks the agent." example:"llm"`
	SourcePath          *string         `json:"source_path" doc:"The agent's file in the repository; null if the live deployment lacks the agent." example:"agents/support.yaml"`
	DeploymentStatus    AgentDeployment `json:"deployment_status" doc:"Whether the live deployment has the agent."`
	RunCount            int64           `json:"run_count" doc:"Number of the agent's runs in the environment."`
	QueueCount          int64           `json:"queue_count" doc:"Number of these runs that are queued."`
	LastActivityAt      *time.Time      `json:"last_activity_at" doc:"When a run was last queued, started or ended; null before the first run."`
	HasInboundConnector bool            `json:"has_inbound_connector" doc:"Whether an inbound or sync connector is linked."`
	VariantOf           *string         `json:"variant_of" doc:"The agent whose A/B variant this is; null if it is no variant."`
}

func (Agent) Doc() string { return "An agent in a list." }

// AgentDetails is the REST shape of one agent.
type AgentDetails struct {
	Agent
	Config       rest.Object        `json:"config" doc:"The agent's configuration with defaults filled in; null if the live deployment lacks the agent."`
	DeploymentID *string            `json:"deployment_id" format:"uuid" doc:"The live deployment with the agent."`
	Stats        AgentStats         `json:"stats" doc:"Counts of runs in the window."`
	TokenUsage   costs.TokenUsage   `json:"token_usage" doc:"Model tokens of the window's runs that have ended."`
	UsageByModel []costs.ModelUsage `json:"usage_by_model" doc:"Usage of these runs by model, sorted by the model's reference: the 100 models with the highest cost, and all other models as one."`
	Connectors   []AgentConnector   `json:"connectors" doc:"The linked connectors by name, then by ID."`
	MCPDrift     []MCPDrift         `json:"mcp_drift" doc:"The MCP servers whose tools differ from the ones that the live deployment pins, by name; empty if there are none."`
	Judges       []Judge            `json:"judges" doc:"The average scores of the agent's judges; empty in this release."`
	costs.Costing
}

func (AgentDetails) Doc() string {
	return "An agent with its configuration, statistics and linked connectors."
}

// AgentStats are statistics of the runs in the window.
type AgentStats struct {
	Total             int64    `json:"total" doc:"All runs, whatever their status."`
	Completed         int64    `json:"completed" doc:"Runs that completed."`
	Failed            int64    `json:"failed" doc:"Runs that failed."`
	Cancelled         int64    `json:"cancelled" doc:"Runs that were cancelled."`
	Running           int64    `json:"running" doc:"Runs that a runner executes."`
	Queued            int64    `json:"queued" doc:"Queued runs."`
	SuccessRate       *float64 `json:"success_rate" doc:"Share of completed runs among runs that have ended, 0 to 1; null if none has ended."`
	AverageDurationMS *int64   `json:"average_duration_ms" doc:"Average duration of runs that have started and ended, in milliseconds; null if there are none."`
	P95DurationMS     *int64   `json:"p95_duration_ms" doc:"95th percentile of these durations in milliseconds, accurate to 1 %; null if there are none."`
}

func (AgentStats) Doc() string { return "Counts and durations of an agent's runs in the window." }

// AgentConnector is a connector that is linked to an agent.
type AgentConnector struct {
	ID      string             `json:"id" format:"uuid" doc:"The connector's ID."`
	LinkID  string             `json:"link_id" format:"uuid" doc:"The link's ID."`
	Name    string             `json:"name" doc:"The connector's name." example:"Tickets"`
	Type    rest.ConnectorType `json:"type" doc:"The connector's type."`
	Mode    rest.ConnectorMode `json:"mode" doc:"The connector's direction."`
	Enabled bool               `json:"enabled" doc:"Whether the connector is enabled."`
}

func (AgentConnector) Doc() string { return "A connector that is linked to an agent." }

// MCPDrift is the drift of an MCP server of an agent.
type MCPDrift struct {
	Server string    `json:"server" doc:"The server's name in the agent's configuration." example:"crm"`
	Tools  []string  `json:"tools" doc:"The pinned tools that the server has changed or removed, by their names there, at most 16. Characters that cannot be printed are replaced by an underscore."`
	Since  time.Time `json:"since" doc:"When a runner first saw a difference."`
}

func (MCPDrift) Doc() string {
	return "An MCP server whose tools differ from the ones that the live deployment pins. Runs see the pinned descriptions. A new deployment pins the tools again."
}

// Judge has the average scores of a judge for an agent.
type Judge struct {
	Name         string   `json:"name" doc:"The judge's name."`
	AverageScore *float64 `json:"average_score" doc:"The average of the judge's scores; null if there are none."`
	MaxScore     *float64 `json:"max_score" doc:"The judge's highest possible score."`
	Evaluations  int64    `json:"evaluations" doc:"Number of runs that the judge has scored."`
}

func (Judge) Doc() string { return "The average scores of a judge for an agent." }

// AgentsQuery selects agents.
type AgentsQuery struct {
	rest.EnvironmentQuery
	IncludeVariants bool `query:"include_variants" default:"false" doc:"Lists A/B variants as separate items."`
}

// AgentInput names an agent.
type AgentInput struct {
	rest.EnvironmentQuery
	StatisticsQuery
	costs.CostsQuery
	AgentName string `path:"agent_name" doc:"The agent's name in its YAML file." example:"support"`
}

var listAgents = rest.Handle((*API).listAgents, rest.Endpoint{
	Method: rest.Get, Path: "/agents", ID: "listAgents",
	Permissions: rest.Requires("agents.view"), Errors: rest.ReadErrors,
	Summary: "List agents",
	Doc: "Returns the agents of the live deployment and of the last twenty deployments, and the names of other agents with runs " +
		"in the environment. Of other agents without open runs, only the 1000 with the latest runs are listed.",
	Example:      rest.Example{Path: "/agents?environment_id={environment}"},
	ReadsHistory: true,
})

func (s *API) listAgents(ctx context.Context, c *rest.Caller, in *AgentsQuery) (rest.Response[[]Agent], error) {
	environment, err := s.Service.Environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return rest.Response[[]Agent]{}, err
	}
	agents, err := s.Store.Agents(ctx, c.ObjectKey(environment))
	if err != nil {
		return rest.Response[[]Agent]{}, fmt.Errorf("listing the agents of environment %q: %w", environment.Name, err)
	}
	out := []Agent{}
	for _, a := range agents {
		if shown := showAgent(a); shown.VariantOf == nil || in.IncludeVariants {
			out = append(out, shown)
		}
	}
	return rest.NewResponse(out, nil)
}

var getAgent = rest.Handle((*API).getAgent, rest.Endpoint{
	Method: rest.Get, Path: "/agents/{agent_name}", ID: "getAgent",
	Permissions: rest.Requires("agents.view"), Errors: rest.ReadErrors,
	Summary: "Get an agent",
	Doc: "Returns the agent's configuration in the live deployment of the environment, and its connectors. If the agent exists " +
		"only in another environment of the project, `config` and `deployment_id` are null.\n\n" +
		"Statistics, tokens and durations count the runs that were queued in the window and match the other parameters. They " +
		"are exact and current; `p95_duration_ms` is accurate to 1 %. If the window starts or ends in an hour that is older " +
		"than the retention of the project or of the platform, the runs of that hour are not counted.\n\n" +
		"With `search`, each run counts as it is at the time of the search. The call returns 422 `search_too_broad` if the " +
		"search must read more than 20,000 runs or takes longer than two seconds. It returns 503 `busy` if the search spent " +
		"most of that time waiting for other searches. A project can run four searches at a time on each replica, or fewer if " +
		"the replica allows it fewer list queries. Further searches wait for a while and then return 429.\n\n" +
		"The parameter `guardrail_outcome` returns 422 in this release.",
	Example:      rest.Example{Path: "/agents/hello?environment_id={environment}"},
	ReadsHistory: true,
})

func (s *API) getAgent(ctx context.Context, c *rest.Caller, in *AgentInput) (rest.Response[AgentDetails], error) {
	query, err := in.statistics(s.Service.Now())
	if err != nil {
		return rest.Response[AgentDetails]{}, err
	}
	var end func()
	if query.Search, end, err = s.Searches.Begin(ctx, c, in.Search); err != nil {
		return rest.Response[AgentDetails]{}, err
	}
	defer end()
	environment, err := s.Service.Environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return rest.Response[AgentDetails]{}, err
	}
	if !in.DeploymentID.IsZero() {
		if _, err := s.Deployments.Deployment(ctx, c, in.DeploymentID); err != nil {
			return rest.Response[AgentDetails]{}, err
		}
	}
	agent, err := s.findAgent(ctx, c, environment, in.AgentName)
	if err != nil {
		return rest.Response[AgentDetails]{}, err
	}
	out := AgentDetails{Agent: showAgent(agent), Connectors: []AgentConnector{}, MCPDrift: []MCPDrift{}, Judges: []Judge{}}
	if agent.Agent != nil {
		if err := s.showLive(ctx, c, environment, &out); err != nil {
			return rest.Response[AgentDetails]{}, err
		}
	}
	if err := s.showStatistics(ctx, c.ObjectKey(environment), agent, query, in.ConvertCostsTo, &out); err != nil {
		return rest.Response[AgentDetails]{}, err
	}
	out.Connectors, err = s.agentConnectors(ctx, c, environment.Name, in.AgentName)
	return rest.NewResponse(out, err)
}

// findAgent finds an agent in the environment, or else in another environment of the project.
func (s *API) findAgent(ctx context.Context, c *rest.Caller, here *v1alpha1.Environment, name string) (store.AgentSummary, error) {
	agent, err := s.agentOf(ctx, c, here, name)
	if !rest.IsNotFound(err) {
		return agent, err
	}
	others, err := s.Service.Environments(ctx, c)
	if err != nil {
		return store.AgentSummary{}, err
	}
	for i := range others {
		if _, err := s.agentOf(ctx, c, &others[i], name); !rest.IsNotFound(err) {
			return store.AgentSummary{Name: name}, err
		}
	}
	return store.AgentSummary{}, rest.NotFound("agent")
}

// agentOf returns an agent of an environment.
func (s *API) agentOf(ctx context.Context, c *rest.Caller, e *v1alpha1.Environment, name string) (store.AgentSummary, error) {
	agent, err := s.Store.Agent(ctx, c.ObjectKey(e), name)
	if errors.Is(err, store.ErrNotFound) {
		return agent, rest.NotFound("agent")
	}
	if err != nil {
		return agent, fmt.Errorf("looking for agent %q in environment %q: %w", name, e.Name, err)
	}
	return agent, nil
}

// showLive shows the agent in the live deployment, unless another deployment without the agent has become live.
func (s *API) showLive(ctx context.Context, c *rest.Caller, e *v1alpha1.Environment, out *AgentDetails) error {
	deployment, config, err := s.Store.AgentConfig(ctx, c.ObjectKey(e), out.Name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("reading the configuration of agent %q: %w", out.Name, err)
	}
	out.DeploymentID = rest.Optional(deployment.String())
	if len(config) > 0 {
		out.Config = rest.Object(config)
	}
	drift, err := s.Store.Drift(ctx, store.Key{ProjectID: c.ObjectKey(e).ProjectID, ID: deployment})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("reading the drift of agent %q: %w", out.Name, err)
	}
	for _, d := range drift {
		if d.Agent == out.Name {
			out.MCPDrift = append(out.MCPDrift, MCPDrift{Server: d.Server, Tools: d.Names(), Since: d.Since()})
		}
	}
	return nil
}

// agentConnectors returns the connectors that are linked to an agent, by name. Several connectors can have one name, for
// example if one is retired.
func (s *API) agentConnectors(ctx context.Context, c *rest.Caller, environment, agent string) ([]AgentConnector, error) {
	connectors, err := s.Service.ConnectorsOf(ctx, c, environment)
	if err != nil {
		return nil, err
	}
	links, err := s.Links.AcceptedLinks(ctx, c)
	if err != nil {
		return nil, err
	}
	out := []AgentConnector{}
	for i := range connectors {
		conn := &connectors[i]
		for j := range links[conn.Name] {
			if link := &links[conn.Name][j]; string(link.Spec.Agent) == agent {
				out = append(out, AgentConnector{
					ID: rest.ObjectID(conn), LinkID: rest.ObjectID(link), Name: conn.Title(), Type: rest.ConnectorType(conn.Type()),
					Mode: rest.ConnectorMode(conn.Spec.Mode.EnumValue()), Enabled: conn.IsEnabled(),
				})
			}
		}
	}
	slices.SortFunc(out, func(a, b AgentConnector) int {
		return cmp.Or(rest.CompareNames(a.Name, b.Name), cmp.Compare(a.ID, b.ID), cmp.Compare(a.LinkID, b.LinkID))
	})
	return out, nil
}

func showAgent(a store.AgentSummary) Agent {
	out := Agent{
		Name: a.Name, DeploymentStatus: "not_deployed", RunCount: a.RunCount, QueueCount: a.QueueCount,
		LastActivityAt: rest.OptionalTime(a.LastActivityAt), HasInboundConnector: a.HasInboundConnector,
	}
	if a.Agent != nil {
		out.DeploymentStatus = "deployed"
		out.Description, out.Type, out.SourcePath = rest.Optional(a.Agent.Description), rest.Optional(a.Agent.Type), rest.Optional(a.Agent.SourcePath)
		out.VariantOf = rest.Optional(a.Agent.VariantOf)
	}
	return out
}

// AgentDeployment reports whether the live deployment has an agent.
type AgentDeployment string

func (AgentDeployment) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "AgentDeploymentStatus", "Whether the live deployment has the agent.", "deployed", "not_deployed")
}
