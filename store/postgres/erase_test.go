// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// The lock table of the server has room for the partitions of a few days only.
func TestEraseRun_LocksPartitionsOfItsDays(t *testing.T) {
	t.Parallel()
	c, s, db := scene(t)
	_, err := s.EnsurePartitions(t.Context(), 400/len(sqldb.HistoryTables))
	require.NoError(t, err)
	var partitions int
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE c.relkind = 'r'`).
		Scan(&partitions))
	require.GreaterOrEqual(t, partitions, 400)
	c.Trip(t.Context(), t)
	var run store.Key
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT project_id::text, id::text FROM ended_runs LIMIT 1`).Scan(&run.ProjectID, &run.ID))
	last, err := db.BeginTx(t.Context(), nil) // the last write of the erasure
	require.NoError(t, err)
	_, err = last.ExecContext(t.Context(), `LOCK TABLE outbox IN SHARE MODE`)
	require.NoError(t, err)
	erased := make(chan error, 1)
	go func() { erased <- s.EraseRun(t.Context(), run) }()
	awaitBlocked(t.Context(), t, db)
	var locked []string
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT array_agg(DISTINCT right(c.relname, 8)) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
		WHERE c.relkind = 'r' AND c.relname ~ '_[0-9]{8}$' AND l.pid IN (SELECT pid FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0)`).
		Scan(pgtype.NewMap().SQLScanner(&locked)))
	require.Equal(t, []string{store.TimeOf(run.ID).UTC().Format("20060102")}, slices.Compact(locked))
	require.NoError(t, last.Rollback())
	require.NoError(t, <-erased)
	_, err = s.Run(t.Context(), run)
	require.ErrorIs(t, err, store.ErrNotFound)
}
