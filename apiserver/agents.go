// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// Agent is the REST shape of an agent in lists.
type Agent struct {
	Name                string     `json:"name"`
	Description         *string    `json:"description"`
	Type                *string    `json:"type"`
	SourcePath          *string    `json:"source_path"`
	DeploymentStatus    string     `json:"deployment_status" enum:"deployed,not_deployed"`
	RunCount            int64      `json:"run_count"`
	QueueCount          int64      `json:"queue_count"`
	LastActivityAt      *time.Time `json:"last_activity_at"`
	HasInboundConnector bool       `json:"has_inbound_connector" doc:"Whether an inbound or sync connector is linked."`
	VariantOf           *string    `json:"variant_of"`
}

// AgentDetails is the REST shape of one agent.
type AgentDetails struct {
	Agent
	Config       any                    `json:"config" doc:"null when the live deployment lacks the agent."`
	DeploymentID *string                `json:"deployment_id" format:"uuid"`
	Stats        AgentStats             `json:"stats"`
	TokenUsage   Null[store.TokenUsage] `json:"token_usage"`
	Cost         Null[Cost]             `json:"cost"`
	Connectors   []AgentConnector       `json:"connectors" nullable:"false"`
	Judges       []Judge                `json:"judges" nullable:"false"`
}

// AgentStats are counts of runs in the window; null: not counted.
type AgentStats struct {
	Total             *int64   `json:"total"`
	Completed         *int64   `json:"completed"`
	Failed            *int64   `json:"failed"`
	Cancelled         *int64   `json:"cancelled"`
	Running           *int64   `json:"running"`
	Queued            *int64   `json:"queued"`
	SuccessRate       *float64 `json:"success_rate"`
	AverageDurationMS *int64   `json:"average_duration_ms"`
	P95DurationMS     *int64   `json:"p95_duration_ms"`
}

// AgentConnector is a connector that is linked to an agent.
type AgentConnector struct {
	ID      string `json:"id" format:"uuid"`
	LinkID  string `json:"link_id" format:"uuid"`
	Name    string `json:"name"`
	Type    string `json:"type"`
	Mode    string `json:"mode"`
	Enabled bool   `json:"enabled"`
}

// Judge is what a judge thinks of an agent on average.
type Judge struct {
	Name         string   `json:"name"`
	AverageScore *float64 `json:"average_score"`
	MaxScore     *float64 `json:"max_score"`
	Evaluations  int64    `json:"evaluations"`
}

// AgentsQuery selects agents.
type AgentsQuery struct {
	EnvironmentQuery
	IncludeVariants bool `query:"include_variants" default:"false" doc:"Lists A/B variants as items of their own."`
}

// AgentInput names an agent.
type AgentInput struct {
	EnvironmentQuery
	AgentName string `path:"agent_name"`
}

func (s *Server) listAgents(ctx context.Context, c *caller, in *AgentsQuery) ([]Agent, error) {
	environment, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return nil, err
	}
	agents, err := s.agentsOf(ctx, c, environment)
	if err != nil {
		return nil, err
	}
	out := []Agent{}
	for _, a := range agents {
		if shown := showAgent(a); shown.VariantOf == nil || in.IncludeVariants {
			out = append(out, shown)
		}
	}
	return out, nil
}

func (s *Server) getAgent(ctx context.Context, c *caller, in *AgentInput) (AgentDetails, error) {
	environment, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return AgentDetails{}, err
	}
	agent, err := s.findAgent(ctx, c, environment, in.AgentName)
	if err != nil {
		return AgentDetails{}, err
	}
	out := AgentDetails{Agent: showAgent(agent), Connectors: []AgentConnector{}, Judges: []Judge{}}
	if agent.Agent != nil {
		out.DeploymentID = opt(environment.Status.LiveDeploymentID)
		if out.Config, err = s.agentConfig(ctx, c, environment, in.AgentName); err != nil {
			return AgentDetails{}, err
		}
	}
	out.Connectors, err = s.agentConnectors(ctx, c, environment.Name, in.AgentName)
	return out, err
}

// findAgent looks in the environment, and in the others of the project so that
// an agent that is not deployed here is no stranger.
func (s *Server) findAgent(ctx context.Context, c *caller, here *v1alpha1.Environment, name string) (store.AgentSummary, error) {
	agents, err := s.agentsOf(ctx, c, here)
	if err != nil {
		return store.AgentSummary{}, err
	}
	named := func(a store.AgentSummary) bool { return a.Name == name }
	if i := slices.IndexFunc(agents, named); i >= 0 {
		return agents[i], nil
	}
	others, err := s.environments(ctx, c)
	if err != nil {
		return store.AgentSummary{}, err
	}
	for i := range others {
		agents, err := s.agentsOf(ctx, c, &others[i])
		if err != nil {
			return store.AgentSummary{}, err
		}
		if slices.ContainsFunc(agents, named) {
			return store.AgentSummary{Name: name}, nil
		}
	}
	return store.AgentSummary{}, notFound("agent")
}

func (s *Server) agentsOf(ctx context.Context, c *caller, e *v1alpha1.Environment) ([]store.AgentSummary, error) {
	agents, err := s.store.Agents(ctx, c.keyOf(e))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("listing the agents of environment %q: %w", e.Name, err)
	}
	return agents, nil
}

// agentConfig is an agent's configuration in the live deployment; nil without one.
func (s *Server) agentConfig(ctx context.Context, c *caller, e *v1alpha1.Environment, name string) (any, error) {
	config, err := s.store.AgentConfig(ctx, c.keyOf(e), name)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && len(config) == 0:
		return nil, nil // another deployment is live meanwhile
	case err != nil:
		return nil, fmt.Errorf("reading the configuration of agent %q: %w", name, err)
	}
	return config, nil
}

// agentConnectors are the connectors that are linked to an agent, by name.
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
			if link := &links[conn.Name][j]; string(link.Spec.Agent) == agent {
				out = append(out, AgentConnector{
					ID: idOf(conn), LinkID: idOf(link), Name: conn.Title(), Type: string(conn.Type()),
					Mode: string(conn.Spec.Mode), Enabled: conn.IsEnabled(),
				})
			}
		}
	}
	slices.SortFunc(out, func(a, b AgentConnector) int { return strings.Compare(a.Name, b.Name) })
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
