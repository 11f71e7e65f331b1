// SPDX-License-Identifier: Apache-2.0

package sqlite_test

import (
	"bytes"
	"database/sql"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// Pages of deleted history are returned to the disk, some at a time.
func TestDropHistory_ShrinksFile(t *testing.T) {
	t.Parallel()
	path := sqlitetest.Migrated(t)
	s := openAt(t, path)
	scene := storebench.NewScene(t, s, 1)
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	size := func() (bytes int64) {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`).Scan(&bytes))
		return bytes
	}
	empty := size()
	const large = 8 << 20
	for range 4 {
		e, blob := scene.Event(t), uuid.Must(uuid.NewV7())
		_, err := s.PutBlob(t.Context(), store.Key{ProjectID: scene.Project, ID: blob}, bytes.NewReader(make([]byte, large)))
		require.NoError(t, err)
		e.Input, e.InputBlob = nil, &blob
		_, err = s.Accept(t.Context(), []store.Event{e})
		require.NoError(t, err)
	}
	for _, table := range []string{"open_runs", "open_connector_runs"} { // blobs of a day stay while the day has open rows
		_, err := db.ExecContext(t.Context(), `DELETE FROM `+table)
		require.NoError(t, err)
	}
	full := size()
	require.Greater(t, full, empty+4*large)
	drop := func() {
		for n := 1; n > 0; {
			dropped, err := s.DropHistory(t.Context(), -4*24*time.Hour, 100)
			require.NoError(t, err)
			require.Zero(t, dropped.Freed)
			n = dropped.Count
		}
	}
	drop()
	require.Greater(t, size(), full-large, "some at a time")
	for range 20 {
		drop()
	}
	require.Less(t, size(), empty+large)
}

const day = 24 * time.Hour

// numbered returns a store with forty runs in history, ten days ago, and their rollups.
func numbered(t *testing.T) (store.Store, *sql.DB, *storebench.Scene) {
	t.Helper()
	path := sqlitetest.Migrated(t)
	s := openAt(t, path)
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	scene := storebench.NewScene(t, s, 1)
	var at []time.Time
	for i := range 40 {
		at = append(at, time.Now().Truncate(day).Add(-10*day+time.Duration(i)*30*time.Minute))
	}
	scene.Past(t, db, at...)
	return s, db, scene
}

// A rebuild keeps the rollups of a partly deleted day.
func TestRebuild_KeepsPartlyDeletedDay(t *testing.T) {
	t.Parallel()
	s, db, scene := numbered(t)
	scene.RollUp(t)
	require.EqualValues(t, 4000, scene.Spent(t, db))
	for gone := 0; gone < 90; gone += 10 {
		dropped, err := s.DropHistory(t.Context(), 9*day, 10)
		require.NoError(t, err)
		if gone < 80 {
			require.Equal(t, 10, dropped.Count)
		}
		require.NoError(t, s.RebuildRollups(t.Context(), func(store.RollupHour) {}))
		require.EqualValues(t, 4000, scene.Spent(t, db), "%d rows are deleted", gone)
	}
	var left int
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM ended_runs) + (SELECT count(*) FROM model_calls)`).Scan(&left))
	require.Zero(t, left)
}

// A rebuild keeps the rollups of a deleted day to which a later end added a row.
func TestRebuild_KeepsDayWithLaterEnd(t *testing.T) {
	t.Parallel()
	s, db, scene := numbered(t)
	scene.RollUp(t)
	for n := 1; n > 0; {
		dropped, err := s.DropHistory(t.Context(), 9*day, 10)
		require.NoError(t, err)
		n = dropped.Count
	}
	scene.Past(t, db, time.Now().Truncate(day).Add(-10*day+5*time.Hour))
	scene.RollUp(t)
	require.EqualValues(t, 4100, scene.Spent(t, db))
	require.NoError(t, s.RebuildRollups(t.Context(), func(store.RollupHour) {}))
	require.EqualValues(t, 4100, scene.Spent(t, db))
}

// A result that is still to be delivered keeps its day, but not the following days. A rebuild keeps
// the rollups of these.
func TestRebuild_KeepsDaysAfterPinnedDay(t *testing.T) {
	t.Parallel()
	s, db, scene := numbered(t)
	before := time.Now().Truncate(day).Add(-11*day + 30*time.Minute)
	scene.Past(t, db, before)
	scene.RollUp(t)
	require.EqualValues(t, 4100, scene.Spent(t, db))
	run := store.Stamp(uuid.New(), before.UnixMicro(), 0).String()
	_, err := db.ExecContext(t.Context(), `INSERT INTO deliveries (project_id, id, environment_id, connector_id, link_id, run_id, attempt, due_at, started_at)
		VALUES ($1, $2, $3, $2, $2, $2, 0, 0, 0)`, scene.Project.String(), run, scene.Environment.String())
	require.NoError(t, err)
	left := func(table string) (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
		return n
	}
	for n := 1; n > 0; {
		dropped, err := s.DropHistory(t.Context(), 9*day, 10)
		require.NoError(t, err)
		n = dropped.Count
		require.NoError(t, s.RebuildRollups(t.Context(), func(store.RollupHour) {}))
		require.EqualValues(t, 4100, scene.Spent(t, db), "%d runs remain", left("ended_runs"))
	}
	require.Equal(t, 1, left("ended_runs"))
	require.Equal(t, 1, left("stored_days"))
}
