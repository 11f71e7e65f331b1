// SPDX-License-Identifier: Apache-2.0

package statistics

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// minKeptAge is the age below which retention never deletes history, whatever its value.
const minKeptAge = 2 * sqldb.Day

// rebuildPage is the number of rows per read.
const rebuildPage = 5000

// rollupRebuilder rebuilds rollups of a kind for a project.
type rollupRebuilder interface {
	// rollupTables returns the table of the rollups and that of the history rows of an hour.
	rollupTables() (rollups, rows string)
	// rebuildPeriod rebuilds the period of a grain from begin on, and returns the number of its history
	// rows. The caller holds the lock of rollupsTurn, so the rollups do not change meanwhile.
	rebuildPeriod(ctx context.Context, tx *sqldb.Tx, g timewindow.Grain, begin int64, grown growth) (int64, error)
}

// RebuildRollups implements store.Rebuilder.
func (s *Store) RebuildRollups(ctx context.Context, counted func(store.RollupHour)) error {
	projects, err := sqldb.Collect(ctx, s.db.Reader(), sqldb.ScanUUID, `SELECT project_id FROM projects UNION SELECT project_id FROM stored_bytes ORDER BY project_id`)
	if err != nil {
		return sqldb.Wrap(err, "listing projects")
	}
	for _, project := range projects {
		runs := &runRebuilder{db: s.db, project: project, last: map[agentTotal]time.Time{}}
		for _, kind := range []rollupRebuilder{runs, usageRebuilder{runs}, connectorRunRebuilder{s.db, project}} {
			if err := s.rebuildRollups(ctx, project, kind, counted); err != nil {
				return sqldb.Wrap(err, "rebuilding the rollups of project %s", project)
			}
		}
		if err := s.underRollupLock(ctx, runs.writeTotals); err != nil {
			return sqldb.Wrap(err, "counting the totals of agents of project %s", project)
		}
	}
	return nil
}

// underRollupLock runs fn under the lock of the rollups, and counts their growth.
func (s *Store) underRollupLock(ctx context.Context, fn func(ctx context.Context, tx *sqldb.Tx, grown growth) error) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := s.db.Lock(ctx, tx, rollupsTurn); err != nil {
			return err
		}
		grown := growth{}
		if err := fn(ctx, tx, grown); err != nil {
			return err
		}
		return grown.writeBytes(ctx, tx)
	})
}

// rebuildRollups counts hours from their rows, then days from hours, and months from days.
func (s *Store) rebuildRollups(ctx context.Context, project uuid.UUID, kind rollupRebuilder, counted func(store.RollupHour)) error {
	first, err := s.firstWhole(ctx, project, kind)
	if err != nil {
		return err
	}
	for _, g := range timewindow.Grains {
		for at := g.FloorTime(first); ; {
			next, err := s.nextPeriod(ctx, project, kind, g, at)
			if err != nil || next == timewindow.Never {
				if err != nil {
					return err
				}
				break
			}
			begin := g.FloorTime(next)
			var (
				n     int64
				whole bool
			)
			err = s.underRollupLock(ctx, func(ctx context.Context, tx *sqldb.Tx, grown growth) (err error) {
				n, whole = 0, true
				if g == timewindow.Hourly {
					if whole, err = s.isWhole(ctx, tx, project, begin); err != nil || !whole {
						return err
					}
				}
				n, err = kind.rebuildPeriod(ctx, tx, g, begin, grown)
				return err
			})
			if err != nil && !s.db.NoTable(err) { // its partition was deleted meanwhile
				return err
			}
			if g == timewindow.Hourly && whole && err == nil {
				counted(store.RollupHour{Project: project, Begin: time.UnixMicro(begin).UTC(), Runs: n})
			}
			at = g.CeilTime(begin + 1)
		}
	}
	return nil
}

// isWhole reports whether an hour still has all its rows: the project may have shortened its
// retention since firstWhole was called. It also checks days behind a day that stays because of an
// undelivered result or a later end. Nothing is deleted until the transaction ends.
func (s *Store) isWhole(ctx context.Context, tx *sqldb.Tx, project uuid.UUID, begin int64) (bool, error) {
	if err := s.db.LockPast(ctx, tx, project); err != nil {
		return false, err
	}
	seen, err := s.db.ReadableSince(ctx, tx, project)
	if err != nil || begin < timewindow.Daily.CeilTime(seen) {
		return false, err
	}
	var whole bool
	err = tx.QueryRowContext(ctx, `SELECT $2 >= now_us() - $4 OR EXISTS (SELECT 1 FROM stored_days s JOIN stored_bytes b ON b.project_id = s.project_id
			WHERE s.project_id = $1 AND s.day = $3 AND NOT s.going AND s.day >= b.gone_until)`,
		project, begin, begin/sqldb.Day.Microseconds(), minKeptAge.Microseconds()).Scan(&whole)
	return whole, err
}

// firstWhole returns the start of the first hour that surely has all rows, because retention
// deletes the oldest first. For a project with a shorter retention, it is the first day that is
// completely readable: nothing of it is deleted within the next day.
func (s *Store) firstWhole(ctx context.Context, project uuid.UUID, kind rollupRebuilder) (int64, error) {
	now, err := s.db.Now(ctx)
	if err != nil {
		return 0, err
	}
	seen, err := s.db.ReadableSince(ctx, s.db.Reader(), project)
	if err != nil {
		return 0, err
	}
	_, rows := kind.rollupTables()
	oldest, err := timewindow.FirstSince(ctx, s.db, rows, project, timewindow.Always)
	return max(timewindow.Daily.CeilTime(seen), wholeSince(oldest, now)), err
}

// wholeSince returns the start of the first hour with all rows, from the oldest row, the zero ID
// without any. The hour of the oldest row may have had more, unless it is younger than the minimum
// retention.
func wholeSince(oldest uuid.UUID, now time.Time) int64 {
	kept := timewindow.Daily.FloorTime(now.Add(-minKeptAge).UnixMicro())
	if oldest == uuid.Nil {
		return kept
	}
	return min(kept, timewindow.Hourly.CeilTime(store.TimeOf(oldest).UnixMicro()+1))
}

// nextPeriod returns the first time at or after from for which a grain has, or had, something to
// count; never if there is none.
func (s *Store) nextPeriod(ctx context.Context, project uuid.UUID, kind rollupRebuilder, g timewindow.Grain, from int64) (int64, error) {
	table, rows := kind.rollupTables()
	rollups := `SELECT begins_at FROM ` + table + ` WHERE project_id = $1 AND grain = $2 AND begins_at >= $3 ORDER BY begins_at LIMIT 1`
	numbers, err := earliest(ctx, s.db.Reader(), rollups, project, string(g), from)
	if err != nil {
		return timewindow.Never, err
	}
	var made int64
	if g == timewindow.Hourly {
		made, err = timewindow.NextSince(ctx, s.db, rows, project, from)
	} else {
		made, err = earliest(ctx, s.db.Reader(), rollups, project, string(g.Smaller()), from)
	}
	return min(numbers, made), err
}

// earliest returns the time that a statement selects; never without any.
func earliest(ctx context.Context, q sqldb.Queryer, statement string, args ...any) (us int64, err error) {
	err = sqldb.MapNoRows(q.QueryRowContext(ctx, statement, args...).Scan(&us))
	if errors.Is(err, store.ErrNotFound) {
		return timewindow.Never, nil
	}
	return us, err
}
