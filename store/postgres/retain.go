// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agentplatform/agentplatform/store/retention"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

const (
	// dropLock is the key of the advisory lock for dropping partitions.
	dropLock = 7302
	// dropPatience is how long a statement that drops partitions waits for readers. Tables are
	// tried one after the other in one step of the sweep, and a table that is being read is tried
	// again in the next round. It is longer than deadlock_timeout (default 1 s), after which
	// PostgreSQL asks an autovacuum of the partition to yield.
	dropPatience = 3 * time.Second
	// dropBytes is the number of dropped bytes after which a call stops, because every commit waits
	// while the file system discards their blocks.
	dropBytes = 16 << 20
)

// droppedFirst lists the tables that are dropped first, in this order. Lists then no longer show the runs, so
// no user requests their details. Searches find deleted runs only for a short time.
var droppedFirst = []string{"ended_runs", "ended_connector_runs", "run_words"}

// partition is a partition of history, or a table that was detached from history.
type partition struct {
	table, name string
	day         int64
	// attached means that it is a partition. pending means that its detaching has begun and not
	// ended.
	attached, pending bool
}

// DropDays implements retention.Engine, in one process at a time: another process does nothing. A concurrent
// detach blocks no statement. It must run outside of transactions. An interrupted detach is finished first.
func (e engine) DropDays(ctx context.Context, before, keep int64, limit int) (dropped retention.DroppedDays, err error) {
	dropped.Parted = true
	parts, kept, err := e.partsBefore(ctx, before, keep)
	if dropped.KeptDays, dropped.Left = kept, distinctDays(parts); err != nil || len(parts) == 0 {
		return dropped, err
	}
	conn, err := e.pools[0].Acquire(ctx)
	if err != nil {
		return dropped, fmt.Errorf("connecting: %w", err)
	}
	defer conn.Release()
	waiting, err := e.dropAlone(ctx, conn, &dropped, before, keep, limit)
	if err != nil && !errors.Is(err, retention.ErrBusy) {
		// The connection keeps the lock and its settings, so it is closed. The next call gets a new
		// one.
		err = errors.Join(err, conn.Conn().Close(context.WithoutCancel(ctx)))
	}
	return dropped, errors.Join(waiting, err)
}

// partsBefore returns the unneeded partitions of days before one, and the other days before it. It
// reads the open days first: a run that ends meanwhile keeps its day until the next call.
func (s *Store) partsBefore(ctx context.Context, before, keep int64) (parts []partition, kept retention.KeptDays, err error) {
	if kept.Open, err = s.openDays(ctx, before); err != nil {
		return nil, kept, err
	}
	if parts, err = s.listPartitions(ctx); err != nil {
		return nil, kept, err
	}
	parts = slices.DeleteFunc(parts, func(p partition) bool { return p.day >= before })
	if kept.Results, err = s.resultDays(ctx, parts, keep); err != nil {
		return nil, kept, err
	}
	return slices.DeleteFunc(parts, func(p partition) bool { return p.isNeeded(kept) }), kept, nil
}

// distinctDays returns the days of partitions.
func distinctDays(parts []partition) (days []int64) {
	for _, p := range parts {
		days = append(days, p.day)
	}
	slices.Sort(days)
	return slices.Compact(days)
}

// dropAlone drops the first partitions under the lock, at most limit of them and none after
// dropBytes. waiting reports partitions that stay because they are being read, or because the
// server rejects their deletion, such as a partition with a dependent view or another owner. After
// any other error the connection still has the lock and the settings.
func (e engine) dropAlone(
	ctx context.Context, conn *pgxpool.Conn, dropped *retention.DroppedDays, before, keep int64, limit int,
) (waiting, err error) {
	if err := lockDrops(ctx, conn.Conn(), standstill); err != nil {
		return nil, err
	}
	parts, kept, err := e.partsBefore(ctx, before, keep) // the previous holder of the lock may have dropped some
	if dropped.KeptDays = kept; err != nil {
		return nil, err
	}
	left := slices.Clone(parts)
	defer func() { dropped.Left = distinctDays(left) }()
	// For the whole statement: a detach waits for readers one after the other, and at its end for
	// every older snapshot, also of other tables.
	if _, err := conn.Exec(ctx, `SELECT set_config('statement_timeout', $1, FALSE)`, strconv.FormatInt(dropPatience.Milliseconds(), 10)); err != nil {
		return nil, err
	}
	read := map[string]bool{} // tables with a pending detach, which can have no second one
	for _, p := range parts {
		if read[p.table] {
			continue
		}
		if dropped.Count == limit || dropped.Freed >= dropBytes {
			break
		}
		freed, err := dropPart(ctx, conn.Conn(), p)
		switch {
		case err == nil:
			dropped.Count, dropped.Freed = dropped.Count+1, dropped.Freed+freed
			left = slices.DeleteFunc(left, func(l partition) bool { return l.name == p.name })
		case hasCode(err, lockTimedOut, statementTimedOut) && ctx.Err() == nil: // it blocks no other table
			read[p.table] = true
			waiting = errors.Join(waiting, fmt.Errorf("dropping %s: %w: %w", p.name, retention.ErrRead, err))
		case errors.As(err, new(*pgconn.PgError)) && ctx.Err() == nil && !conn.Conn().IsClosed(): // likewise
			waiting = errors.Join(waiting, fmt.Errorf("dropping %s: %w", p.name, err))
		default:
			return waiting, fmt.Errorf("dropping %s: %w", p.name, err)
		}
	}
	for _, setting := range slices.Concat([]string{"statement_timeout"}, slices.Collect(maps.Keys(dropSettings("")))) {
		if _, err := conn.Exec(ctx, `RESET `+setting); err != nil {
			return waiting, err
		}
	}
	_, err = conn.Exec(ctx, `SELECT pg_advisory_unlock($1)`, dropLock)
	return waiting, err
}

// dropSettings are the settings of a session with the lock. The server ends the session, and so the
// lock, if its process hangs or is gone.
func dropSettings(idle string) map[string]string {
	return map[string]string{"idle_session_timeout": idle, "tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "4"}
}

// lockDrops takes the lock, with the maximum idle time of the session between two statements. It
// returns ErrBusy if another session has the lock.
func lockDrops(ctx context.Context, conn *pgx.Conn, idle string) error {
	var alone bool
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, dropLock).Scan(&alone); err != nil {
		return fmt.Errorf("locking: %w", err)
	}
	if !alone {
		return retention.ErrBusy
	}
	for setting, value := range dropSettings(idle) {
		if _, err := conn.Exec(ctx, `SELECT set_config($1, $2, FALSE)`, setting, value); err != nil {
			return fmt.Errorf("setting %s: %w", setting, err)
		}
	}
	return nil
}

// dropPart detaches and drops a partition, and returns the bytes of its files. Names come from the
// catalog and name history tables.
func dropPart(ctx context.Context, conn *pgx.Conn, p partition) (freed int64, err error) {
	if err := conn.QueryRow(ctx, `SELECT pg_total_relation_size($1::text::regclass)`, p.name).Scan(&freed); err != nil {
		return 0, err
	}
	var statements []string
	switch {
	case p.pending:
		statements = append(statements, fmt.Sprintf(`ALTER TABLE %s DETACH PARTITION %s FINALIZE`, p.table, p.name))
	case p.attached:
		statements = append(statements, fmt.Sprintf(`ALTER TABLE %s DETACH PARTITION %s CONCURRENTLY`, p.table, p.name))
	}
	for _, statement := range append(statements, `DROP TABLE `+p.name) {
		// A prepared statement, the default, would run in a transaction.
		if _, err := conn.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			return 0, err
		}
	}
	return freed, nil
}

// dropOrder returns the position in the order of tables.
func (p partition) dropOrder() int {
	if turn := slices.Index(droppedFirst, p.table); turn >= 0 {
		return turn
	}
	return len(droppedFirst)
}

// listPartitions returns all partitions of history, oldest first, including detached ones.
func (s *Store) listPartitions(ctx context.Context) ([]partition, error) {
	rows, err := s.pools[0].Query(ctx, `SELECT c.relname::text, i.inhrelid IS NOT NULL, COALESCE(i.inhdetachpending, FALSE)
		FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname ~ '_[0-9]{8}$'`)
	if err != nil {
		return nil, fmt.Errorf("listing partitions: %w", err)
	}
	parts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p partition, err error) {
		err = row.Scan(&p.name, &p.attached, &p.pending)
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("listing partitions: %w", err)
	}
	for i := range parts {
		parts[i].parseName()
	}
	parts = slices.DeleteFunc(parts, func(p partition) bool { return p.table == "" })
	slices.SortFunc(parts, func(a, b partition) int {
		return cmp.Or(cmp.Compare(a.day, b.day), cmp.Compare(a.dropOrder(), b.dropOrder()), cmp.Compare(a.name, b.name))
	})
	return parts, nil
}

// isInUse reports whether a partition is neither detached nor being detached.
func (p partition) isInUse() bool { return p.attached && !p.pending }

// isNeeded reports whether a usable partition stays: all partitions of open days, because rows still
// end there, and ended runs whose results are still to be delivered.
func (p partition) isNeeded(kept retention.KeptDays) bool {
	return p.isInUse() && (slices.Contains(kept.Open, p.day) || p.table == "ended_runs" && slices.Contains(kept.Results, p.day))
}

// resultDays returns the days from keep on with partitions of ended runs whose results are still to
// be delivered.
func (s *Store) resultDays(ctx context.Context, parts []partition, keep int64) ([]int64, error) {
	var days []int64
	for _, p := range parts {
		if p.table == "ended_runs" && p.isInUse() && p.day >= keep {
			days = append(days, p.day)
		}
	}
	if len(days) == 0 {
		return nil, nil
	}
	rows, err := s.pools[0].Query(ctx, `SELECT day FROM unnest($1::bigint[]) day WHERE EXISTS (SELECT 1 FROM deliveries d
		WHERE d.kind = 'result' AND d.run_id >= id_at(day * 86400000000) AND d.run_id < id_at((day + 1) * 86400000000))`, days)
	if err != nil {
		return nil, fmt.Errorf("listing undelivered results: %w", err)
	}
	if days, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil {
		return nil, fmt.Errorf("listing undelivered results: %w", err)
	}
	return days, nil
}

// parseName sets table and day from the name. It sets neither if the name is not the name of a partition.
func (p *partition) parseName() {
	at := strings.LastIndexByte(p.name, '_')
	day, err := time.Parse("20060102", p.name[at+1:])
	if _, known := sqldb.HistoryTables[p.name[:at]]; known && err == nil {
		p.table, p.day = p.name[:at], day.Unix()/int64(24*time.Hour/time.Second)
	}
}

// OldestDays implements retention.Engine.
func (e engine) OldestDays(ctx context.Context) (deletable, open int64, parted bool, err error) {
	parts, kept, err := e.partsBefore(ctx, math.MaxInt64, 0)
	if len(parts) > 0 {
		deletable = parts[0].day
	}
	if len(kept.Open) > 0 {
		open = kept.Open[0]
	}
	return deletable, open, true, err
}

// Days implements sqldb.Engine.
func (e engine) Days(ctx context.Context, table string) (days []int64, parted bool, err error) {
	rows, err := e.pools[0].Query(ctx, `SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = to_regclass($1) AND NOT i.inhdetachpending`, table)
	if err != nil {
		return nil, true, fmt.Errorf("listing the days of %s: %w", table, err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, true, fmt.Errorf("listing the days of %s: %w", table, err)
	}
	for _, name := range names {
		p := partition{name: name}
		p.parseName()
		days = append(days, p.day)
	}
	slices.Sort(days)
	slices.Reverse(days)
	return days, true, nil
}

// Shrink implements retention.Engine. A dropped table leaves the disk by itself.
func (e engine) Shrink(context.Context) error { return nil }
