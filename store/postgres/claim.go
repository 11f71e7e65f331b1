// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlcore"
)

// The statements of a look, in this order, so that a claim which commits in between
// is seen by the pool's version.
const (
	// poolStatement reads the pool, and whether the runner is recorded as it is.
	poolStatement = `SELECT e.live_deployment_id, p.version, p.served, p.turns,
			(SELECT COALESCE(sum(w.places), 0) FROM runners w WHERE w.project_id = $1 AND w.environment_id = $2
				AND w.id <> $3 AND w.seen_at > now_us() - $7::bigint)::bigint,
			EXISTS (SELECT 1 FROM runners w WHERE w.project_id = $1 AND w.environment_id = $2 AND w.id = $3
				AND w.places = $4 AND w.digests = $5 AND w.seen_at > now_us() - $6::bigint)
		FROM environments e JOIN pools p ON p.project_id = e.project_id AND p.environment_id = e.id
		WHERE e.project_id = $1 AND e.id = $2`
	// busyStatement counts what is under way.
	busyStatement = `SELECT agent_name, count(*), count(*) FILTER (WHERE class > 0 AND fresh) FROM open_runs
		WHERE project_id = $1 AND environment_id = $2 AND status = 'running' GROUP BY agent_name`
)

// waitingStatement reads the heads of the queue: of each agent and class at most $3
// runs that may be claimed by now.
var waitingStatement = `WITH RECURSIVE ` + sqlcore.QueuedLines("ctid", sqlcore.QueuedHere) + `
	SELECT h.id, c.class, c.agent_name, h.fresh, h.input_id, h.deployment_id, d.bundle_digest, a.max_concurrent_runs,
		CASE WHEN h.keyless THEN COALESCE(a.concurrency_expression, '') ELSE '' END, COALESCE(a.concurrency_drop, FALSE)
	FROM (SELECT q.address FROM q WHERE q.address IS NOT NULL LIMIT ` + strconv.Itoa(sqlcore.MaxLines) + `) l
	JOIN open_runs c ON c.ctid = l.address
	JOIN environments e ON e.project_id = $1 AND e.id = $2 AND e.live_deployment_id IS NOT NULL
	CROSS JOIN LATERAL (SELECT n.id, n.fresh, n.input_id, COALESCE(n.deployment_id, e.live_deployment_id) AS deployment_id,
			n.concurrency_key IS NULL AS keyless FROM open_runs n
		WHERE n.status = 'queued' AND NOT n.blocked AND n.project_id = $1 AND n.environment_id = $2 AND n.class = c.class AND n.agent_name = c.agent_name
			AND n.not_before <= now_us() ORDER BY n.fresh, n.id LIMIT $3) h
	LEFT JOIN deployments d ON d.project_id = $1 AND d.id = h.deployment_id
	LEFT JOIN deployment_agents a ON a.project_id = $1 AND a.deployment_id = h.deployment_id AND a.name = c.agent_name`

// Look implements sqlcore.Engine, in one round trip.
func (e engine) Look(ctx context.Context, c store.Claim) (look sqlcore.Look, err error) {
	look.Pool = store.Pool{Running: map[string]int{}}
	batch := &pgx.Batch{}
	project, environment := c.Environment.ProjectID, c.Environment.ID
	batch.Queue(poolStatement, project, environment, sqlcore.Text(c.RunnerID), c.Places, sqlcore.Digests(c),
		sqlcore.RunnerSeenEvery.Microseconds(), store.RunnerPresence.Microseconds()).QueryRow(func(row pgx.Row) error {
		return scanPool(row, c, &look)
	})
	batch.Queue(busyStatement, project, environment).Query(func(rows pgx.Rows) error {
		var (
			agent      string
			runs, some int
		)
		_, err := pgx.ForEachRow(rows, []any{&agent, &runs, &some}, func() error {
			look.Pool.Running[agent] = runs
			look.Pool.Lower += some
			return nil
		})
		return err
	})
	batch.Queue(sqlcore.LeasedStatement, project, environment, sqlcore.Text(c.RunnerID)).Query(func(rows pgx.Rows) error {
		l := store.Lease{Run: store.Key{ProjectID: project}}
		_, err := pgx.ForEachRow(rows, []any{&l.Run.ID, &l.Token}, func() error {
			look.Leased = append(look.Leased, l)
			return nil
		})
		return err
	})
	if c.Limit > 0 {
		batch.Queue(waitingStatement, project, environment, c.Limit).Query(func(rows pgx.Rows) (err error) {
			look.Waiting, err = pgx.CollectRows(rows, scanWaiting)
			return err
		})
	}
	return look, e.pools[0].SendBatch(ctx, batch).Close()
}

func scanPool(row pgx.Row, c store.Claim, look *sqlcore.Look) error {
	var (
		turns  string
		others int
	)
	err := row.Scan(&look.Live, &look.Version, &look.Pool.Served, &turns, &others, &look.Seen)
	if errors.Is(err, pgx.ErrNoRows) { // the environment is gone
		look.Seen = true
		return nil
	}
	if err != nil {
		return err
	}
	look.Pool.Places = others + c.Places
	return json.Unmarshal([]byte(turns), &look.Pool.Turns)
}

func scanWaiting(row pgx.CollectableRow) (w sqlcore.Waiting, err error) {
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

// startStatement starts the runs that were decided on, unless the pool has another
// version by now: then it has no row, and one with nothing but NULL when none of them
// is queued any more. The status is asked for in a way that no index answers: the planner
// may take the queue for so short that it reads all of it instead of looking for ids.
var startStatement = `WITH pool AS (
	UPDATE pools SET version = version + 1, served = $4, turns = $5
	WHERE project_id = $1 AND environment_id = $2 AND version = $3 RETURNING version
), r AS (
	UPDATE open_runs u SET status = 'running', attempt = u.attempt + 1, token = ((u.attempt + 1) << ` + strconv.Itoa(sqlcore.TokenBits) + `) | g.salt,
		runner_id = $6, lease_until = now_us() + $7::bigint, started_at = COALESCE(u.started_at, now_us()), deployment_id = g.deployment_id
	FROM pool, unnest($8::uuid[], $9::uuid[], $10::bigint[]) AS g (id, deployment_id, salt)
	WHERE u.project_id = $1 AND u.id = g.id AND u.status || '' = 'queued' AND NOT u.blocked RETURNING u.*
) SELECT pool.version, COALESCE(r.id IS NOT NULL, FALSE), ` + sqlcore.StartedColumns + `
FROM pool LEFT JOIN r ON TRUE LEFT JOIN deployments d ON d.project_id = r.project_id AND d.id = r.deployment_id`

// Start implements sqlcore.Engine. The inputs are read in the same round trip; where
// a part of history with one is not there, for itself.
func (e engine) Start(ctx context.Context, c store.Claim, s sqlcore.Start) (started []store.Claimed, current bool, err error) {
	var inputs map[uuid.UUID]sqlcore.Input
	err = again(func() (err error) {
		started, inputs, current, err = e.start(ctx, c, s, true)
		return err
	})
	if hasCode(err, undefinedTable) {
		started, inputs, current, err = e.start(ctx, c, s, false)
	}
	if err != nil {
		return nil, false, err
	}
	for i := range started {
		in := inputs[s.Runs[s.Order(started[i].Run.ID)].Input]
		started[i].Input, started[i].InputBlob, started[i].ContentType = in.Data, in.Blob, in.ContentType
	}
	return started, current, nil
}

func (e engine) start(ctx context.Context, c store.Claim, s sqlcore.Start, withInputs bool) (
	started []store.Claimed, inputs map[uuid.UUID]sqlcore.Input, current bool, err error,
) {
	var run, deployment []pgtype.UUID
	ids := make([]uuid.UUID, len(s.Runs))
	for i, w := range s.Runs {
		run, deployment, ids[i] = append(run, known(w.ID)), append(deployment, known(w.Deployment)), w.Input
	}
	batch, by := &pgx.Batch{}, make([]*store.Claimed, len(s.Runs))
	batch.Queue(startStatement, c.Environment.ProjectID, c.Environment.ID, s.Version, s.Pool.Served,
		sqlcore.Turns(s.Pool.Turns), sqlcore.Text(c.RunnerID), c.Lease.Microseconds(), run, deployment, s.Salts).
		Query(func(rows pgx.Rows) error {
			for rows.Next() {
				current = true
				claimed, ok, err := scanStarted(rows)
				if err != nil {
					return err
				}
				if ok {
					by[s.Order(claimed.Run.ID)] = &claimed
				}
			}
			return rows.Err()
		})
	inputs = map[uuid.UUID]sqlcore.Input{}
	if withInputs {
		for _, same := range e.ByPart("inputs", ids) {
			batch.Queue(e.InPart(sqlcore.InputStatement, same[0]), c.Environment.ProjectID, uuids(same)).Query(func(rows pgx.Rows) error {
				for rows.Next() {
					in, err := sqlcore.ScanInput(rows)
					if err != nil {
						return err
					}
					inputs[in.ID] = in
				}
				return rows.Err()
			})
		}
	}
	if err := e.pools[0].SendBatch(ctx, batch).Close(); err != nil {
		return nil, nil, false, err
	}
	if !withInputs {
		if inputs, err = e.Inputs(ctx, e.db, c.Environment.ProjectID, ids); err != nil {
			return nil, nil, false, err
		}
	}
	for _, claimed := range by {
		if claimed != nil {
			started = append(started, *claimed)
		}
	}
	return started, inputs, current, nil
}

func uuids(ids []uuid.UUID) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		out[i] = known(id)
	}
	return out
}

// started is a row of startStatement but for its first two columns.
type startedRow struct{ rows pgx.Rows }

// Scan implements sqlcore's scanner.
func (r startedRow) Scan(dest ...any) error {
	var (
		version int64
		ok      bool
	)
	return r.rows.Scan(append([]any{&version, &ok}, dest...)...)
}

func scanStarted(rows pgx.Rows) (claimed store.Claimed, ok bool, err error) {
	values, err := rows.Values()
	if err != nil {
		return claimed, false, fmt.Errorf("reading a claimed run: %w", err)
	}
	if ok, _ = values[1].(bool); !ok {
		return claimed, false, nil
	}
	claimed, _, err = sqlcore.ScanStarted(startedRow{rows})
	return claimed, true, err
}

// Attend implements sqlcore.Engine.
func (e engine) Attend(ctx context.Context, q sqlcore.Queryer, runners []store.RunnerKey) error {
	var (
		project, environment []pgtype.UUID
		id                   []string
	)
	for _, r := range runners {
		project, environment = append(project, known(r.Environment.ProjectID)), append(environment, known(r.Environment.ID))
		id = append(id, sqlcore.Text(r.ID))
	}
	_, err := q.ExecContext(ctx, `UPDATE runners w SET seen_at = now_us() FROM unnest($1::uuid[], $2::uuid[], $3::text[])
		AS r (project_id, environment_id, id) WHERE w.project_id = r.project_id AND w.environment_id = r.environment_id AND w.id = r.id`,
		project, environment, id)
	return err
}
