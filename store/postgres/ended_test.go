// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store/postgres"
)

// During a long transaction, dead entries of ended runs stay in the indexes of the queue and of
// running runs. A look walks over them once per index, not once for each value that it needs.
func TestLook_WalksDeadRowsOncePerIndex(t *testing.T) {
	t.Parallel()
	const ended = 2000
	dsn := migrated(t)
	lasting, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	db, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	const enqueue = `INSERT INTO open_runs (project_id, id, environment_id, agent_name, input_id, status, class, queued_at)
		SELECT md5('project')::uuid, stamp(md5(n::text)::uuid, now_us(), n), md5('environment')::uuid, 'agent', md5('input')::uuid, 'queued', 1, now_us()
		FROM generate_series(1, $1::int) n`
	exec := func(statement string, arguments ...any) {
		t.Helper()
		_, err := db.Exec(t.Context(), statement, arguments...)
		require.NoError(t, err)
	}
	exec(`INSERT INTO environments (project_id, id, display_name, wanted_slug, slug, kind, object_created_at, is_default,
			live_deployment_id, live_rank, live_activated_at, wanted_bundle_digest, created_at)
		VALUES (md5('project')::uuid, md5('environment')::uuid, '', '', '', '', 0, FALSE, md5('deployment')::uuid, 0, 0, '', 0)`)
	exec(enqueue, ended)
	_, err = lasting.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ`)
	require.NoError(t, err)
	_, err = lasting.Exec(t.Context(), `SELECT count(*) FROM open_runs`)
	require.NoError(t, err)
	exec(`UPDATE open_runs SET status = 'running', runner_id = 'runner', lease_until = 0, deployment_id = md5('deployment')::uuid, attempt = 1`)
	exec(`DELETE FROM open_runs`)
	exec(enqueue, 3)
	exec(`ANALYZE open_runs`)

	var project, environment uuid.UUID
	require.NoError(t, db.QueryRow(t.Context(), `SELECT md5('project')::uuid, md5('environment')::uuid`).Scan(&project, &environment))
	exec(`SET plan_cache_mode = force_generic_plan`)
	exec(postgres.Planning)
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	read := func(index, statement string, arguments ...any) (rows, entries int) {
		t.Helper()
		found, err := tx.Query(t.Context(), statement, arguments...)
		require.NoError(t, err)
		for found.Next() {
			rows++
		}
		require.NoError(t, found.Err())
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT pg_stat_get_xact_tuples_returned($1::regclass)`, index).Scan(&entries))
		return rows, entries
	}
	queued, entries := read("open_runs_queued", postgres.WaitingStatement, project, environment, 64)
	require.Equal(t, 3, queued)
	require.Greater(t, entries, ended, "otherwise there are no dead rows")
	require.Less(t, entries, ended+100)
	_, entries = read("open_runs_running", postgres.BusyStatement, project, environment, "runner")
	require.GreaterOrEqual(t, entries, ended, "otherwise there are no dead rows")
	require.Less(t, entries, ended+100)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, lasting.Close(t.Context()))
	require.NoError(t, db.Close(t.Context()))
}
