// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/agentplatform/agentplatform/store/sqldb"
)

const (
	// initialDaysAhead is the number of days for which the schema creates partitions. Gateways create
	// the rest.
	initialDaysAhead = 1
	// partitionLock is the key of the advisory lock for creating partitions.
	partitionLock = 7301
	// lockTimeout is the maximum time that a schema change waits for a lock, because other
	// statements wait behind it.
	lockTimeout = "5s"
)

// EnsurePartitions implements store.Housekeeping. Days are UTC days of the database's clock. A
// partition is created as a separate table and then attached, so that no lock blocks other
// statements. Another process finds it. Earlier days get partitions if they have open rows, which
// could not end without them.
func (s *Store) EnsurePartitions(ctx context.Context, ahead int) (int, error) {
	if err := s.schema.CheckUsable(); err != nil {
		return 0, err
	}
	var us int64
	if err := s.pools[0].QueryRow(ctx, `SELECT now_us()`).Scan(&us); err != nil {
		return 0, fmt.Errorf("reading the database's clock: %w", err)
	}
	today := time.UnixMicro(us).UTC().Truncate(24 * time.Hour)
	there := map[string]bool{}
	rows, err := s.pools[0].Query(ctx, `SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE c.relnamespace = current_schema()::regnamespace AND NOT i.inhdetachpending`)
	if err != nil {
		return 0, fmt.Errorf("listing partitions: %w", err)
	}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return 0, fmt.Errorf("listing partitions: %w", err)
		}
		there[name] = true
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("listing partitions: %w", err)
	}
	for day := range ahead + 1 {
		if err := s.makeDay(ctx, there, today.AddDate(0, 0, day)); err != nil {
			return day, err
		}
	}
	made := daysAhead(there, today, ahead+1)
	complete := today
	for len(missingPartitions(there, complete.AddDate(0, 0, -1))) == 0 {
		complete = complete.AddDate(0, 0, -1)
	}
	open, err := s.openDays(ctx, complete.Unix()/int64(24*time.Hour/time.Second))
	for _, day := range open {
		err = errors.Join(err, s.makeDay(ctx, there, time.Unix(0, 0).UTC().AddDate(0, 0, int(day))))
	}
	return made, err
}

// missingPartitions returns the history tables without a partition of a day.
func missingPartitions(there map[string]bool, begin time.Time) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(sqldb.HistoryTables)), func(table string) bool { return there[partitionName(table, begin)] })
}

// makeDay creates the missing partitions of a day.
func (s *Store) makeDay(ctx context.Context, there map[string]bool, begin time.Time) error {
	tables := missingPartitions(there, begin)
	if len(tables) == 0 {
		return nil
	}
	if err := s.makePartitions(ctx, tables, begin); err != nil {
		return fmt.Errorf("creating the partitions of %s: %w", begin.Format(time.DateOnly), err)
	}
	return nil
}

// noPartition reports whether a row failed because of a missing partition. PostgreSQL returns the code of a
// violated check constraint, and the schema has no such constraint.
func noPartition(err error) bool {
	var failure *pgconn.PgError
	return errors.As(err, &failure) && failure.Code == "23514" && failure.ConstraintName == ""
}

// daysAhead counts the days from today on with all partitions.
func daysAhead(there map[string]bool, today time.Time, made int) int {
	day := made
	for len(missingPartitions(there, today.AddDate(0, 0, day))) == 0 {
		day++
	}
	return day
}

// makePartitions creates the partitions of one day.
func (s *Store) makePartitions(ctx context.Context, tables []string, begin time.Time) error {
	return retryConflicts(func() error {
		tx, err := s.pools[0].Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // no effect after the commit
		var from, to string
		if err := tx.QueryRow(ctx, `SELECT id_at($1)::text, id_at($2)::text FROM pg_advisory_xact_lock($3), set_config('lock_timeout', $4, TRUE)`,
			begin.UnixMicro(), begin.AddDate(0, 0, 1).UnixMicro(), partitionLock, lockTimeout).Scan(&from, &to); err != nil {
			return err
		}
		for _, table := range tables {
			if err := makePartition(ctx, tx, table, begin, from, to); err != nil {
				return fmt.Errorf("creating %s: %w", partitionName(table, begin), err)
			}
		}
		return tx.Commit(ctx)
	})
}

// autovacuumSettings makes autovacuum analyze a partition, and vacuum it for inserts, each time it has grown
// by half. It grows from nothing each day. With the default of a tenth, the server would read rows
// for statistics for nearly as long as it writes them.
const autovacuumSettings = `autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 0.5`

func makePartition(ctx context.Context, tx pgx.Tx, table string, begin time.Time, from, to string) error {
	name, column := partitionName(table, begin), sqldb.HistoryTables[table]
	var known bool
	if err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, name).Scan(&known); err != nil || known {
		return err
	}
	for _, statement := range []string{
		fmt.Sprintf(`CREATE TABLE %s (LIKE %s INCLUDING ALL, CONSTRAINT of_the_day CHECK (%s >= '%s' AND %s < '%s')) WITH (%s)`,
			name, table, column, from, column, to, autovacuumSettings),
		fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')`, table, name, from, to),
		fmt.Sprintf(`ALTER TABLE %s DROP CONSTRAINT of_the_day`, name),
	} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
