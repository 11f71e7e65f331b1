// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// Agents implements store.Catalog.
func (c *Core) Agents(ctx context.Context, environmentID uuid.UUID) ([]store.AgentSummary, error) {
	agents := map[string]store.AgentSummary{}
	err := c.engine.Snapshot(ctx, func(ctx context.Context, q Queryer) error {
		clear(agents)
		var live []store.Agent
		err := q.QueryRowContext(ctx, `SELECT d.agents FROM environments e JOIN deployments d ON d.id = e.live_deployment_id
			WHERE e.id = $1`, environmentID).Scan(document{&live})
		if err := found(err); err != nil && !errors.Is(err, store.ErrNotFound) {
			return wrap(err, "reading the live deployment")
		}
		for _, agent := range live {
			agents[agent.Name] = store.AgentSummary{Agent: &agent, Name: agent.Name}
		}
		if err := countRuns(ctx, q, environmentID, agents); err != nil {
			return wrap(err, "counting runs")
		}
		linked, err := collect(ctx, q, func(row scanner) (name string, err error) {
			err = row.Scan(&name)
			return name, err
		}, `SELECT DISTINCT l.agent_name FROM links l JOIN connectors c ON c.id = l.connector_id
			WHERE c.environment_id = $1 AND c.mode IN ('inbound', 'sync') AND NOT c.retired`, environmentID)
		for _, name := range linked {
			if a, ok := agents[name]; ok {
				a.HasInboundConnector = true
				agents[name] = a
			}
		}
		return wrap(err, "reading links")
	})
	out := slices.SortedFunc(maps.Values(agents), func(a, b store.AgentSummary) int { return cmp.Compare(a.Name, b.Name) })
	return out, wrap(err, "listing agents of environment %s", environmentID)
}

// countRuns fills in the counts, also for agents that are not there any more.
func countRuns(ctx context.Context, q Queryer, environmentID uuid.UUID, agents map[string]store.AgentSummary) error {
	_, err := collect(ctx, q, func(row scanner) (none struct{}, err error) {
		var s store.AgentSummary
		err = row.Scan(&s.Name, &s.RunCount, &s.QueueCount, maybeAt(&s.LastActivityAt))
		s.Agent = agents[s.Name].Agent
		agents[s.Name] = s
		return none, err
	}, `SELECT agent_name, count(*), COALESCE(SUM(CASE WHEN status = 'queued' THEN 1 ELSE 0 END), 0),
			MAX(COALESCE(ended_at, started_at, queued_at))
		FROM agent_runs WHERE environment_id = $1 GROUP BY agent_name`, environmentID)
	return err
}
