// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// oldBegin is the start of oldDay.
var oldBegin = time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC)

// openSince creates an event with one run that was accepted at a time.
func openSince(t *testing.T, c *storebench.Scene, db *sql.DB, at time.Time) (run store.Key) {
	t.Helper()
	event := c.Event(t)
	event.Runs = event.Runs[:1]
	admissions, err := c.Store.Accept(t.Context(), []store.Event{event})
	require.NoError(t, err)
	require.NoError(t, admissions[0].Err)
	of := store.Stamp(uuid.Must(uuid.NewV7()), at.UnixMicro(), 0)
	run = store.Key{ProjectID: c.Project, ID: store.Stamp(uuid.Must(uuid.NewV7()), at.UnixMicro(), 1)}
	for _, statement := range []string{
		fmt.Sprintf(`UPDATE open_runs SET id = '%s', connector_run_id = '%s' WHERE id = '%s'`, run.ID, of, admissions[0].RunIDs[0]),
		fmt.Sprintf(`UPDATE open_connector_runs SET id = '%s', run_ids = ARRAY['%s'::uuid] WHERE id = '%s'`, of, run.ID, admissions[0].ConnectorRunID),
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	return run
}

// While a run, a connector run or a delivery of a day is open, all partitions of the day stay.
// Partitions of other days are dropped.
func TestDropHistory_KeepsPartitionsOfOpenDays(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		table string
		keep  string // the rows that stay open
	}{
		{"open_runs", `DELETE FROM open_connector_runs`},
		{"open_connector_runs", `DELETE FROM open_runs`},
		{"deliveries", `WITH r AS (DELETE FROM open_runs), e AS (DELETE FROM open_connector_runs RETURNING *)
			INSERT INTO deliveries (project_id, id, environment_id, connector_id, link_id, run_id, kind, attempt, due_at, started_at)
			SELECT project_id, id, environment_id, connector_id, gen_random_uuid(), run_ids[1], 'payload', 0, 0, 0 FROM e`},
	} {
		t.Run(of.table, func(t *testing.T) {
			t.Parallel()
			c, s, db := scene(t)
			_, err := s.EnsurePartitions(t.Context(), 3)
			require.NoError(t, err)
			oldDay(t, db)
			oldDayOf(t, db, oldBegin.Add(-aDay))
			oldDayOf(t, db, oldBegin.Add(aDay))
			openSince(t, c, db, oldBegin.Add(aDay-time.Millisecond))
			_, err = db.ExecContext(t.Context(), of.keep)
			require.NoError(t, err)
			_, err = db.ExecContext(t.Context(), `INSERT INTO stored_days (project_id, day, bytes) SELECT $1, unnest(ARRAY[18262, 18263, 18264]), 0`, c.Project.String())
			require.NoError(t, err)
			require.Equal(t, ofDays(2), forgotten(t, s))
			require.Equal(t, 2, forgotten(t, s), "deleted days")
			require.Zero(t, forgotten(t, s))
			leaves(t, db, ofDays(5))
			oldest, err := s.OldestHistory(t.Context())
			require.NoError(t, err)
			require.Equal(t, oldBegin, oldest.Open)
			require.True(t, oldest.Deletable.IsZero() || oldest.Deletable.After(oldBegin))
			_, err = db.ExecContext(t.Context(), `DELETE FROM `+of.table)
			require.NoError(t, err)
			require.Equal(t, ofDays(1), forgotten(t, s))
			require.Equal(t, 1, forgotten(t, s))
			leaves(t, db, ofDays(4))
			oldest, err = s.OldestHistory(t.Context())
			require.NoError(t, err)
			require.Zero(t, oldest.Open)
		})
	}
}

// A run without partitions cannot end until they are re-created.
func TestEnsurePartitions_MakesThoseOfOpenRuns(t *testing.T) {
	t.Parallel()
	c, s, db := scene(t)
	run := openSince(t, c, db, oldBegin)
	n, err := s.ExpireRuns(t.Context(), 90*aDay, 100)
	require.ErrorContains(t, err, "no partition of relation")
	require.Zero(t, n)
	days, err := s.EnsurePartitions(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, 4, days)
	require.Zero(t, forgotten(t, s), "the run is open")
	for _, want := range []int{0, 1} { // one call skips the failed row
		n, err = s.ExpireRuns(t.Context(), 90*aDay, 100)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	ended, err := s.Run(t.Context(), run)
	require.NoError(t, err)
	require.Equal(t, runerror.Expired, ended.ErrorCode)
	require.Equal(t, ofDays(1), forgotten(t, s))
	leaves(t, db, ofDays(4))
}

// An autovacuum of a partition yields to a statement that has waited for deadlock_timeout.
func TestDropHistory_OutwaitsAutovacuum(t *testing.T) {
	t.Parallel()
	_, _, db := scene(t)
	var ms int64
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT setting FROM pg_settings WHERE name = 'deadlock_timeout'`).Scan(&ms))
	require.GreaterOrEqual(t, postgres.DropPatience, 2*time.Duration(ms)*time.Millisecond)
}
