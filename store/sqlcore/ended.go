// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// ended is a row of an outbox of what has ended: of runs, and of connector runs.
type ended struct {
	store.Key
	failures            int
	postedAt            int64
	runs, connectorRuns []store.Key
}

func (e ended) row() (store.Key, int) { return e.Key, e.failures }

func scanEnded(row scanner) (e ended, err error) {
	var runs, connectorRuns []uuid.UUID
	err = row.Scan(&e.ProjectID, &e.ID, &e.failures, &e.postedAt, idList{&runs}, idList{&connectorRuns})
	e.runs, e.connectorRuns = keysOf(e.ProjectID, runs), keysOf(e.ProjectID, connectorRuns)
	return e, err
}

// endedColumn is a column of ids of an outbox of what has ended.
type endedColumn struct{ table, column string }

var (
	runsToRollUp          = endedColumn{"outbox_rollups", "run_ids"}
	connectorRunsToRollUp = endedColumn{"outbox_rollups", "connector_run_ids"}
	runsToIndex           = endedColumn{"outbox_words", "run_ids"}
)

// waitingFirst is how many rows are read at first of what waits in an outbox; many projects have no more.
const waitingFirst = 1024

// newest returns what a project has in the column: all of it, or of so many rows the newest, with about most
// ids. Then leftOut is when the rows that are left out were posted at the latest; else it is 0.
func (e endedColumn) newest(ctx context.Context, q Queryer, project uuid.UUID, most int) (ids []store.Key, leftOut int64, err error) {
	type row struct {
		postedAt int64
		ids      []uuid.UUID
	}
	for limit := min(waitingFirst, most); ; limit = min(8*limit, most) {
		rows, err := collect(ctx, q, func(from scanner) (r row, err error) {
			err = from.Scan(&r.postedAt, idList{&r.ids})
			return r, err
		}, `SELECT posted_at, `+e.column+` FROM `+e.table+` WHERE project_id = $1 ORDER BY posted_at DESC LIMIT $2`, project, limit)
		if err != nil {
			return nil, 0, err
		}
		ids = nil
		for _, r := range rows {
			if len(ids) >= most {
				return ids, r.postedAt, nil
			}
			ids = append(ids, keysOf(project, r.ids)...)
		}
		switch {
		case len(rows) < limit:
			return ids, 0, nil
		case limit == most:
			return ids, rows[len(rows)-1].postedAt, nil
		}
	}
}

// all returns all that a project has in the column.
func (e endedColumn) all(ctx context.Context, q Queryer, project uuid.UUID) ([]store.Key, error) {
	ids, _, err := e.newest(ctx, q, project, math.MaxInt32)
	return ids, err
}

// without is what is left of a row once these are consumed.
func (e ended) without(done map[store.Key]bool) ended {
	consumed := func(key store.Key) bool { return done[key] }
	e.runs, e.connectorRuns = slices.DeleteFunc(slices.Clone(e.runs), consumed), slices.DeleteFunc(slices.Clone(e.connectorRuns), consumed)
	return e
}

func (e ended) size() int { return len(e.runs) + len(e.connectorRuns) }

// halves are two rows of what one is about.
func (e ended) halves() (a, b ended) {
	half := (e.size() + 1) / 2
	runs := min(half, len(e.runs))
	a, b = e, e
	a.runs, b.runs = e.runs[:runs], e.runs[runs:]
	a.connectorRuns, b.connectorRuns = e.connectorRuns[:half-runs], e.connectorRuns[half-runs:]
	b.ID = slices.Concat(b.runs, b.connectorRuns)[0].ID
	return a, b
}

// endedBox is an outbox of what has ended.
type endedBox struct {
	// due are the rows that may be consumed.
	due outboxRows
	// take deletes those of a condition on keys, and returns them.
	take func(keys string) string
	// into and row insert those that are left.
	into, row string
	// wait lets one wait, of the project $1 and the id $2, for $3.
	wait string
}

const endedColumns = `project_id, ended_id, failures, posted_at, run_ids`

var rollupsBox = endedBox{
	due: outboxRows{table: `outbox_rollups`, columns: endedColumns + `, connector_run_ids`},
	take: func(keys string) string {
		return `DELETE FROM outbox_rollups WHERE ` + keys + ` RETURNING ` + endedColumns + `, connector_run_ids`
	},
	into: `INSERT INTO outbox_rollups (project_id, ended_id, failures, posted_at, run_ids, connector_run_ids) VALUES `, row: `(%, %, %, %, %, %)`,
	wait: `UPDATE outbox_rollups SET failures = failures + 1, posted_at = now_us() + $3 WHERE project_id = $1 AND ended_id = $2 AND posted_at <= now_us()`,
}

var wordsBox = endedBox{
	due: outboxRows{table: `outbox_words`, columns: endedColumns + `, '{}'`},
	take: func(keys string) string {
		return `DELETE FROM outbox_words WHERE ` + keys + ` RETURNING ` + endedColumns + `, '{}'`
	},
	into: `INSERT INTO outbox_words (project_id, ended_id, failures, posted_at, run_ids) VALUES `, row: `(%, %, %, %, %)`,
	wait: `UPDATE outbox_words SET failures = failures + 1, posted_at = now_us() + $3 WHERE project_id = $1 AND ended_id = $2 AND posted_at <= now_us()`,
}

// takeRows takes rows that nobody else has taken meanwhile, as they are now.
func (b endedBox) takeRows(ctx context.Context, c *Core, tx *Tx, rows []ended) ([]ended, error) {
	var l list
	keys := make([]store.Key, len(rows))
	for i, row := range rows {
		keys[i] = row.Key
	}
	return collect(ctx, tx, scanEnded, b.take(c.keys(&l, "ended_id", keys)), l.args...)
}

// put puts rows into the outbox, but for those that are about nothing any more.
func (b endedBox) put(ctx context.Context, tx *Tx, left ...ended) error {
	var all rows
	for _, e := range left {
		if e.size() > 0 {
			all.add(e.ProjectID, e.ID, e.failures, e.postedAt, listText(e.runs), listText(e.connectorRuns))
		}
	}
	return all.insert(ctx, tx, b.into, b.row, ``)
}

// listText is a column of ids as both engines take it.
func listText(keys []store.Key) string {
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = key.ID.String()
	}
	return "{" + strings.Join(ids, ",") + "}"
}

// pace is how much of an outbox is consumed at once: half as much after each time that nothing came
// of it in the time that there was, and twice as much after each other time.
type pace struct{ slow atomic.Int32 }

// maxSlow is after how many halvings it is least.
const maxSlow = 7

// most is how many of n are taken at once.
func (p *pace) most(n int) int { return max(n>>p.slow.Load(), 1) }

// went says that so many rows were taken, of at most n, and whether that took too long: half of
// these are taken next.
func (p *pace) went(late bool, rows, n int) {
	slow := p.slow.Load()
	if !late {
		p.slow.Store(max(slow-1, 0))
		return
	}
	for slow++; slow < maxSlow && n>>slow >= rows; {
		slow++
	}
	p.slow.Store(min(slow, maxSlow))
}

// How consumers go on after another gateway has consumed all rows that they have read: they read past the
// rows that it is likely to read next, by up to spread shares, and stop after maxCollisions.
const (
	spread        = 8
	maxCollisions = 4
)

// consumeEnded consumes an outbox by some rows at a time, so that no transaction is long, and returns how
// many rows that were, including rows of which a part is left. Rows that are posted meanwhile wait for the
// next call: a row at a time costs five times as much as many at once. A row that cannot be consumed keeps
// no other waiting: it is set aside, or, if the time of a call is too short for it, tried with fewer rows
// the next time.
func (c *Core) consumeEnded(
	ctx context.Context, box endedBox, pace *pace, turns *turns, limit, most int, by consumer[ended],
) (n int, err error) {
	by.Core, by.halve = c, func(ctx context.Context, row ended) (bool, error) { return c.halveEnded(ctx, box, row) }
	by.wait = func(ctx context.Context, tx *Tx, row ended, wait time.Duration) error {
		_, err := tx.exec(ctx, box.wait, row.ProjectID, row.ID, wait.Microseconds())
		return err
	}
	now, err := c.Now(ctx)
	if err != nil {
		return 0, err
	}
	var aside []error
	for collisions := 0; n < limit && collisions < maxCollisions; {
		in := turn{limit: min(limit-n, pace.most(most)), until: now.UnixMicro()}
		if collisions > 0 {
			in.skip = 1 + rand.N(spread) //nolint:gosec // any lot will do
		}
		since := turns.since()
		rows, err := takeTurn(ctx, c, turns, box.due, in, scanEnded)
		if err != nil {
			return n, wrap(err, "looking for what is left to do")
		}
		if len(rows) == 0 {
			break // other gateways consume the rows that are left, if any
		}
		slices.SortFunc(rows, func(a, b ended) int { return CompareKeys(a.Key, b.Key) }) // so that turns are waited for in one order
		err = by.apart(ctx, rows)
		if errors.Is(err, errOthers) {
			collisions++
			continue
		}
		late := err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
		if whole := n == 0; whole || !late {
			pace.went(late, len(rows), most)
			if by.tooSlow(ctx, rows, err) {
				err = by.setAside(ctx, rows[0], err)
			}
		}
		var found *store.SetAsideError
		switch {
		case errors.As(err, &found):
			aside = append(aside, found.Rows...)
		case err != nil:
			turns.back(since) // the row that is at fault is met again among fewer
			return n, err
		}
		n += len(rows)
	}
	if len(aside) > 0 {
		return n, &store.SetAsideError{Rows: aside}
	}
	return n, nil
}

// halveEnded makes two rows of one, unless that is about one run or connector run.
func (c *Core) halveEnded(ctx context.Context, box endedBox, row ended) (halved bool, err error) {
	if row.size() < 2 {
		return false, nil
	}
	return true, c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		taken, err := box.takeRows(ctx, c, tx, []ended{row})
		if err != nil {
			return err
		}
		for _, row := range taken {
			if row.size() < 2 {
				return box.put(ctx, tx, row)
			}
			a, b := row.halves()
			if err := box.put(ctx, tx, a, b); err != nil {
				return err
			}
		}
		return nil
	})
}
