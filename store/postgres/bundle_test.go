// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// An activation during the sweep of its bundle is rejected. The sweep keeps the bundle of an
// earlier activation.
func TestActivate_HoldsBundleAgainstSweep(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	s := openAt(t, dsn)
	scene := storebench.NewScene(t, s, 1)
	db := openDB(t, dsn)
	_, err := db.ExecContext(t.Context(), `UPDATE environments SET live_deployment_id = NULL, live_rank = 0, live_activated_at = NULL, wanted_bundle_digest = ''`)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `UPDATE deployments SET status = 'failed'`)
	require.NoError(t, err)
	begin := func(statement string) *sql.Tx {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), statement)
		require.NoError(t, err)
		return tx
	}
	bundles := func() (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM bundles`).Scan(&n))
		return n
	}

	_, err = db.ExecContext(t.Context(), `UPDATE bundles SET kept_until = 0`)
	require.NoError(t, err)
	activation := begin(`UPDATE bundles SET kept_until = now_us() + 1000000000`)
	_, err = s.SweepExpired(t.Context(), 10)
	require.NoError(t, err)
	require.NoError(t, activation.Commit())
	require.Equal(t, 1, bundles(), "the transaction holds it")
	_, err = s.SweepExpired(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, bundles())

	_, err = db.ExecContext(t.Context(), `UPDATE deployments SET status = 'deployed'`)
	require.NoError(t, err)
	sweep := begin(`DELETE FROM bundles`)
	done := make(chan error, 1)
	go func() {
		_, err := s.Activate(t.Context(), store.Activation{Deployment: store.Key{ProjectID: scene.Project, ID: scene.Deployment}})
		done <- err
	}()
	for waits := 0; waits == 0; {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits))
	}
	require.NoError(t, sweep.Commit())
	require.ErrorIs(t, <-done, store.ErrBundleGone)
}

// The open runs of a project are read once, however many of its bundles expire.
func TestSweepExpired_ReadsOpenRunsOnce(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	scene := storebench.NewScene(t, openAt(t, dsn), 1)
	db := openDB(t, dsn)
	for _, statement := range []string{
		`UPDATE environments SET live_deployment_id = NULL, live_rank = 0, live_activated_at = NULL, wanted_bundle_digest = ''`,
		`UPDATE deployments SET status = 'failed'`,
		// Each bundle has a deployment, and one of them has a run.
		`INSERT INTO deployments SELECT (r).* FROM (SELECT json_populate_record(d, json_build_object('id', md5('d' || n), 'name', 'd' || n,
			'object_uid', 'd' || n, 'sequence', d.sequence + n, 'bundle_digest', 'sha256:' || n)) AS r FROM deployments d, generate_series(1, 30) n) s`,
		`INSERT INTO bundles SELECT b.project_id, 'sha256:' || n, b.size, b.blob_id, b.created_at, 0 FROM bundles b, generate_series(1, 30) n`,
		`INSERT INTO open_runs (project_id, id, environment_id, agent_name, input_id, status, class, deployment_id, attempt, lease_until, queued_at)
			SELECT project_id, id, environment_id, 'a', id, 'running', 1, id, 1, now_us() + 1000000000, 1 FROM deployments WHERE bundle_digest = 'sha256:7'`,
		`ALTER TABLE blob_chunks DROP CONSTRAINT blob_chunks_project_id_blob_id_fkey`,
		`ALTER TABLE bundles DROP CONSTRAINT bundles_project_id_blob_id_fkey`, // they share one blob
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	var seen plans
	s, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn}.Tuned(seen.recordPlans("auto")))
	require.NoError(t, err)
	_, err = s.SweepExpired(t.Context(), 100)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, seen.err)
	var left []string
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT array_agg(digest ORDER BY digest) FROM bundles WHERE project_id = $1 AND kept_until > 0 AND digest LIKE 'sha256:_'`,
		scene.Project.String()).Scan(pgtype.NewMap().SQLScanner(&left)))
	require.Equal(t, []string{"sha256:7"}, left)
	looks := 0
	for _, p := range seen.all {
		p.Plan.walk(func(n node) {
			if n.Relation == "open_runs" {
				looks++
			}
		})
	}
	require.Equal(t, 1, looks)
}
