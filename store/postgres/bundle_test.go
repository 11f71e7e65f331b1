// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// TestABundleIsHeldOrGone: an activation that comes while the sweep takes a bundle is refused, and
// the sweep leaves the bundle of one that came before.
func TestABundleIsHeldOrGone(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	s := openAt(t, dsn)
	scene := storebench.NewScene(t, s, 1)
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), `UPDATE environments SET live_deployment_id = NULL, live_rank = 0, live_activated_at = NULL, wanted_bundle_digest = ''`)
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
	require.Equal(t, 1, bundles(), "somebody holds it")
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
