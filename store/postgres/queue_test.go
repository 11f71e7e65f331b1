// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"crypto/md5"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
)

// With 150,000 queued runs of 50 agents, 120,000 blocked runs and as many keys, the figures read no
// more rows than they can count.
func TestQueueFigures_ReadLimitedRows(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	admin, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	for _, statement := range []string{
		`INSERT INTO open_runs (project_id, id, environment_id, agent_name, input_id, status, class, queued_at)
			SELECT md5('project')::uuid, stamp(md5(n::text)::uuid, now_us(), n), md5('environment')::uuid, 'agent-' || n % 50, md5('input')::uuid, 'queued', 1, now_us()
			FROM generate_series(1, 150000) n`,
		`INSERT INTO open_runs (project_id, id, environment_id, agent_name, input_id, status, class, concurrency_key, blocked, queued_at)
			SELECT md5('project')::uuid, stamp(md5('b' || n)::uuid, now_us(), n), md5('environment')::uuid, 'agent', md5('input')::uuid, 'queued', 1, 'key', TRUE, now_us()
			FROM generate_series(1, 120000) n`,
		`INSERT INTO concurrency_slots (project_id, environment_id, agent_name, key, run_id)
			SELECT md5('project')::uuid, md5('environment')::uuid, 'agent', 'key-' || n, md5('b' || n)::uuid FROM generate_series(1, 120000) n`,
		`VACUUM ANALYZE open_runs`, `VACUUM ANALYZE concurrency_slots`,
	} {
		_, err := admin.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NoError(t, admin.Close(t.Context()))
	var seen plans
	s, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn}.Tuned(seen.recordPlans("force_generic_plan")))
	require.NoError(t, err)
	figures, err := s.QueueFigures(t.Context())
	require.NoError(t, err)
	project, environment := uuid.UUID(md5.Sum([]byte("project"))), uuid.UUID(md5.Sum([]byte("environment")))
	_, err = s.Agents(t.Context(), store.Key{ProjectID: project, ID: environment})
	require.NoError(t, err)
	of := store.StatisticsQuery{Environment: store.Key{ProjectID: project, ID: environment}, AgentName: "agent-7", Since: time.Now().Add(-time.Hour)}
	numbers, err := s.RunStatistics(t.Context(), of)
	require.NoError(t, err)
	require.EqualValues(t, 3000, numbers.Runs[store.RunQueued])
	require.NoError(t, s.Close())
	require.NoError(t, seen.err)
	depth := figures.Queued[store.QueueNoDeployment][store.ClassInbound]
	require.EqualValues(t, 50*(store.MaxQueueCounted/50), depth.Runs)
	require.EqualValues(t, store.MaxQueueCounted, figures.KeysHeld)
	require.EqualValues(t, store.MaxQueueCounted, figures.Blocked)
	counting, queues := 0, 0
	for _, p := range seen.all {
		queues += countedByIndexes(t, p)
		p.Plan.walk(func(n node) {
			if n.Type == "Aggregate" && len(n.Plans) == 1 && n.Plans[0].Type == "Limit" {
				scans := n.Plans[0].Plans
				if scans[0].Type == "Append" { // of all outboxes
					scans = scans[0].Plans
				}
				for _, scan := range scans {
					require.Equal(t, "Index Only Scan", scan.Type, n.text(0))
				}
				counting++
			}
		})
	}
	require.Equal(t, 2, queues, "of the list of agents, and of rollups")
	require.Equal(t, 6, counting, "of the queue, keys, blocked runs, rows set aside, and the oldest outbox rows of stored bytes and of traces")
}

// countedByIndexes returns how many queues a plan counts: each index-only. For blocked runs it
// reads no row of another agent.
func countedByIndexes(t *testing.T, p plan) (queues int) {
	t.Helper()
	if !strings.Contains(p.Statement, "lines AS MATERIALIZED") {
		return 0
	}
	blocked := int64(-1)
	p.Plan.walk(func(n node) {
		if n.Type == "Aggregate" && n.Plans[0].Index == "open_runs_queued" {
			require.Equal(t, "Index Only Scan", n.Plans[0].Type, p.Plan.text(0))
			queues++
		}
		if n.Index == "open_runs_blocked" {
			blocked = n.Hit + n.Read
		}
	})
	require.GreaterOrEqual(t, blocked, int64(0), p.Plan.text(0))
	if strings.Contains(p.Statement, "IN ($") { // one agent, which has none
		require.Less(t, blocked, int64(10), p.Plan.text(0))
	}
	return queues
}
