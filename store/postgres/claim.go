// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/openrun"
	"github.com/agentplatform/agentplatform/store/runqueue"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// The statements of a look. This order lets the pool's version show a claim that commits in
// between.
const (
	// poolStatement reads the pool, and whether the record of the runner is current.
	poolStatement = `SELECT e.live_deployment_id, p.version, p.served, p.turns,
			(SELECT COALESCE(sum(w.places), 0) FROM runners w WHERE w.project_id = $1 AND w.environment_id = $2
				AND w.id <> $3 AND w.seen_at > now_us() - $7::bigint)::bigint,
			EXISTS (SELECT 1 FROM runners w WHERE w.project_id = $1 AND w.environment_id = $2 AND w.id = $3
				AND w.places = $4 AND w.digests = $5 AND w.seen_at > now_us() - $6::bigint)
		FROM environments e JOIN pools p ON p.project_id = e.project_id AND p.environment_id = e.id
		WHERE e.project_id = $1 AND e.id = $2`
	// busyStatement counts the runs in progress, and reads the claims of the runner. One statement
	// does both, because each one walks over dead rows that are not vacuumed yet.
	busyStatement = `SELECT agent_name, count(*), count(*) FILTER (WHERE class > 0 AND fresh),
			COALESCE(array_agg(id) FILTER (WHERE runner_id = $3), '{}'), COALESCE(array_agg(token) FILTER (WHERE runner_id = $3), '{}')
		FROM open_runs WHERE project_id = $1 AND environment_id = $2 AND status = 'running' GROUP BY agent_name`
)

// waitingStatement reads the heads of the queues: the first claimable runs of each queue. It starts
// at the first run that the walk has found, and does not walk again over the runs that have left
// the queue before it.
var waitingStatement = `WITH RECURSIVE ` + runqueue.WalkQueues("ctid", runqueue.InEnvironment) + `,
	l AS (SELECT q.address FROM q WHERE q.address IS NOT NULL LIMIT ` + strconv.Itoa(runqueue.MaxQueues) + `)
	SELECT h.id, c.class, c.agent_name, c.fresh, h.input_id, h.deployment_id, d.bundle_digest, a.max_concurrent_runs,
		CASE WHEN h.keyless THEN COALESCE(a.concurrency_expression, '') ELSE '' END, COALESCE(a.concurrency_drop, FALSE)
	FROM l JOIN open_runs c ON c.ctid = l.address
	JOIN environments e ON e.project_id = $1 AND e.id = $2 AND e.live_deployment_id IS NOT NULL
	CROSS JOIN LATERAL (SELECT n.id, n.input_id, COALESCE(n.deployment_id, e.live_deployment_id) AS deployment_id,
			n.concurrency_key IS NULL AS keyless FROM open_runs n
		WHERE n.status = 'queued' AND n.blocked = FALSE AND n.project_id = $1 AND n.environment_id = $2 AND n.class = c.class AND n.agent_name = c.agent_name
			AND n.fresh = c.fresh AND n.id >= c.id AND n.not_before <= now_us() ORDER BY n.id
		LIMIT ` + runqueue.HeadsOf("$3::bigint", "(SELECT count(*) FROM l)") + `) h
	LEFT JOIN deployments d ON d.project_id = $1 AND d.id = h.deployment_id
	LEFT JOIN deployment_agents a ON a.project_id = $1 AND a.deployment_id = h.deployment_id AND a.name = c.agent_name AND a.variant_of = ''`

// Look implements openrun.Engine, in one round trip.
func (e engine) Look(ctx context.Context, c store.Claim) (look openrun.Look, err error) {
	look.Pool = store.Pool{Running: map[string]int{}}
	batch := &pgx.Batch{}
	project, environment := c.Environment.ProjectID, c.Environment.ID
	batch.Queue(poolStatement, project, environment, sqldb.Text(c.RunnerID), c.Slots, openrun.Digests(c),
		openrun.RunnerSeenEvery.Microseconds(), store.RunnerPresence.Microseconds()).QueryRow(func(row pgx.Row) error {
		return scanPool(row, c, &look)
	})
	batch.Queue(busyStatement, project, environment, sqldb.Text(c.RunnerID)).Query(func(rows pgx.Rows) error {
		return readBusy(rows, project, &look)
	})
	if c.Limit > 0 {
		batch.Queue(waitingStatement, project, environment, c.Limit).Query(func(rows pgx.Rows) (err error) {
			look.Waiting, err = pgx.CollectRows(rows, scanWaiting)
			return err
		})
	}
	return look, e.pools[0].SendBatch(ctx, batch).Close()
}

func readBusy(rows pgx.Rows, project uuid.UUID, look *openrun.Look) error {
	var (
		agent       string
		runs, lower int
		ids         []uuid.UUID
		tokens      []int64
	)
	_, err := pgx.ForEachRow(rows, []any{&agent, &runs, &lower, &ids, &tokens}, func() error {
		look.Pool.Running[agent] = runs
		look.Pool.Lower += lower
		for i, id := range ids {
			look.Leased = append(look.Leased, store.Lease{Run: store.Key{ProjectID: project, ID: id}, Token: tokens[i]})
		}
		return nil
	})
	return err
}

func scanPool(row pgx.Row, c store.Claim, look *openrun.Look) error {
	var (
		turns  string
		others int
	)
	err := row.Scan(&look.Live, &look.Version, &look.Pool.Served, &turns, &others, &look.Seen)
	if errors.Is(err, pgx.ErrNoRows) { // the environment is deleted
		look.Seen = true
		return nil
	}
	if err != nil {
		return err
	}
	look.Pool.Slots = others + c.Slots
	return json.Unmarshal([]byte(turns), &look.Pool.LastAgents)
}

func scanWaiting(row pgx.CollectableRow) (w openrun.Waiting, err error) {
	var (
		digest *string
		most   *int
	)
	err = row.Scan(&w.ID, &w.Class, &w.Agent, &w.Fresh, &w.Input, &w.Deployment, &digest, &most, &w.Concurrency.Expression, &w.Concurrency.Drop)
	if digest != nil {
		w.Digest = *digest
	}
	if w.Known = most != nil; w.Known {
		w.Max = *most
	}
	return w, err
}

// runnerRows are the columns of runners.
var runnerRows = rowset[store.RunnerKey]{
	uuidColumn("project_id", func(r *store.RunnerKey) uuid.UUID { return r.Environment.ProjectID }),
	uuidColumn("environment_id", func(r *store.RunnerKey) uuid.UUID { return r.Environment.ID }),
	columnOf("id", func(r *store.RunnerKey) string { return sqldb.Text(r.ID) }),
}

var attendStatement = `UPDATE runners w SET seen_at = now_us() FROM ` + runnerRows.fromClause(1, "r") + `
	WHERE w.project_id = r.project_id AND w.environment_id = r.environment_id AND w.id = r.id`

// Attend implements openrun.Engine.
func (e engine) Attend(ctx context.Context, q sqldb.Queryer, runners []store.RunnerKey) error {
	_, err := q.ExecContext(ctx, attendStatement, runnerRows.arguments(runners)...)
	return err
}
