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

// surelyKept is how old history is at most that retention has not begun to delete, whatever it is:
// it keeps that many whole days.
const surelyKept = 2 * day

// rebuildPage is how many rows are read at once that are counted anew.
const rebuildPage = 5000

// recounting is how numbers of a kind are counted anew, of a project.
type recounting interface {
	// next is when something is, or was, to be counted for a grain, at a moment or later; never
	// without any.
	next(ctx context.Context, g grain, from int64) (int64, error)
	// count counts the time of a grain that begins at a moment anew, and returns how many rows of
	// history that were. Who does has the lock of rollupsTurn: nobody adds to numbers meanwhile.
	count(ctx context.Context, tx *Tx, g grain, begin int64, grown growth) (int64, error)
	// oldest is the oldest row of history, the zero id without any.
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
				return wrap(err, "counting the runs of project %s anew", project)
			}
		}
		if err := c.inTurn(ctx, runs.writeTotals); err != nil {
			return wrap(err, "counting what agents of project %s have had in all", project)
		}
	}
	return nil
}

// inTurn runs fn while nobody else adds to numbers, and counts by how much they have grown.
func (c *Core) inTurn(ctx context.Context, fn func(ctx context.Context, tx *Tx, grown growth) error) error {
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

// recount counts hours by their rows, then days by their hours, and months by their days.
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
			err = c.inTurn(ctx, func(ctx context.Context, tx *Tx, grown growth) (err error) {
				n, whole = 0, true
				if g == hourly {
					if whole, err = c.isWhole(ctx, tx, project, begin); err != nil || !whole {
						return err
					}
				}
				n, err = kind.count(ctx, tx, g, begin, grown)
				return err
			})
			if err != nil && !c.noTable(err) { // its part of history has gone meanwhile
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

// isWhole says whether none of an hour has gone: since firstWhole was asked, for a project may keep
// history for a shorter time by now; and of a day behind one that stays because a result of it is on
// its way, or of which something ended later. Until the transaction ends none goes.
func (c *Core) isWhole(ctx context.Context, tx *Tx, project uuid.UUID, begin int64) (bool, error) {
	if err := c.lockPast(ctx, tx, project); err != nil {
		return false, err
	}
	seen, err := c.seenSince(ctx, tx, project)
	if err != nil || begin < daily.ceil(seen) {
		return false, err
	}
	var whole bool
	err = tx.QueryRowContext(ctx, `SELECT $2 >= now_us() - $4 OR EXISTS (SELECT 1 FROM stored_days s JOIN stored_bytes b ON b.project_id = s.project_id
			WHERE s.project_id = $1 AND s.day = $3 AND NOT s.going AND s.day >= b.gone_until)`,
		project, begin, begin/day.Microseconds(), surelyKept.Microseconds()).Scan(&whole)
	return whole, err
}

// firstWhole is when the first hour begins of which history has all rows for sure: retention
// deletes the oldest ones first. Of a project that keeps history for a shorter time it is the first
// day all of which may be read: of that nothing goes for a day from now.
func (c *Core) firstWhole(ctx context.Context, project uuid.UUID, kind recounting) (int64, error) {
	now, err := c.Now(ctx)
	if err != nil {
		return 0, err
	}
	seen, err := c.seenSince(ctx, c.engine.Reader(), project)
	if err != nil {
		return 0, err
	}
	oldest, err := kind.oldest(ctx)
	return max(daily.ceil(seen), wholeSince(oldest, now)), err
}

// wholeSince is when the first hour begins that has all its rows, by the oldest row, the zero id
// without any: the hour of that one may have had more, unless it is younger than retention is at
// least.
func wholeSince(oldest uuid.UUID, now time.Time) int64 {
	kept := daily.floor(now.Add(-surelyKept).UnixMicro())
	if oldest == uuid.Nil {
		return kept
	}
	return min(kept, hourly.ceil(store.TimeOf(oldest).UnixMicro()+1))
}

// earliest is the least of what statements find, of a time or of an id; never where they find none.
func earliest[T any](ctx context.Context, q Queryer, timeOf func(T) int64, statement string, args ...any) (int64, error) {
	var value T
	err := found(q.QueryRowContext(ctx, statement, args...).Scan(&value))
	if errors.Is(err, store.ErrNotFound) {
		return never, nil
	}
	if err != nil {
		return never, err
	}
	return timeOf(value), nil
}

// leastID is the least id of a moment.
func leastID(us int64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], uint64(max(us, 0)/1000)<<16)
	return id
}

func timeOfID(id uuid.UUID) int64 { return store.TimeOf(id).UnixMicro() }

func sameTime(us int64) int64 { return us }

// below is the grain of which the times of a grain are made.
func (g grain) below() grain {
	if g == monthly {
		return daily
	}
	return hourly
}

// during is what begins at a moment and lasts as long as the grain.
func (g grain) during(begin int64) period { return period{begin, g.ceil(begin + 1)} }
