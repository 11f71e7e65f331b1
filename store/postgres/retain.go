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
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agentplatform/agentplatform/store/sqlcore"
)

const (
	// dropLock is the key of the advisory lock of the one who drops partitions.
	dropLock = 7302
	// dropPatience is how long a statement that drops partitions waits for readers: tables are tried one
	// after the other in one step of the sweep, and those that are read are tried again in the next
	// round. It is longer than deadlock_timeout, 1 s by default, after which PostgreSQL asks an
	// autovacuum of the partition to give way.
	dropPatience = 3 * time.Second
	// dropBytes is after how many bytes of partitions no other is dropped at once: while the file system
	// gives their blocks back to the disk, every commit waits.
	dropBytes = 16 << 20
)

// goFirst are the tables of a day that go first, in this order: once lists no longer show a run, nobody
// asks for what else there is of it, and a search looks in vain for as short a time as can be.
var goFirst = []string{"ended_runs", "ended_connector_runs", "run_words"}

// part is a partition of history, or a table that was one until it was detached.
type part struct {
	table, name string
	day         int64
	// attached says that it is a partition, pending that its detaching has begun and not ended.
	attached, pending bool
}

// DropDays implements sqlcore.Engine, by one at a time: whoever comes second does nothing. What is
// detached concurrently stands in nobody's way; that goes outside of transactions alone, and a
// detaching that was broken off is ended first.
func (e engine) DropDays(ctx context.Context, before, keep int64, limit int) (dropped sqlcore.DroppedDays, err error) {
	dropped.Parted = true
	parts, open, err := e.partsBefore(ctx, before, keep)
	if dropped.Open = open; err != nil || len(parts) == 0 {
		return dropped, err
	}
	conn, err := e.pools[0].Acquire(ctx)
	if err != nil {
		return dropped, fmt.Errorf("connecting: %w", err)
	}
	defer conn.Release()
	waiting, err := e.dropAlone(ctx, conn, &dropped, before, keep, limit)
	if err != nil && !errors.Is(err, sqlcore.ErrBusy) {
		// With its lock and its settings; who drops next has a connection as new.
		err = errors.Join(err, conn.Conn().Close(context.WithoutCancel(ctx)))
	}
	return dropped, errors.Join(waiting, err)
}

// partsBefore returns the parts of days before one that are no longer needed, and those of these days
// that have open runs, connector runs or deliveries.
func (s *Store) partsBefore(ctx context.Context, before, keep int64) (parts []part, open []int64, err error) {
	if parts, err = s.parts(ctx); err != nil {
		return nil, nil, err
	}
	if open, err = s.openDays(ctx, before); err != nil {
		return nil, nil, err
	}
	parts, err = s.unneeded(ctx, slices.DeleteFunc(parts, func(p part) bool { return p.day >= before }), open, keep)
	return parts, open, err
}

// dropAlone drops the first partitions under the lock of those who do, at most limit of them and none
// after dropBytes. waiting is about partitions that stay because they are read. After any other error the
// connection has the lock and the settings still.
func (e engine) dropAlone(
	ctx context.Context, conn *pgxpool.Conn, dropped *sqlcore.DroppedDays, before, keep int64, limit int,
) (waiting, err error) {
	if err := lockDrops(ctx, conn.Conn(), standstill); err != nil {
		return nil, err
	}
	parts, open, err := e.partsBefore(ctx, before, keep) // whoever had the lock before may have dropped some
	if dropped.Open = open; err != nil {
		return nil, err
	}
	// The whole of it: a detaching waits for readers one after the other, and at its end for whoever
	// has an older snapshot, be it of other tables.
	if _, err := conn.Exec(ctx, `SELECT set_config('statement_timeout', $1, FALSE)`, strconv.FormatInt(dropPatience.Milliseconds(), 10)); err != nil {
		return nil, err
	}
	read := map[string]bool{} // tables of which one part is being detached: they can have no second
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
		case hasCode(err, lockTimedOut, statementTimedOut) && ctx.Err() == nil: // and is in the way of no other table
			read[p.table] = true
			waiting = errors.Join(waiting, fmt.Errorf("dropping %s: %w: %w", p.name, sqlcore.ErrRead, err))
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

// dropSettings are those of a session that has the lock of those who drop: the server ends it where
// its process is frozen, or gone without a word, and with it the lock.
func dropSettings(idle string) map[string]string {
	return map[string]string{"idle_session_timeout": idle, "tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "4"}
}

// lockDrops takes the lock of those who drop, for as long as the session is idle no longer than so
// between two statements; ErrBusy where somebody else has it.
func lockDrops(ctx context.Context, conn *pgx.Conn, idle string) error {
	var alone bool
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, dropLock).Scan(&alone); err != nil {
		return fmt.Errorf("locking: %w", err)
	}
	if !alone {
		return sqlcore.ErrBusy
	}
	for setting, value := range dropSettings(idle) {
		if _, err := conn.Exec(ctx, `SELECT set_config($1, $2, FALSE)`, setting, value); err != nil {
			return fmt.Errorf("setting %s: %w", setting, err)
		}
	}
	return nil
}

// dropPart detaches a partition and drops it, and returns how many bytes of files it had. Names come from
// the catalogue, and are those of tables of history.
func dropPart(ctx context.Context, conn *pgx.Conn, p part) (freed int64, err error) {
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
		// Prepared statements, which they would be otherwise, are sent in transactions.
		if _, err := conn.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			return 0, err
		}
	}
	return freed, nil
}

// turn is when it goes among those of its day.
func (p part) turn() int {
	if turn := slices.Index(goFirst, p.table); turn >= 0 {
		return turn
	}
	return len(goFirst)
}

// parts are those of history, oldest first, also such as were detached and not dropped.
func (s *Store) parts(ctx context.Context) ([]part, error) {
	rows, err := s.pools[0].Query(ctx, `SELECT c.relname::text, i.inhrelid IS NOT NULL, COALESCE(i.inhdetachpending, FALSE)
		FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname ~ '_[0-9]{8}$'`)
	if err != nil {
		return nil, fmt.Errorf("listing partitions: %w", err)
	}
	parts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p part, err error) {
		err = row.Scan(&p.name, &p.attached, &p.pending)
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("listing partitions: %w", err)
	}
	for i := range parts {
		parts[i].locate()
	}
	parts = slices.DeleteFunc(parts, func(p part) bool { return p.table == "" })
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.day, b.day), cmp.Compare(a.turn(), b.turn()), cmp.Compare(a.name, b.name))
	})
	return parts, nil
}

// unneeded returns the parts without those of open days, in which something ends yet, and without those
// of ended runs, of days from keep on, of which a result is on its way. A part that was detached, or
// whose detaching has begun, is of no use any more.
func (s *Store) unneeded(ctx context.Context, parts []part, open []int64, keep int64) ([]part, error) {
	inUse := func(p part) bool { return p.attached && !p.pending }
	parts = slices.DeleteFunc(parts, func(p part) bool { return inUse(p) && slices.Contains(open, p.day) })
	mayStay := func(p part) bool { return p.table == "ended_runs" && inUse(p) && p.day >= keep }
	var days []int64
	for _, p := range parts {
		if mayStay(p) {
			days = append(days, p.day)
		}
	}
	if len(days) == 0 {
		return parts, nil
	}
	rows, err := s.pools[0].Query(ctx, `SELECT day FROM unnest($1::bigint[]) day WHERE EXISTS (SELECT 1 FROM deliveries d
		WHERE d.kind = 'result' AND d.run_id >= id_at(day * 86400000000) AND d.run_id < id_at((day + 1) * 86400000000))`, days)
	if err != nil {
		return nil, fmt.Errorf("looking for results that are on their way: %w", err)
	}
	stay, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("looking for results that are on their way: %w", err)
	}
	return slices.DeleteFunc(parts, func(p part) bool { return mayStay(p) && slices.Contains(stay, p.day) }), nil
}

// locate tells table and day by the name; neither of what is no part of history.
func (p *part) locate() {
	at := strings.LastIndexByte(p.name, '_')
	day, err := time.Parse("20060102", p.name[at+1:])
	if _, known := sqlcore.HistoryTables[p.name[:at]]; known && err == nil {
		p.table, p.day = p.name[:at], day.Unix()/int64(24*time.Hour/time.Second)
	}
}

// OldestDay implements sqlcore.Engine.
func (e engine) OldestDay(ctx context.Context) (day int64, known bool, err error) {
	parts, _, err := e.partsBefore(ctx, math.MaxInt64, 0)
	if err != nil || len(parts) == 0 {
		return 0, true, err
	}
	return parts[0].day, true, nil
}

// Days implements sqlcore.Engine.
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
		p := part{name: name}
		p.locate()
		days = append(days, p.day)
	}
	slices.Sort(days)
	slices.Reverse(days)
	return days, true, nil
}

// Shrink implements sqlcore.Engine: a table that is dropped is off the disk.
func (e engine) Shrink(context.Context) error { return nil }
