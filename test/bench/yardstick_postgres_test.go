// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	_ "embed"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
)

//go:embed yardstick/postgres.sql
var postgresTables string

// These are the statements of a run, one transaction each. They match the statements of the store from the time when open and
// ended runs shared a table.
const (
	postgresAccept = `WITH ev AS MATERIALIZED (
	SELECT e.*,
		COALESCE((SELECT c.version FROM connectors c WHERE c.id = e.connector_id) = e.version, FALSE) AS current,
		e.input_blob IS NULL OR COALESCE((SELECT b.complete FROM blobs b WHERE b.id = e.input_blob), FALSE) AS whole
	FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::bigint[], $6::text[], $7::bytea[], $8::uuid[],
		$9::text[], $10::bigint[], $11::bigint[], $12::text[], $13::bytea[], $14::bigint[])
		AS e (id, project_id, environment_id, connector_id, version, trigger_type, input, input_blob,
			content_type, open_runs, failed_runs, key, fingerprint, ttl)
), keyed AS (
	INSERT INTO idempotency_keys AS k (connector_id, key, fingerprint, connector_run_id, expires_at)
	SELECT connector_id, key, fingerprint, id, now_us() + ttl FROM ev
	WHERE current AND whole AND key IS NOT NULL ORDER BY connector_id, key
	ON CONFLICT (connector_id, key) DO UPDATE SET fingerprint = excluded.fingerprint,
		connector_run_id = excluded.connector_run_id, expires_at = excluded.expires_at
	WHERE k.expires_at <= now_us()
	RETURNING connector_run_id
), chosen AS MATERIALIZED (
	SELECT * FROM ev WHERE current AND whole AND (key IS NULL OR id IN (SELECT connector_run_id FROM keyed))
), connector_rows AS (
	INSERT INTO connector_runs (id, project_id, environment_id, connector_id, status, trigger_type, input,
		input_blob, content_type, open_runs, failed_runs, started_at, ended_at)
	SELECT id, project_id, environment_id, connector_id,
		CASE WHEN open_runs > 0 THEN 'running' WHEN failed_runs > 0 THEN 'failed' ELSE 'completed' END,
		trigger_type, input, input_blob, content_type, open_runs, failed_runs, now_us(),
		CASE WHEN open_runs = 0 THEN now_us() END
	FROM chosen
), agent_rows AS (
	INSERT INTO agent_runs (id, project_id, environment_id, connector_id, connector_run_id, link_id, position,
		agent_name, status, error_code, error, queued_at, ended_at)
	SELECT r.id, r.project_id, r.environment_id, r.connector_id, r.connector_run_id, r.link_id, r.position,
		r.agent_name, CASE WHEN r.error_code = '' THEN 'queued' ELSE 'failed' END, r.error_code, r.error, now_us(),
		CASE WHEN r.error_code <> '' THEN now_us() END
	FROM unnest($15::uuid[], $16::uuid[], $17::uuid[], $18::uuid[], $19::uuid[], $20::uuid[], $21::bigint[],
		$22::text[], $23::text[], $24::text[])
		AS r (id, project_id, environment_id, connector_id, connector_run_id, link_id, position, agent_name,
			error_code, error)
	WHERE (r.connector_run_id IN (SELECT id FROM chosen)) IS TRUE
)
SELECT (id IN (SELECT id FROM chosen)) IS TRUE FROM ev`

	postgresClaim = `WITH seen AS (
	INSERT INTO runners (environment_id, id, seen_at, digests)
	SELECT $1::uuid, $2::text, now_us(), $3::text WHERE NOT EXISTS (SELECT 1 FROM runners w
		WHERE w.environment_id = $1::uuid AND w.id = $2::text AND w.digests = $3::text AND w.seen_at > now_us() - $4::bigint)
	ON CONFLICT (environment_id, id) DO UPDATE SET seen_at = excluded.seen_at, digests = excluded.digests
), picked AS MATERIALIZED (
	SELECT q.id, q.agent_name, COALESCE(q.deployment_id, e.live_deployment_id) AS deployment_id
	FROM agent_runs q JOIN environments e ON e.id = q.environment_id
	WHERE q.environment_id = $1::uuid AND q.status = 'queued' AND e.live_deployment_id IS NOT NULL
	ORDER BY q.id LIMIT $5 FOR UPDATE OF q SKIP LOCKED
), p AS MATERIALIZED (
	SELECT picked.*, EXISTS (SELECT 1 FROM deployment_agents a
		WHERE a.deployment_id = picked.deployment_id AND a.name = picked.agent_name) AS known FROM picked
), r AS (
	UPDATE agent_runs u SET
		fencing_token = u.fencing_token + 1, runner_id = $2::text, started_at = COALESCE(u.started_at, now_us()),
		deployment_id = p.deployment_id,
		status = CASE WHEN p.known THEN 'running' ELSE 'failed' END,
		lease_until = CASE WHEN p.known THEN now_us() + $6::bigint END,
		ended_at = CASE WHEN p.known THEN NULL ELSE now_us() END,
		error_code = CASE WHEN p.known THEN '' ELSE 'agent_not_found' END,
		error = CASE WHEN p.known THEN '' ELSE 'the live deployment has no agent named "' || p.agent_name || '"' END
	FROM p WHERE u.id = p.id RETURNING u.*
), lost AS (
	SELECT connector_run_id, count(*) AS runs FROM r WHERE status = 'failed' GROUP BY connector_run_id
), ended AS (
	UPDATE connector_runs c SET open_runs = c.open_runs - l.runs, failed_runs = c.failed_runs + l.runs,
		status = CASE WHEN c.open_runs > l.runs THEN c.status ELSE 'failed' END,
		ended_at = CASE WHEN c.open_runs > l.runs THEN c.ended_at ELSE now_us() END
	FROM lost l WHERE c.id = l.connector_run_id
) SELECT r.id, r.fencing_token, r.project_id, r.environment_id, r.agent_name, r.connector_id, r.connector_run_id, r.link_id,
	r.deployment_id, r.status, r.error_code, r.error, r.output, r.input_tokens, r.output_tokens, r.thinking_tokens,
	r.cached_input_tokens, r.total_tokens, r.queued_at, r.started_at, r.ended_at, r.lease_until, r.journal_length,
	d.bundle_digest, c.input, c.input_blob, c.content_type
FROM r LEFT JOIN connector_runs c ON c.id = r.connector_run_id LEFT JOIN deployments d ON d.id = r.deployment_id
ORDER BY r.id`

	postgresComplete = `WITH run AS (
	UPDATE agent_runs u SET status = $3::text, error_code = $4, error = $5, output = $6, input_tokens = $7,
		output_tokens = $8, thinking_tokens = $9, cached_input_tokens = $10, total_tokens = $11,
		completion_token = $2::bigint, lease_until = NULL, ended_at = now_us(), open_tools = 0,
		journal_length = GREATEST(u.journal_length, $14::bigint)
	WHERE u.id = $1::uuid AND u.fencing_token = $2::bigint AND u.status = 'running'
		AND ($13::bigint = 0 OR u.journal_length = $13::bigint - 1
			OR u.journal_length >= $13::bigint AND NOT EXISTS (SELECT 1 FROM journal j WHERE j.run_id = $1::uuid
				AND j.sequence BETWEEN $13::bigint AND $14::bigint AND j.token <> $2::bigint))
	RETURNING u.id, u.connector_run_id
), entries AS (
	INSERT INTO journal (run_id, sequence, token, kind, data, unsafe)
	SELECT run.id, e.sequence, $2::bigint, e.kind, e.data, e.unsafe
	FROM run, unnest($15::bigint[], $16::text[], $17::text[], $18::boolean[]) AS e (sequence, kind, data, unsafe)
	ON CONFLICT (run_id, sequence) DO NOTHING
), ended AS (
	UPDATE connector_runs c SET open_runs = c.open_runs - 1, failed_runs = c.failed_runs + $12::bigint,
		status = CASE WHEN c.open_runs > 1 THEN c.status WHEN c.failed_runs + $12::bigint > 0 THEN 'failed' ELSE 'completed' END,
		ended_at = CASE WHEN c.open_runs > 1 THEN c.ended_at ELSE now_us() END
	FROM run WHERE c.id = run.connector_run_id RETURNING c.id, c.open_runs
) SELECT COALESCE(ended.open_runs, 0) FROM run LEFT JOIN ended ON TRUE`
)

// yardstickPostgres creates a yardstick in a new database, with a connection for each client.
func yardstickPostgres(tb testing.TB) *yardstick {
	tb.Helper()
	dsn := testenv.Postgres(tb)
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(tb, err)
	config.MaxConns = postgresClients
	config.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	pool, err := pgxpool.NewWithConfig(tb.Context(), config)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	s := newScene()
	_, err = pool.Exec(tb.Context(), postgresTables+s.rows())
	require.NoError(tb, err)
	return &yardstick{
		clients: postgresClients, dsn: dsn,
		insert: func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				id, now := newID(), time.Now().UnixMicro()
				if _, err := tx.Exec(ctx, insertConnectorRun, id, s.project, s.environment, s.connector, body, now); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, insertAgentRun, newID(), s.project, s.environment, s.connector, id, s.link, now)
				return err
			})
		},
		run: func(ctx context.Context) error { return s.runPostgres(ctx, pool) },
	}
}

// runPostgres accepts a run, claims one and completes that.
func (s scene) runPostgres(ctx context.Context, pool *pgxpool.Pool) error {
	one := func(id uuid.UUID) []uuid.UUID { return []uuid.UUID{id} }
	none := []*string{nil}
	event := newID()
	var accepted bool
	if err := pool.QueryRow(ctx, postgresAccept, one(event), one(s.project), one(s.environment), one(s.connector), []int64{1},
		[]string{"webhook"}, [][]byte{input}, []*uuid.UUID{nil}, []string{"application/json"}, []int64{1}, []int64{0}, none, [][]byte{nil}, []int64{0},
		one(newID()), one(s.project), one(s.environment), one(s.connector), one(event), one(s.link), []int64{0},
		[]string{agentName}, []string{""}, []string{""}).Scan(&accepted); err != nil || !accepted {
		return cmpErr(err, errNotAccepted)
	}
	var (
		run   uuid.UUID
		token int64
	)
	for run == uuid.Nil { // other clients may have locked all rows that the query saw
		rows, err := pool.Query(ctx, postgresClaim, s.environment, "yardstick", "[]", seenEvery.Microseconds(), 1, leaseTime.Microseconds())
		if err != nil {
			return err
		}
		for rows.Next() {
			values, err := rows.Values()
			if err != nil {
				return err
			}
			run, token = values[0].([16]byte), values[1].(int64)
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	var open int64
	return pool.QueryRow(ctx, postgresComplete, run, token, "completed", "", "", output, 100, 50, 0, 0, 150, 0,
		1, 1, []int64{1}, []string{"model_answer"}, []string{answer}, []bool{false}).Scan(&open)
}
