// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// formerDeployments is how many deployments before are looked into for agents.
const formerDeployments = `20`

func scanName(row scanner) (name string, err error) {
	err = row.Scan(&name)
	return name, err
}

// HasAgent implements store.Catalog.
func (c *Core) HasAgent(ctx context.Context, deployment store.Key, name string) (has bool, err error) {
	err = c.engine.Reader().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM deployment_agents
		WHERE project_id = $1 AND deployment_id = $2 AND name = $3 AND variant_of = '')`, deployment.ProjectID, deployment.ID, name).Scan(&has)
	return has, wrap(err, "looking for agent %q of deployment %s", name, deployment)
}

// AgentNames implements store.Catalog.
func (c *Core) AgentNames(ctx context.Context, deployment store.Key, limit int) ([]string, error) {
	names, err := collect(ctx, c.engine.Reader(), scanName, `SELECT name FROM deployment_agents
		WHERE project_id = $1 AND deployment_id = $2 AND variant_of = '' ORDER BY name LIMIT $3`, deployment.ProjectID, deployment.ID, limit)
	return names, wrap(err, "listing the agents of deployment %s", deployment)
}

// Agents implements store.Catalog.
func (c *Core) Agents(ctx context.Context, environment store.Key) ([]store.AgentSummary, error) {
	agents := map[string]store.AgentSummary{}
	err := c.engine.Snapshot(ctx, func(ctx context.Context, q Queryer) error {
		clear(agents)
		var live []store.Agent
		err := q.QueryRowContext(ctx, `SELECT d.agents
			FROM environments e JOIN deployments d ON d.project_id = e.project_id AND d.id = e.live_deployment_id
			WHERE e.project_id = $1 AND e.id = $2`, environment.ProjectID, environment.ID).Scan(document{&live})
		if err := found(err); err != nil && !errors.Is(err, store.ErrNotFound) {
			return wrap(err, "reading the live deployment")
		}
		for _, agent := range live {
			agents[agent.Name] = store.AgentSummary{Agent: &agent, Name: agent.Name}
		}
		former, err := collect(ctx, q, scanName, `SELECT DISTINCT a.name
			FROM (SELECT id FROM deployments WHERE project_id = $1 AND environment_id = $2 AND status = 'deployed'
				ORDER BY sequence DESC LIMIT `+formerDeployments+`) d
			JOIN deployment_agents a ON a.project_id = $1 AND a.deployment_id = d.id AND a.variant_of = ''`, environment.ProjectID, environment.ID)
		if err != nil {
			return wrap(err, "reading the agents of deployments before")
		}
		for _, name := range former {
			if _, ok := agents[name]; !ok {
				agents[name] = store.AgentSummary{Name: name}
			}
		}
		if err := c.countRuns(ctx, q, environment, agents); err != nil {
			return wrap(err, "counting runs")
		}
		linked, err := collect(ctx, q, scanName, `SELECT DISTINCT l.agent_name
			FROM links l JOIN connectors c ON c.project_id = l.project_id AND c.id = l.connector_id
			WHERE c.project_id = $1 AND c.environment_id = $2 AND c.mode IN ('inbound', 'sync')
				AND NOT c.retired AND NOT c.shadowed`, environment.ProjectID, environment.ID)
		for _, name := range linked {
			if a, ok := agents[name]; ok {
				a.HasInboundConnector = true
				agents[name] = a
			}
		}
		return wrap(err, "reading links")
	})
	out := slices.SortedFunc(maps.Values(agents), func(a, b store.AgentSummary) int { return cmp.Compare(a.Name, b.Name) })
	return out, wrap(err, "listing agents of environment %s", environment)
}

// AgentConfig implements store.Catalog.
func (c *Core) AgentConfig(
	ctx context.Context, environment store.Key, name string,
) (deployment uuid.UUID, config json.RawMessage, err error) {
	err = c.engine.Reader().QueryRowContext(ctx, `SELECT a.deployment_id, a.config FROM environments e
		JOIN deployment_agents a ON a.project_id = e.project_id AND a.deployment_id = e.live_deployment_id
		WHERE e.project_id = $1 AND e.id = $2 AND a.name = $3`, environment.ProjectID, environment.ID, name).Scan(&deployment, document{&config})
	return deployment, config, wrap(found(err), "reading agent %q of environment %s", name, environment)
}

// counted are numbers of runs of an agent, or of one of its variants.
type counted struct {
	agent, testName string
	runs, queued    int64
	last            *time.Time
}

// countRuns fills in the counts, also for agents that are not there any more: of open runs, of
// those that are rolled up, and of those that the outbox names still. What a variant has executed
// counts for it and for its agent.
func (c *Core) countRuns(ctx context.Context, q Queryer, environment store.Key, agents map[string]store.AgentSummary) error {
	all, err := collect(ctx, q, func(row scanner) (n counted, err error) {
		err = row.Scan(&n.agent, &n.testName, &n.runs, &n.queued, maybeAt(&n.last))
		return n, err
	}, `SELECT r.agent_name, r.test_name, count(*), SUM(CASE WHEN r.status = 'queued' THEN 1 ELSE 0 END), MAX(COALESCE(r.started_at, r.queued_at))
			FROM open_runs r WHERE r.project_id = $1 AND r.environment_id = $2 GROUP BY r.agent_name, r.test_name
		UNION ALL
		SELECT t.agent_name, t.test_name, t.runs, 0, t.last_ended_at FROM agent_totals t WHERE t.project_id = $1 AND t.environment_id = $2`,
		environment.ProjectID, environment.ID)
	if err != nil {
		return err
	}
	waiting, err := c.waitingRuns(ctx, q, environment)
	if err != nil {
		return err
	}
	for _, run := range waiting {
		all = append(all, counted{run.agent, run.testName, 1, 0, &run.endedAt})
	}
	variants := map[[2]string]string{}
	for name, a := range agents {
		if a.Agent != nil && a.Agent.VariantOf != "" {
			variants[[2]string{a.Agent.VariantOf, a.Agent.TestName}] = name
		}
	}
	for _, n := range all {
		agents[n.agent] = n.addedTo(agents[n.agent], n.agent)
		if name, ok := variants[[2]string{n.agent, n.testName}]; ok {
			agents[name] = n.addedTo(agents[name], name)
		}
	}
	return nil
}

func (n counted) addedTo(a store.AgentSummary, name string) store.AgentSummary {
	a.Name, a.RunCount, a.QueueCount = name, a.RunCount+n.runs, a.QueueCount+n.queued
	if a.LastActivityAt == nil || n.last != nil && n.last.After(*a.LastActivityAt) {
		a.LastActivityAt = n.last
	}
	return a
}
