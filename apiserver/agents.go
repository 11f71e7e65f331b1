// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// Agent is the REST shape of an agent in lists.
type Agent struct {
	Name                string          `json:"name" doc:"The agent's name, as its YAML file gives it." example:"support"`
	Description         *string         `json:"description" doc:"What it is for; null when the live deployment lacks the agent, or says nothing."`
	Type                *string         `json:"type" doc:"Its type; null when the live deployment lacks the agent." example:"llm"`
	SourcePath          *string         `json:"source_path" doc:"Its file in the repository; null when the live deployment lacks the agent." example:"agents/support.yaml"`
	DeploymentStatus    AgentDeployment `json:"deployment_status" doc:"Whether the live deployment has it."`
	RunCount            int64           `json:"run_count" doc:"How many runs it has had in the environment."`
	QueueCount          int64           `json:"queue_count" doc:"How many of them wait."`
	LastActivityAt      *time.Time      `json:"last_activity_at" doc:"When one of its runs last ended, started or was queued; null before the first."`
	HasInboundConnector bool            `json:"has_inbound_connector" doc:"Whether an inbound or sync connector is linked."`
	VariantOf           *string         `json:"variant_of" doc:"The agent of which it is an A/B variant."`
}

// AgentDetails is the REST shape of one agent.
type AgentDetails struct {
	Agent
	Config       Object           `json:"config" doc:"Its configuration, defaults folded in; null when the live deployment lacks the agent."`
	DeploymentID *string          `json:"deployment_id" format:"uuid" doc:"The live deployment that has it."`
	Stats        AgentStats       `json:"stats" doc:"Counts of runs in the window."`
	TokenUsage   TokenUsage       `json:"token_usage" doc:"Model tokens that ended runs of the window have spent."`
	UsageByModel []ModelUsage     `json:"usage_by_model" doc:"What these runs have used of each model, by its reference: of the 100 models that have cost most, and of the others as one."`
	Connectors   []AgentConnector `json:"connectors" doc:"The linked connectors, by name, those of one name by id."`
	Judges       []Judge          `json:"judges" doc:"The average scores of its judges; empty in this release."`
	Costing
}

// AgentStats are the numbers of runs in the window.
type AgentStats struct {
	Total             int64    `json:"total" doc:"All runs, whatever their status."`
	Completed         int64    `json:"completed" doc:"Runs that completed."`
	Failed            int64    `json:"failed" doc:"Runs that failed."`
	Cancelled         int64    `json:"cancelled" doc:"Runs that were cancelled."`
	Running           int64    `json:"running" doc:"Runs that are being executed."`
	Queued            int64    `json:"queued" doc:"Runs that wait."`
	SuccessRate       *float64 `json:"success_rate" doc:"Completed runs among those that ended, 0 to 1; null where none has."`
	AverageDurationMS *int64   `json:"average_duration_ms" doc:"Average duration of runs that have started and ended, in milliseconds; null without any."`
	P95DurationMS     *int64   `json:"p95_duration_ms" doc:"95th percentile of these durations in milliseconds, within 1 %; null without any."`
}

// AgentConnector is a connector that is linked to an agent.
type AgentConnector struct {
	ID      string        `json:"id" format:"uuid" doc:"The connector's id."`
	LinkID  string        `json:"link_id" format:"uuid" doc:"The link's id."`
	Name    string        `json:"name" doc:"The connector's name." example:"Tickets"`
	Type    ConnectorType `json:"type" doc:"What the connector is."`
	Mode    ConnectorMode `json:"mode" doc:"In which direction it works."`
	Enabled bool          `json:"enabled" doc:"Whether it works; false where somebody has disabled it."`
}

// Judge is what a judge thinks of an agent on average.
type Judge struct {
	Name         string   `json:"name" doc:"The judge's name."`
	AverageScore *float64 `json:"average_score" doc:"The average of its scores; null without any."`
	MaxScore     *float64 `json:"max_score" doc:"The highest score that it gives."`
	Evaluations  int64    `json:"evaluations" doc:"How many runs it has judged."`
}

// AgentsQuery selects agents.
type AgentsQuery struct {
	EnvironmentQuery
	IncludeVariants bool `query:"include_variants" default:"false" doc:"Lists A/B variants as items of their own."`
}

// AgentInput names an agent.
type AgentInput struct {
	EnvironmentQuery
	StatisticsQuery
	CostsQuery
	AgentName string `path:"agent_name" doc:"The agent's name, as its YAML file gives it." example:"support"`
}

func (s *Server) listAgents(ctx context.Context, c *caller, in *AgentsQuery) (answer[[]Agent], error) {
	environment, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return answer[[]Agent]{}, err
	}
	agents, err := s.store.Agents(ctx, c.keyOf(environment))
	if err != nil {
		return answer[[]Agent]{}, fmt.Errorf("listing the agents of environment %q: %w", environment.Name, err)
	}
	out := []Agent{}
	for _, a := range agents {
		if shown := showAgent(a); shown.VariantOf == nil || in.IncludeVariants {
			out = append(out, shown)
		}
	}
	return plainly(out, nil)
}

func (s *Server) getAgent(ctx context.Context, c *caller, in *AgentInput) (answer[AgentDetails], error) {
	query, err := in.statistics(s.now())
	if err != nil {
		return answer[AgentDetails]{}, err
	}
	var end func()
	if query.Search, end, err = s.search(ctx, c, in.Search); err != nil {
		return answer[AgentDetails]{}, err
	}
	defer end()
	environment, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return answer[AgentDetails]{}, err
	}
	if !in.DeploymentID.IsZero() {
		if _, err := s.deployment(ctx, c, in.DeploymentID); err != nil {
			return answer[AgentDetails]{}, err
		}
	}
	agent, err := s.findAgent(ctx, c, environment, in.AgentName)
	if err != nil {
		return answer[AgentDetails]{}, err
	}
	out := AgentDetails{Agent: showAgent(agent), Connectors: []AgentConnector{}, Judges: []Judge{}}
	if agent.Agent != nil {
		if out.DeploymentID, out.Config, err = s.agentConfig(ctx, c, environment, in.AgentName); err != nil {
			return answer[AgentDetails]{}, err
		}
	}
	if err := s.showStatistics(ctx, c.keyOf(environment), agent, query, in.ConvertCostsTo, &out); err != nil {
		return answer[AgentDetails]{}, err
	}
	out.Connectors, err = s.agentConnectors(ctx, c, environment.Name, in.AgentName)
	return plainly(out, err)
}

// findAgent looks in the environment, and in the others of the project so that
// an agent that is not deployed here is found too.
func (s *Server) findAgent(ctx context.Context, c *caller, here *v1alpha1.Environment, name string) (store.AgentSummary, error) {
	agent, err := s.agentOf(ctx, c, here, name)
	if !isNotFound(err) {
		return agent, err
	}
	others, err := s.environments(ctx, c)
	if err != nil {
		return store.AgentSummary{}, err
	}
	for i := range others {
		if _, err := s.agentOf(ctx, c, &others[i], name); !isNotFound(err) {
			return store.AgentSummary{Name: name}, err
		}
	}
	return store.AgentSummary{}, notFound("agent")
}

// agentOf is an agent of an environment.
func (s *Server) agentOf(ctx context.Context, c *caller, e *v1alpha1.Environment, name string) (store.AgentSummary, error) {
	agent, err := s.store.Agent(ctx, c.keyOf(e), name)
	if errors.Is(err, store.ErrNotFound) {
		return agent, notFound("agent")
	}
	if err != nil {
		return agent, fmt.Errorf("looking for agent %q in environment %q: %w", name, e.Name, err)
	}
	return agent, nil
}

// agentConfig is the live deployment that holds an agent, with its configuration
// there; nil where another deployment is live meanwhile.
func (s *Server) agentConfig(ctx context.Context, c *caller, e *v1alpha1.Environment, name string) (*string, Object, error) {
	deployment, config, err := s.store.AgentConfig(ctx, c.keyOf(e), name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("reading the configuration of agent %q: %w", name, err)
	case len(config) == 0:
		return opt(deployment.String()), nil, nil
	}
	return opt(deployment.String()), Object(config), nil
}

// agentConnectors are the connectors that are linked to an agent, by name; a name may be that of
// several, as of one that is retired.
func (s *Server) agentConnectors(ctx context.Context, c *caller, environment, agent string) ([]AgentConnector, error) {
	connectors, err := s.connectorsOf(ctx, c, environment)
	if err != nil {
		return nil, err
	}
	links, err := s.links(ctx, c)
	if err != nil {
		return nil, err
	}
	out := []AgentConnector{}
	for i := range connectors {
		conn := &connectors[i]
		for j := range links[conn.Name] {
			if link := &links[conn.Name][j]; string(link.Spec.Agent) == agent && refusal(link) == nil {
				out = append(out, AgentConnector{
					ID: idOf(conn), LinkID: idOf(link), Name: conn.Title(), Type: ConnectorType(conn.Type()),
					Mode: ConnectorMode(conn.Spec.Mode.Word()), Enabled: conn.IsEnabled(),
				})
			}
		}
	}
	slices.SortFunc(out, func(a, b AgentConnector) int {
		return cmp.Or(compareNames(a.Name, b.Name), cmp.Compare(a.ID, b.ID), cmp.Compare(a.LinkID, b.LinkID))
	})
	return out, nil
}

func showAgent(a store.AgentSummary) Agent {
	out := Agent{
		Name: a.Name, DeploymentStatus: "not_deployed", RunCount: a.RunCount, QueueCount: a.QueueCount,
		LastActivityAt: optTime(a.LastActivityAt), HasInboundConnector: a.HasInboundConnector,
	}
	if a.Agent != nil {
		out.DeploymentStatus = "deployed"
		out.Description, out.Type, out.SourcePath = opt(a.Agent.Description), opt(a.Agent.Type), opt(a.Agent.SourcePath)
		out.VariantOf = opt(a.Agent.VariantOf)
	}
	return out
}
