// SPDX-License-Identifier: Apache-2.0

// Package agent reads the agents of deployments and environments.
package agent

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
	"github.com/agentplatform/agentplatform/store/connectorrow"
	"github.com/agentplatform/agentplatform/store/runqueue"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/statistics"
)

// formerDeployments is the number of earlier deployments that are searched for agents.
const formerDeployments = `20`

// Store has the agents.
type Store struct{ db *sqldb.DB }

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// HasAgent implements store.Catalog.
func (s *Store) HasAgent(ctx context.Context, deployment store.Key, name string) (has bool, err error) {
	err = s.db.Reader().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM deployment_agents
		WHERE project_id = $1 AND deployment_id = $2 AND name = $3 AND variant_of = '')`, deployment.ProjectID, deployment.ID, sqldb.Text(name)).Scan(&has)
	return has, sqldb.Wrap(err, "reading agent %q of deployment %s", name, deployment)
}

// SendsByMiddleware implements store.Catalog.
func (s *Store) SendsByMiddleware(ctx context.Context, deployment store.Key, agent string) (sends bool, err error) {
	err = s.db.Reader().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM deployment_agents
		WHERE project_id = $1 AND deployment_id = $2 AND name = $3 AND sends_by_middleware)`, deployment.ProjectID, deployment.ID, sqldb.Text(agent)).Scan(&sends)
	return sends, sqldb.Wrap(err, "reading the middleware of agent %q of deployment %s", agent, deployment)
}

// AgentNames implements store.Catalog.
func (s *Store) AgentNames(ctx context.Context, deployment store.Key, limit int) ([]string, error) {
	names, err := sqldb.Collect(ctx, s.db.Reader(), sqldb.ScanText, `SELECT name FROM deployment_agents
		WHERE project_id = $1 AND deployment_id = $2 AND variant_of = '' ORDER BY name LIMIT $3`, deployment.ProjectID, deployment.ID, limit)
	return names, sqldb.Wrap(err, "listing the agents of deployment %s", deployment)
}

// list is a list of an environment's agents that is being read.
type list struct {
	db          *sqldb.DB
	environment store.Key
	// only limits the list to these names; nil does not limit.
	only   []string
	agents map[string]store.AgentSummary
}

// Agents implements store.Catalog.
func (s *Store) Agents(ctx context.Context, environment store.Key) ([]store.AgentSummary, error) {
	a := &list{db: s.db, environment: environment}
	err := s.db.Snapshot(ctx, func(ctx context.Context, q sqldb.Queryer) error {
		a.agents = map[string]store.AgentSummary{}
		if err := a.addLive(ctx, q); err != nil {
			return err
		}
		return a.addPast(ctx, q)
	})
	out := slices.SortedFunc(maps.Values(a.agents), func(a, b store.AgentSummary) int { return cmp.Compare(a.Name, b.Name) })
	return out, sqldb.Wrap(err, "listing agents of environment %s", environment)
}

// Agent implements store.Catalog. The runs of a live A/B variant are its base agent's.
func (s *Store) Agent(ctx context.Context, environment store.Key, name string) (out store.AgentSummary, err error) {
	a := &list{db: s.db, environment: environment}
	err = s.db.Snapshot(ctx, func(ctx context.Context, q sqldb.Queryer) error {
		a.only, a.agents = []string{name}, map[string]store.AgentSummary{}
		if err := a.addLive(ctx, q); err != nil {
			return err
		}
		if live := a.agents[name].Agent; live != nil && live.VariantOf != "" {
			a.only = append(a.only, live.VariantOf)
		}
		return a.addPast(ctx, q)
	})
	out, known := a.agents[name]
	if err == nil && !known {
		err = store.ErrNotFound
	}
	return out, sqldb.Wrap(err, "reading agent %q of environment %s", name, environment)
}

// nameCondition returns the condition that a column of names matches the list.
func (a *list) nameCondition(l *sqldb.Args, column string) string {
	if a.only == nil {
		return ``
	}
	return ` AND ` + column + ` IN ` + sqldb.AddTexts(l, a.only)
}

func (a *list) baseArgs() sqldb.Args {
	return sqldb.Args{Values: []any{a.environment.ProjectID, a.environment.ID}}
}

// addLive adds the agents of the live deployment.
func (a *list) addLive(ctx context.Context, q sqldb.Queryer) error {
	var live []store.Agent
	err := q.QueryRowContext(ctx, `SELECT d.agents
		FROM environments e JOIN deployments d ON d.project_id = e.project_id AND d.id = e.live_deployment_id
		WHERE e.project_id = $1 AND e.id = $2`, a.environment.ProjectID, a.environment.ID).Scan(sqldb.ScanJSON(&live))
	if err := sqldb.MapNoRows(err); err != nil && !errors.Is(err, store.ErrNotFound) {
		return sqldb.Wrap(err, "reading the live deployment")
	}
	for _, agent := range live {
		if a.only == nil || slices.Contains(a.only, agent.Name) {
			a.agents[agent.Name] = store.AgentSummary{Agent: &agent, Name: agent.Name}
		}
	}
	return nil
}

// addPast adds the agents of earlier deployments and of runs, with their counts. It marks linked agents.
func (a *list) addPast(ctx context.Context, q sqldb.Queryer) error {
	l := a.baseArgs()
	former, err := sqldb.Collect(ctx, q, sqldb.ScanText, `SELECT DISTINCT a.name
		FROM (SELECT id FROM deployments WHERE project_id = $1 AND environment_id = $2 AND status = 'deployed'
			ORDER BY sequence DESC LIMIT `+formerDeployments+`) d
		JOIN deployment_agents a ON a.project_id = $1 AND a.deployment_id = d.id AND a.variant_of = ''`+a.nameCondition(&l, "a.name"), l.Values...)
	if err != nil {
		return sqldb.Wrap(err, "reading the agents of earlier deployments")
	}
	for _, name := range former {
		if _, ok := a.agents[name]; !ok {
			a.agents[name] = store.AgentSummary{Name: name}
		}
	}
	if err := a.countRuns(ctx, q); err != nil {
		return sqldb.Wrap(err, "counting runs")
	}
	l = a.baseArgs()
	linked, err := sqldb.Collect(ctx, q, sqldb.ScanText, `SELECT DISTINCT l.agent_name
		FROM links l JOIN connectors c ON c.project_id = l.project_id AND c.id = l.connector_id
		WHERE c.project_id = $1 AND c.environment_id = $2 AND NOT (`+connectorrow.Sends+`)
			AND NOT c.retired AND NOT c.shadowed`+a.nameCondition(&l, "l.agent_name"), l.Values...)
	for _, name := range linked {
		if agent, ok := a.agents[name]; ok {
			agent.HasInboundConnector = true
			a.agents[name] = agent
		}
	}
	return sqldb.Wrap(err, "reading links")
}

// HasRuns implements store.Catalog.
func (s *Store) HasRuns(ctx context.Context, environment store.Key) (has bool, err error) {
	reader := s.db.Reader()
	err = reader.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM agent_totals t WHERE t.project_id = $1 AND t.environment_id = $2)
		OR EXISTS (SELECT 1 FROM open_runs r WHERE r.project_id = $1 AND r.environment_id = $2 AND r.status = 'running')
		OR EXISTS (SELECT 1 FROM open_runs r WHERE r.project_id = $1 AND r.environment_id = $2 AND r.status = 'awaiting_approval')
		OR EXISTS (SELECT 1 FROM open_runs r WHERE r.project_id = $1 AND r.environment_id = $2 AND r.status = 'queued' AND r.blocked = FALSE)
		OR EXISTS (SELECT 1 FROM open_runs r WHERE r.project_id = $1 AND r.environment_id = $2 AND r.blocked)`, environment.ProjectID, environment.ID).Scan(&has)
	if err == nil && !has {
		has, err = s.hasWaitingRuns(ctx, reader, environment)
	}
	return has, sqldb.Wrap(err, "reading the runs of environment %s", environment)
}

// hasWaitingRuns reports whether ended runs of an environment wait to be rolled up. An environment that never
// existed has none, so the outbox is not read for it.
func (s *Store) hasWaitingRuns(ctx context.Context, q sqldb.Queryer, environment store.Key) (has bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM environments e WHERE e.project_id = $1 AND e.id = $2)
		OR EXISTS (SELECT 1 FROM departed d WHERE d.project_id = $1 AND d.kind = '`+store.KindEnvironment+`' AND d.id = $2)`,
		environment.ProjectID, environment.ID).Scan(&has)
	if err != nil || !has {
		return false, err
	}
	waiting, err := statistics.WaitingRuns(ctx, s.db, q, environment, store.MaxWaiting)
	return len(waiting) > 0, err
}

// AgentConfig implements store.Catalog.
func (s *Store) AgentConfig(
	ctx context.Context, environment store.Key, name string,
) (deployment uuid.UUID, config json.RawMessage, err error) {
	err = s.db.Reader().QueryRowContext(ctx, `SELECT a.deployment_id, a.config FROM environments e
		JOIN deployment_agents a ON a.project_id = e.project_id AND a.deployment_id = e.live_deployment_id
		WHERE e.project_id = $1 AND e.id = $2 AND a.name = $3`, environment.ProjectID, environment.ID, sqldb.Text(name)).Scan(&deployment, sqldb.ScanJSON(&config))
	return deployment, config, sqldb.Wrap(sqldb.MapNoRows(err), "reading agent %q of environment %s", name, environment)
}

// count is the number of runs of an agent or of one of its variants.
type count struct {
	agent, testName string
	runs, queued    int64
	last            *time.Time
}

// countRuns fills in the counts, also for agents that no longer exist: open runs, runs that the
// outbox still names, and rolled up runs. A run of a variant counts for the variant and for its
// base agent.
func (a *list) countRuns(ctx context.Context, q sqldb.Queryer) error {
	open, err := runqueue.OpenQuery{DB: a.db, Only: a.only, Args: a.baseArgs(), Fresh: true}.Count(ctx, q)
	if err != nil {
		return err
	}
	var recent []count
	for _, n := range open {
		one := count{n.Agent, n.TestName, n.Runs, 0, n.Last}
		if n.Status == store.RunQueued {
			one.queued = n.Runs
		}
		recent = append(recent, one)
	}
	waiting, err := statistics.WaitingRuns(ctx, a.db, q, a.environment, store.MaxWaiting)
	if err != nil {
		return err
	}
	for _, run := range waiting {
		if a.only == nil || slices.Contains(a.only, run.Agent) {
			recent = append(recent, count{run.Agent, run.TestName, 1, 0, &run.EndedAt})
		}
	}
	a.addCounts(recent)
	names, err := a.countedAgents(ctx, q)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(names, namesAtOnce) {
		l := a.baseArgs()
		totals, err := sqldb.Collect(ctx, q, func(row sqldb.Scanner) (n count, err error) {
			err = row.Scan(&n.agent, &n.testName, &n.runs, sqldb.ScanNullTime(&n.last))
			return n, err
		}, `SELECT t.agent_name, t.test_name, t.runs, t.last_ended_at
			FROM agent_totals t WHERE t.project_id = $1 AND t.environment_id = $2 AND t.agent_name IN `+sqldb.AddTexts(&l, some), l.Values...)
		if err != nil {
			return err
		}
		a.addCounts(totals)
	}
	return nil
}

const (
	// namesAtOnce is the number of agents per statement.
	namesAtOnce = 500
	// maxTotals is the approximate number of rows that are read for agent names. An agent has a row
	// for each variant that it ever had.
	maxTotals = 16 * store.MaxPastAgents
)

// countedAgents returns the agents for counts of ended runs. Without a request, these are the known agents
// and the other agents with the latest runs. Links can create any number of names.
func (a *list) countedAgents(ctx context.Context, q sqldb.Queryer) ([]string, error) {
	if a.only != nil {
		return a.only, nil
	}
	for most := store.MaxPastAgents + len(a.agents); ; most *= 2 {
		last, err := sqldb.Collect(ctx, q, sqldb.ScanText, `SELECT t.agent_name FROM agent_totals t WHERE t.project_id = $1 AND t.environment_id = $2
			ORDER BY t.last_ended_at DESC LIMIT $3`, a.environment.ProjectID, a.environment.ID, most)
		if err != nil {
			return nil, err
		}
		names, past := slices.Sorted(maps.Keys(a.agents)), map[string]bool{}
		for _, name := range last {
			if _, known := a.agents[name]; !known && !past[name] && len(past) < store.MaxPastAgents {
				past[name], names = true, append(names, name)
			}
		}
		if len(past) == store.MaxPastAgents || len(last) < most || most >= maxTotals {
			return names, nil
		}
	}
}

// addCounts adds counts to their agents.
func (a *list) addCounts(all []count) {
	variants := map[[2]string]string{}
	for name, agent := range a.agents {
		if agent.Agent != nil && agent.Agent.VariantOf != "" {
			variants[[2]string{agent.Agent.VariantOf, agent.Agent.TestName}] = name
		}
	}
	for _, n := range all {
		a.agents[n.agent] = n.addTo(a.agents[n.agent], n.agent)
		if name, ok := variants[[2]string{n.agent, n.testName}]; ok {
			a.agents[name] = n.addTo(a.agents[name], name)
		}
	}
}

func (n count) addTo(a store.AgentSummary, name string) store.AgentSummary {
	a.Name, a.RunCount, a.QueueCount = name, a.RunCount+n.runs, a.QueueCount+n.queued
	if a.LastActivityAt == nil || n.last != nil && n.last.After(*a.LastActivityAt) {
		a.LastActivityAt = n.last
	}
	return a
}
