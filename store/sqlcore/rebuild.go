// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// surelyKept is the age below which retention never deletes history, whatever its value.
const surelyKept = 2 * day

// rebuildPage is the number of rows per read.
const rebuildPage = 5000

// recounting rebuilds rollups of a kind for a project.
type recounting interface {
	// next returns the first time at or after from for which a grain has, or had, something to
	// count; never if there is none.
	next(ctx context.Context, g grain, from int64) (int64, error)
	// count rebuilds the time of a grain that begins at begin, and returns the number of history
	// rows. The caller holds the lock of rollupsTurn, so the rollups do not change meanwhile.
	count(ctx context.Context, tx *Tx, g grain, begin int64, grown growth) (int64, error)
	// oldest returns the oldest row of history, the zero ID without any.
	oldest(ctx context.Context) (uuid.UUID, error)
}

// RebuildRollups implements store.Rebuilder.
func (c *Core) RebuildRollups(ctx context.Context, counted func(store.RollupHour)) error {
	projects, err := collect(ctx, c.engine.Reader(), scanID, `SELECT project_id FROM projects UNION SELECT project_id FROM stored_bytes ORDER BY project_id`)
	if err != nil {
		return wrap(err, "listing projects")
	}
	for _, project := range projects {
		runs := &countingRuns{Core: c, project: project, last: map[total]time.Time{}}
		for _, kind := range []recounting{runs, countingUsage{runs}, countingConnectorRuns{c, project}} {
			if err := c.recount(ctx, project, kind, counted); err != nil {
				return wrap(err, "rebuilding the rollups of project %s", project)
			}
		}
		if err := c.underRollupLock(ctx, runs.writeTotals); err != nil {
			return wrap(err, "counting the totals of agents of project %s", project)
		}
	}
	return nil
}

// underRollupLock runs fn under the lock of the rollups, and counts their growth.
func (c *Core) underRollupLock(ctx context.Context, fn func(ctx context.Context, tx *Tx, grown growth) error) error {
	return c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		if err := c.engine.Lock(ctx, tx, rollupsTurn); err != nil {
			return err
		}
		grown := growth{}
		if err := fn(ctx, tx, grown); err != nil {
			return err
		}
		return grown.write(ctx, tx)
	})
}

// recount counts hours from their rows, then days from hours, and months from days.
func (c *Core) recount(ctx context.Context, project uuid.UUID, kind recounting, counted func(store.RollupHour)) error {
	first, err := c.firstWhole(ctx, project, kind)
	if err != nil {
		return err
	}
	for _, g := range grains {
		for at := g.floor(first); ; {
			next, err := kind.next(ctx, g, at)
			if err != nil || next == never {
				if err != nil {
					return err
				}
				break
			}
			begin := g.floor(next)
			var (
				n     int64
				whole bool
			)
			err = c.underRollupLock(ctx, func(ctx context.Context, tx *Tx, grown growth) (err error) {
				n, whole = 0, true
				if g == hourly {
					if whole, err = c.isWhole(ctx, tx, project, begin); err != nil || !whole {
						return err
					}
				}
				n, err = kind.count(ctx, tx, g, begin, grown)
				return err
			})
			if err != nil && !c.noTable(err) { // its partition was deleted meanwhile
				return err
			}
			if g == hourly && whole && err == nil {
				counted(store.RollupHour{Project: project, Begin: time.UnixMicro(begin).UTC(), Runs: n})
			}
			at = g.ceil(begin + 1)
		}
	}
	return nil
}

// isWhole reports whether an hour still has all its rows: the project may have shortened its
// retention since firstWhole was called. It also checks days behind a day that stays because of an
// undelivered result or a later end. Nothing is deleted until the transaction ends.
func (c *Core) isWhole(ctx context.Context, tx *Tx, project uuid.UUID, begin int64) (bool, error) {
	if err := c.lockPast(ctx, tx, project); err != nil {
		return false, err
	}
	seen, err := c.readableSince(ctx, tx, project)
	if err != nil || begin < daily.ceil(seen) {
		return false, err
	}
	var whole bool
	err = tx.QueryRowContext(ctx, `SELECT $2 >= now_us() - $4 OR EXISTS (SELECT 1 FROM stored_days s JOIN stored_bytes b ON b.project_id = s.project_id
			WHERE s.project_id = $1 AND s.day = $3 AND NOT s.going AND s.day >= b.gone_until)`,
		project, begin, begin/day.Microseconds(), surelyKept.Microseconds()).Scan(&whole)
	return whole, err
}

// firstWhole returns the start of the first hour that surely has all rows, because retention
// deletes the oldest first. For a project with a shorter retention, it is the first day that is
// completely readable: nothing of it is deleted within the next day.
func (c *Core) firstWhole(ctx context.Context, project uuid.UUID, kind recounting) (int64, error) {
	now, err := c.Now(ctx)
	if err != nil {
		return 0, err
	}
	seen, err := c.readableSince(ctx, c.engine.Reader(), project)
	if err != nil {
		return 0, err
	}
	oldest, err := kind.oldest(ctx)
	return max(daily.ceil(seen), wholeSince(oldest, now)), err
}

// wholeSince returns the start of the first hour with all rows, from the oldest row, the zero ID
// without any. The hour of the oldest row may have had more, unless it is younger than the minimum
// retention.
func wholeSince(oldest uuid.UUID, now time.Time) int64 {
	kept := daily.floor(now.Add(-surelyKept).UnixMicro())
	if oldest == uuid.Nil {
		return kept
	}
	return min(kept, hourly.ceil(store.TimeOf(oldest).UnixMicro()+1))
}

// earliest returns the time that a statement selects; never without any.
func earliest(ctx context.Context, q Queryer, statement string, args ...any) (us int64, err error) {
	err = found(q.QueryRowContext(ctx, statement, args...).Scan(&us))
	if errors.Is(err, store.ErrNotFound) {
		return never, nil
	}
	return us, err
}

// leastID returns the lowest ID of a time.
func leastID(us int64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], uint64(max(us, 0)/1000)<<16)
	return id
}

// smallerGrain returns the next smaller grain.
func (g grain) smallerGrain() grain {
	if g == monthly {
		return daily
	}
	return hourly
}

// during returns the period of the grain that begins at a time.
func (g grain) during(begin int64) period { return period{begin, g.ceil(begin + 1)} }
