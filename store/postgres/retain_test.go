// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/retention"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

const (
	aDay = 24 * time.Hour
	// most exceeds the number of partitions in the tests.
	most = 100
)

// leaves checks the number of remaining tables that are partitions of history.
func leaves(t *testing.T, db *sql.DB, want int) {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname ~ '_[0-9]{8}$'
		AND relname NOT LIKE 'notes%'`).Scan(&n))
	require.Equal(t, want, n)
}

// ofDays returns how many partitions some days have.
func ofDays(days int) int { return days * len(sqldb.HistoryTables) }

// oldDay creates the partitions of a past day, and returns the end of their names.
func oldDay(t *testing.T, db *sql.DB) string {
	return oldDayOf(t, db, time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC))
}

func oldDayOf(t *testing.T, db *sql.DB, begins time.Time) string {
	t.Helper()
	day := begins.Format("20060102")
	for table := range sqldb.HistoryTables {
		_, err := db.ExecContext(t.Context(), fmt.Sprintf(`DO $$ BEGIN EXECUTE format('CREATE TABLE %[1]s_%[2]s PARTITION OF %[1]s FOR VALUES FROM (%%L) TO (%%L)',
			id_at(%[3]d), id_at(%[4]d)); END $$`, table, day, begins.UnixMicro(), begins.Add(aDay).UnixMicro()))
		require.NoError(t, err)
	}
	return "_" + day
}

// forgotten drops partitions of history older than 90 days and returns their number.
func forgotten(t *testing.T, s *postgres.Store) int {
	t.Helper()
	dropped, err := s.DropHistory(t.Context(), 90*aDay, most)
	require.NoError(t, err)
	return dropped.Count
}

// Old partitions are dropped, including detached ones of a gateway that stopped in between, but no
// other table with such a name.
func TestDropHistory_DropsOldPartitions(t *testing.T) {
	t.Parallel()
	_, s, db := scene(t)
	_, err := s.EnsurePartitions(t.Context(), 3)
	require.NoError(t, err)
	before, err := s.OldestHistory(t.Context())
	require.NoError(t, err)
	old := oldDay(t, db)
	for _, statement := range []string{
		`ALTER TABLE inputs DETACH PARTITION inputs` + old,
		`CREATE TABLE notes_20200102 (n int)`,
		`CREATE TABLE inputs_99999999 (n int)`,
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	oldest, err := s.OldestHistory(t.Context())
	require.NoError(t, err)
	require.Equal(t, time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC), oldest.Deletable)
	require.Equal(t, ofDays(1), forgotten(t, s))
	leaves(t, db, ofDays(4)+1)
	require.Zero(t, forgotten(t, s))
	oldest, err = s.OldestHistory(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, oldest)
}

// dropLocks counts the sessions with the lock for dropping partitions.
func dropLocks(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
		WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objid = 7302`).Scan(&n))
	return n
}

// The result counts the freed bytes, also of small partitions.
func TestDropHistory_DropsLargePartitionsOneAtATime(t *testing.T) {
	t.Parallel()
	_, s, db := scene(t)
	_, err := s.EnsurePartitions(t.Context(), 3)
	require.NoError(t, err)
	oldDay(t, db)
	for _, table := range []string{"inputs_20190102", "journal_20190102"} {
		_, err := db.ExecContext(t.Context(), `CREATE TABLE `+table+` AS SELECT repeat(md5(i::text), 50) AS plain FROM generate_series(1, 12000) i`)
		require.NoError(t, err)
	}
	reader, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = reader.ExecContext(t.Context(), `SELECT count(*) FROM inputs_20190102`)
	require.NoError(t, err)
	dropped, err := s.DropHistory(t.Context(), 90*aDay, most)
	require.ErrorContains(t, err, "inputs_20190102", "that is being read")
	require.Equal(t, 1, dropped.Count)
	require.Greater(t, dropped.Freed, int64(16<<20))
	require.Zero(t, dropLocks(t, db), "another gateway may drop at once")
	require.NoError(t, reader.Rollback())
	dropped, err = s.DropHistory(t.Context(), 90*aDay, most)
	require.NoError(t, err)
	require.Equal(t, 1, dropped.Count)
	require.Greater(t, dropped.Freed, int64(16<<20))
	dropped, err = s.DropHistory(t.Context(), 90*aDay, most)
	require.NoError(t, err)
	require.Equal(t, ofDays(1), dropped.Count)
	require.Positive(t, dropped.Freed)
	leaves(t, db, ofDays(4))
}

// Within a day, runs are dropped first, then connector runs, then words, then all other tables.
func TestDropHistory_DropsListedTablesFirst(t *testing.T) {
	t.Parallel()
	_, s, db := scene(t)
	_, err := s.EnsurePartitions(t.Context(), 3)
	require.NoError(t, err)
	old := oldDay(t, db)
	for _, goes := range []string{"ended_runs", "ended_connector_runs", "run_words", "audit_log"} {
		dropped, err := s.DropHistory(t.Context(), 90*aDay, 1)
		require.NoError(t, err)
		require.Equal(t, 1, dropped.Count)
		var left bool
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT to_regclass($1) IS NOT NULL`, goes+old).Scan(&left))
		require.False(t, left, goes)
	}
}

// A detach that a reader prevented is retried, and no other statement is blocked meanwhile.
func TestDropHistory_FinishesInterruptedDetach(t *testing.T) {
	t.Parallel()
	c, s, db := scene(t)
	old := oldDay(t, db)
	reader, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = reader.ExecContext(t.Context(), `SELECT 1 FROM journal`)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	broken := make(chan error, 1)
	go func() {
		_, err := s.DropHistory(ctx, 90*aDay, most)
		broken <- err
	}()
	for pending := false; !pending; {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT bool_or(inhdetachpending) FROM pg_inherits`).Scan(&pending))
	}
	awaitBlocked(t.Context(), t, db)
	c.Trip(t.Context(), t)
	stop()
	require.Error(t, <-broken)
	for dropLocks(t, db) > 0 { // until the server has noticed
	}
	require.NoError(t, reader.Rollback())
	var pending string
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhdetachpending`).Scan(&pending))
	require.Equal(t, "journal"+old, pending)
	require.Positive(t, forgotten(t, s))
	leaves(t, db, ofDays(2))
	c.Trip(t.Context(), t)
}

// Another gateway leaves the partitions and their blobs, and takes over once the first gateway is
// gone.
func TestDropHistory_OneGatewayAtATime(t *testing.T) {
	t.Parallel()
	c, s, db := scene(t)
	oldDay(t, db)
	_, err := db.ExecContext(t.Context(), `INSERT INTO blobs (project_id, id, size, complete, mark, created_at)
		SELECT $1, gen_random_uuid(), 0, TRUE, 'history', 0`, c.Project)
	require.NoError(t, err)
	first, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = first.ExecContext(t.Context(), `SELECT pg_advisory_xact_lock(7302)`)
	require.NoError(t, err)
	require.Zero(t, forgotten(t, s))
	leaves(t, db, ofDays(3))
	require.NoError(t, first.Rollback())
	require.Equal(t, ofDays(1), forgotten(t, s))
	require.Equal(t, 1, forgotten(t, s), "then the blob")
	leaves(t, db, ofDays(2))
}

// The server ends the session of a frozen gateway, and another gateway gets the lock.
func TestDropHistory_EndsFrozenSession(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	frozen, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	require.NoError(t, postgres.LockDrops(t.Context(), frozen, "50ms"))
	require.Eventually(t, func() bool {
		other, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		err = postgres.LockDrops(t.Context(), other, "50ms")
		require.NoError(t, other.Close(t.Context()))
		if err != nil {
			require.ErrorIs(t, err, retention.ErrBusy)
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

// Blobs that were written before the row that names them stay until after that row.
func TestDropHistory_KeepsBlobsLonger(t *testing.T) {
	t.Parallel()
	c, s, db := scene(t)
	_, err := db.ExecContext(t.Context(), `INSERT INTO blobs (project_id, id, size, complete, mark, created_at)
		SELECT $1, gen_random_uuid(), 0, TRUE, mark, now_us() - age * 86400000000::bigint - 3600000000
		FROM unnest(ARRAY['history', 'history', 'bundle']) WITH ORDINALITY AS u (mark, n), unnest(ARRAY[91, 93]) age`, c.Project)
	require.NoError(t, err)
	require.Equal(t, 2, forgotten(t, s))
	var left int
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM blobs WHERE mark = 'history'`).Scan(&left))
	require.Equal(t, 2, left)
	require.Zero(t, forgotten(t, s))
}

// A partition that is being read stays, and no other.
func TestDropHistory_KeepsPartitionBeingRead(t *testing.T) {
	t.Parallel()
	_, s, db := scene(t)
	_, err := s.EnsurePartitions(t.Context(), 3)
	require.NoError(t, err)
	old := oldDay(t, db)
	oldDayOf(t, db, time.Date(2020, 1, 3, 0, 0, 0, 0, time.UTC))
	reader, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = reader.ExecContext(t.Context(), `SELECT count(*) FROM delivery_attempts`)
	require.NoError(t, err)
	dropped, err := s.DropHistory(t.Context(), 90*aDay, most)
	require.ErrorContains(t, err, "delivery_attempts"+old)
	require.Equal(t, ofDays(2)-2, dropped.Count, "of both days all others")
	require.NoError(t, reader.Rollback())
	require.Equal(t, 2, forgotten(t, s))
	leaves(t, db, ofDays(4))
}

// A table that is being read, or whose interrupted detach waits for an older snapshot, delays no
// other table. Blobs and rollups of earlier days are deleted, blobs and rollups of its day stay.
func TestDropHistory_DropsDaysBeforeReadDay(t *testing.T) {
	t.Parallel()
	c, s, db := scene(t)
	_, err := s.EnsurePartitions(t.Context(), 3)
	require.NoError(t, err)
	old := oldDay(t, db)
	day := time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC)
	left := func() (blobs, days []string) {
		for _, of := range []struct {
			into      *[]string
			statement string
		}{
			{&blobs, `SELECT array_agg(to_char(to_timestamp(created_at / 1000000), 'YYYYMMDD') ORDER BY created_at) FROM blobs WHERE mark = 'history'`},
			{&days, `SELECT array_agg(to_char(to_timestamp(day * 86400), 'YYYYMMDD') ORDER BY day) FROM stored_days`},
		} {
			require.NoError(t, db.QueryRowContext(t.Context(), of.statement).Scan(pgtype.NewMap().SQLScanner(of.into)))
		}
		return blobs, days
	}
	for _, at := range []time.Time{day.Add(-5 * aDay), day} {
		_, err := db.ExecContext(t.Context(), `WITH b AS (INSERT INTO blobs (project_id, id, size, complete, mark, created_at) VALUES ($1, gen_random_uuid(), 0, TRUE, 'history', $2))
			INSERT INTO stored_days (project_id, day, bytes) VALUES ($1, $3, 0)`, c.Project.String(), at.UnixMicro(), at.Unix()/86400)
		require.NoError(t, err)
	}
	begin := func(statements ...string) *sql.Tx {
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.NoError(t, err)
		for _, statement := range statements {
			_, err = tx.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		return tx
	}
	reader := begin(`SELECT count(*) FROM audit_log`, `SELECT count(*) FROM journal`)
	bystander := begin(`SELECT 1`)
	dropped, err := s.DropHistory(t.Context(), 90*aDay, most)
	require.ErrorContains(t, err, "audit_log"+old)
	require.ErrorContains(t, err, "journal"+old)
	require.Equal(t, ofDays(1)-2, dropped.Count)
	require.NoError(t, reader.Rollback())
	for range 2 { // a day, and its blob
		dropped, err = s.DropHistory(t.Context(), 90*aDay, most)
		require.ErrorIs(t, err, retention.ErrRead)
		require.Equal(t, 1, dropped.Count)
	}
	blobs, days := left()
	require.Equal(t, []string{"20200102"}, blobs)
	require.Equal(t, []string{"20200102"}, days)
	require.NoError(t, bystander.Rollback())
	for _, want := range []int{2, 1, 1, 0} { // the tables, the day, the blob
		require.Equal(t, want, forgotten(t, s))
	}
	leaves(t, db, ofDays(4))
}

// A day stays recorded if only its runs are left, because a result is still to be delivered. So lists
// show the runs until they are deleted.
func TestDropHistory_ListsRunsOfUndeliveredResults(t *testing.T) {
	t.Parallel()
	c, s, db := scene(t)
	oldDayOf(t, db, time.Now().UTC().Truncate(aDay).Add(-100*aDay))
	run := endedRun(t, db, c.Project, c.Environment, 100, 0, store.RunCompleted)
	_, err := db.ExecContext(t.Context(), `INSERT INTO deliveries (project_id, id, environment_id, connector_id, link_id, run_id, attempt, due_at, started_at)
		SELECT $1, stamp($2, now_us(), 0), $3, $4, $4, $2, 1, now_us() + 3600000000, now_us()`, c.Project, run, c.Environment, c.Connector)
	require.NoError(t, err)
	listed := func() (n int) {
		_, err := s.CountStored(t.Context(), 100)
		require.NoError(t, err)
		for forgotten(t, s) > 0 {
		}
		runs, _, err := s.ListRuns(t.Context(), store.RunQuery{ProjectID: c.Project, Limit: 10})
		require.NoError(t, err)
		return len(runs)
	}
	require.Equal(t, 1, listed())
	require.Equal(t, []string{"ended_runs"}, tablesOf(t, db, store.TimeOf(run)))
	_, err = db.ExecContext(t.Context(), `DELETE FROM deliveries`)
	require.NoError(t, err)
	require.Zero(t, listed())
	require.Empty(t, tablesOf(t, db, store.TimeOf(run)))
	var days int
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM stored_days WHERE day < now_us() / 86400000000 - 90`).Scan(&days))
	require.Zero(t, days)
}

// tablesOf returns the history tables that have a partition of a day.
func tablesOf(t *testing.T, db *sql.DB, day time.Time) (tables []string) {
	t.Helper()
	for table := range sqldb.HistoryTables {
		var there bool
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT to_regclass($1) IS NOT NULL`, table+"_"+day.UTC().Format("20060102")).Scan(&there))
		if there {
			tables = append(tables, table)
		}
	}
	return tables
}

// The calls of a day may be deleted before its runs, for example if a result is still to be
// delivered. Rollups of that day then stay, and runs that are not rolled up yet are counted without
// calls.
func TestRollUp_KeepsRunsWithoutCalls(t *testing.T) {
	t.Parallel()
	c, s, db := scene(t)
	_, err := s.EnsurePartitions(t.Context(), 3)
	require.NoError(t, err)
	day := time.Now().UTC().Truncate(aDay).Add(-10 * aDay)
	old := oldDayOf(t, db, day)
	next := oldDayOf(t, db, day.Add(aDay))
	c.Past(t, db, day, day.Add(time.Hour), day.Add(25*time.Hour))
	c.RollUp(t)
	c.Past(t, db, day.Add(2*time.Hour), day.Add(26*time.Hour))
	for _, gone := range []string{"model_calls" + old, "model_calls" + next, "ended_runs" + next} {
		_, err := db.ExecContext(t.Context(), `DROP TABLE `+gone)
		require.NoError(t, err)
	}
	counted := func() (runs int) {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT SUM(runs) FROM run_rollups WHERE grain = 'hour'`).Scan(&runs))
		return runs
	}
	require.NoError(t, s.RebuildRollups(t.Context(), func(store.RollupHour) {}))
	require.EqualValues(t, 300, c.Spent(t, db))
	require.Equal(t, 3, counted())
	c.RollUp(t)
	require.Equal(t, 4, counted())
	require.EqualValues(t, 300, c.Spent(t, db))
	require.NoError(t, s.RebuildRollups(t.Context(), func(store.RollupHour) {}))
	require.Equal(t, 4, counted())
	require.EqualValues(t, 300, c.Spent(t, db))
}

// TestDropHistory_ContinuesAfterFailedPartition: a partition that the server does not drop, here because
// of a view, delays no other partition, and no records and blobs of other days.
func TestDropHistory_ContinuesAfterFailedPartition(t *testing.T) {
	t.Parallel()
	c, s, db := scene(t)
	_, err := s.EnsurePartitions(t.Context(), 3)
	require.NoError(t, err)
	exec := func(statement string, args ...any) {
		_, err := db.ExecContext(t.Context(), statement, args...)
		require.NoError(t, err)
	}
	day := time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC)
	old := oldDayOf(t, db, day)
	oldDayOf(t, db, day.Add(aDay))
	exec(`CREATE VIEW kept AS SELECT id FROM ended_runs` + old)
	for _, at := range []time.Time{day, day.Add(aDay)} {
		exec(`INSERT INTO stored_days (project_id, day, bytes) VALUES ($1, $2, 0)`, c.Project.String(), at.Unix()/86400)
	}
	for _, at := range []time.Time{day.Add(-5 * aDay), day, day.Add(365 * aDay)} {
		exec(`INSERT INTO blobs (project_id, id, size, complete, mark, created_at) VALUES ($1, gen_random_uuid(), 0, TRUE, 'history', $2)`,
			c.Project.String(), at.UnixMicro())
	}
	for _, want := range []int{ofDays(2) - 1, 1, 2, 0} { // partitions, the record of a day, blobs
		dropped, err := s.DropHistory(t.Context(), 90*aDay, most)
		require.ErrorContains(t, err, "ended_runs"+old)
		require.Equal(t, want, dropped.Count)
	}
	exec(`DROP VIEW kept`)
	for _, want := range []int{1, 1, 1, 0} {
		require.Equal(t, want, forgotten(t, s))
	}
	leaves(t, db, ofDays(4))
}

// TestTrimHistory_WaitsForIndexer: if the lock of a project is taken again and again, as by an indexer
// with a backlog, TrimHistory waits for it.
func TestTrimHistory_WaitsForIndexer(t *testing.T) {
	t.Parallel()
	c, s, db := scene(t)
	_, err := db.ExecContext(t.Context(), `INSERT INTO stored_days (project_id, day, bytes) VALUES ($1, $2, 0)`, c.Project.String(), oldBegin.Unix()/86400)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `UPDATE projects SET history_us = $1`, (30 * aDay).Microseconds())
	require.NoError(t, err)
	indexer, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = indexer.ExecContext(t.Context(), `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, sqldb.PastLock(c.Project).String())
	require.NoError(t, err)
	for range 3 {
		n, err := s.TrimHistory(t.Context(), most)
		require.NoError(t, err)
		require.Zero(t, n.Count)
	}
	trimmed := make(chan int, 1)
	go func() {
		n, _ := s.TrimHistory(t.Context(), most)
		trimmed <- n.Count
	}()
	awaitBlocked(t.Context(), t, db)
	require.NoError(t, indexer.Commit())
	require.Positive(t, <-trimmed)
}
