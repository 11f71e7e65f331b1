// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// endedOutboxRow is an outbox row of ended runs and connector runs.
type endedOutboxRow struct {
	store.Key
	failures            int
	postedAt            int64
	runs, connectorRuns []store.Key
}

func (e endedOutboxRow) keyAndFailures() (store.Key, int) { return e.Key, e.failures }

func scanEndedOutboxRow(row sqldb.Scanner) (e endedOutboxRow, err error) {
	var runs, connectorRuns []uuid.UUID
	err = row.Scan(&e.ProjectID, &e.ID, &e.failures, &e.postedAt, sqldb.ScanIDs(&runs), sqldb.ScanIDs(&connectorRuns))
	e.runs, e.connectorRuns = sqldb.KeysFromIDs(e.ProjectID, runs), sqldb.KeysFromIDs(e.ProjectID, connectorRuns)
	return e, err
}

// outboxColumn is a column of IDs in an outbox of ended rows.
type outboxColumn struct{ table, column string }

var (
	runsToRollUp          = outboxColumn{"outbox_rollups", "run_ids"}
	connectorRunsToRollUp = outboxColumn{"outbox_rollups", "connector_run_ids"}
	runsToIndex           = outboxColumn{"outbox_words", "run_ids"}
)

// waitingFirst is the number of outbox rows that are read at first. Many projects have no more.
const waitingFirst = 1024

// newestIDs returns the project's IDs in the column: all of them, or the newest rows with about most IDs. In
// the second case leftOut is the latest posting time of the other rows. Otherwise it is 0.
func (e outboxColumn) newestIDs(ctx context.Context, q sqldb.Queryer, project uuid.UUID, most int) (ids []store.Key, leftOut int64, err error) {
	type row struct {
		postedAt int64
		ids      []uuid.UUID
	}
	for limit := min(waitingFirst, most); ; limit = min(8*limit, most) {
		rows, err := sqldb.Collect(ctx, q, func(from sqldb.Scanner) (r row, err error) {
			err = from.Scan(&r.postedAt, sqldb.ScanIDs(&r.ids))
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
			ids = append(ids, sqldb.KeysFromIDs(project, r.ids)...)
		}
		switch {
		case len(rows) < limit:
			return ids, 0, nil
		case limit == most:
			return ids, rows[len(rows)-1].postedAt, nil
		}
	}
}

// allIDs returns all IDs of a project in the column.
func (e outboxColumn) allIDs(ctx context.Context, q sqldb.Queryer, project uuid.UUID) ([]store.Key, error) {
	ids, _, err := e.newestIDs(ctx, q, project, math.MaxInt32)
	return ids, err
}

// without returns the row without consumed runs.
func (e endedOutboxRow) without(done map[store.Key]bool) endedOutboxRow {
	consumed := func(key store.Key) bool { return done[key] }
	e.runs, e.connectorRuns = slices.DeleteFunc(slices.Clone(e.runs), consumed), slices.DeleteFunc(slices.Clone(e.connectorRuns), consumed)
	return e
}

// rowsByProject groups rows by project. The rows are in the order of their projects.
func rowsByProject(rows []endedOutboxRow) (projects [][]endedOutboxRow) {
	for i, row := range rows {
		if i == 0 || row.ProjectID != rows[i-1].ProjectID {
			projects = append(projects, nil)
		}
		projects[len(projects)-1] = append(projects[len(projects)-1], row)
	}
	return projects
}

// alternate returns the keys in an order that alternates between projects. So every prefix of the
// list has an equal share of each project.
func alternate(keys []store.Key) []store.Key {
	type nth struct {
		key store.Key
		n   int
	}
	seen, all := map[uuid.UUID]int{}, make([]nth, len(keys))
	for i, key := range keys {
		all[i] = nth{key, seen[key.ProjectID]}
		seen[key.ProjectID]++
	}
	slices.SortStableFunc(all, func(a, b nth) int { return cmp.Compare(a.n, b.n) })
	out := make([]store.Key, len(all))
	for i, of := range all {
		out[i] = of.key
	}
	return out
}

func (e endedOutboxRow) runCount() int { return len(e.runs) + len(e.connectorRuns) }

// splitHalves splits a row in two.
func (e endedOutboxRow) splitHalves() (a, b endedOutboxRow) {
	half := (e.runCount() + 1) / 2
	runs := min(half, len(e.runs))
	a, b = e, e
	a.runs, b.runs = e.runs[:runs], e.runs[runs:]
	a.connectorRuns, b.connectorRuns = e.connectorRuns[:half-runs], e.connectorRuns[half-runs:]
	b.ID = slices.Concat(b.runs, b.connectorRuns)[0].ID
	return a, b
}

// endedOutbox is an outbox of ended rows.
type endedOutbox struct {
	// due are the rows that may be consumed.
	due outboxSource
	// take deletes and returns the rows that match a condition on keys.
	take func(keys string) string
	// into and row insert the remaining rows.
	into, row string
	// wait delays the row of the project $1 and the ID $2 by $3.
	wait string
}

const endedColumns = `project_id, ended_id, failures, posted_at, run_ids`

var rollupsOutbox = endedOutbox{
	due: outboxSource{table: `outbox_rollups`, columns: endedColumns + `, connector_run_ids`},
	take: func(keys string) string {
		return `DELETE FROM outbox_rollups WHERE ` + keys + ` RETURNING ` + endedColumns + `, connector_run_ids`
	},
	into: `INSERT INTO outbox_rollups (project_id, ended_id, failures, posted_at, run_ids, connector_run_ids) VALUES `, row: `(%, %, %, %, %, %)`,
	wait: `UPDATE outbox_rollups SET failures = failures + 1, posted_at = now_us() + $3 WHERE project_id = $1 AND ended_id = $2 AND posted_at <= now_us()`,
}

var wordsOutbox = endedOutbox{
	due: outboxSource{table: `outbox_words`, columns: endedColumns + `, '{}'`},
	take: func(keys string) string {
		return `DELETE FROM outbox_words WHERE ` + keys + ` RETURNING ` + endedColumns + `, '{}'`
	},
	into: `INSERT INTO outbox_words (project_id, ended_id, failures, posted_at, run_ids) VALUES `, row: `(%, %, %, %, %)`,
	wait: `UPDATE outbox_words SET failures = failures + 1, posted_at = now_us() + $3 WHERE project_id = $1 AND ended_id = $2 AND posted_at <= now_us()`,
}

// takeRows takes rows that no other process has taken, in their current state.
func (b endedOutbox) takeRows(ctx context.Context, db *sqldb.DB, tx *sqldb.Tx, rows []endedOutboxRow) ([]endedOutboxRow, error) {
	var l sqldb.Args
	keys := make([]store.Key, len(rows))
	for i, row := range rows {
		keys[i] = row.Key
	}
	return sqldb.Collect(ctx, tx, scanEndedOutboxRow, b.take(db.KeyCondition(&l, "ended_id", keys)), l.Values...)
}

// insertRows inserts rows into the outbox, except empty ones.
func (b endedOutbox) insertRows(ctx context.Context, tx *sqldb.Tx, left ...endedOutboxRow) error {
	var all sqldb.RowBatch
	for _, e := range left {
		if e.runCount() > 0 {
			all.Add(e.ProjectID, e.ID, e.failures, e.postedAt, sqldb.IDsText(e.runs), sqldb.IDsText(e.connectorRuns))
		}
	}
	return all.Insert(ctx, tx, b.into, b.row, ``)
}

// batchPace is the batch size of a consumer. It is halved after each call that did not finish in time,
// and doubled after each other call.
type batchPace struct{ slow atomic.Int32 }

// maxSlow is the maximum number of halvings.
const maxSlow = 7

// batchSize returns how many of n are taken at once.
func (p *batchPace) batchSize(n int) int { return max(n>>p.slow.Load(), 1) }

// adjustPace records that rows of at most n were taken, and whether the call was late. After a late call the
// next call takes half of them.
func (p *batchPace) adjustPace(late bool, rows, n int) {
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

// After another gateway has consumed all rows that a consumer has read, the consumer skips up to
// maxSkippedShares shares, which the other gateway will probably read next. It stops after maxCollisions.
const (
	maxSkippedShares = 8
	maxCollisions    = 4
)

// consume consumes an outbox in batches, so that transactions are short. It returns the number of
// rows, including partly consumed ones. Rows posted meanwhile wait for the next call, because consuming
// rows one by one costs five times as much as in batches. A failing row blocks no other row: the consumer
// sets it aside. If a row uses up the time of a call, the next call takes fewer rows.
func (b endedOutbox) consume(
	ctx context.Context, db *sqldb.DB, pace *batchPace, turns *projectCursor, limit, most int, by consumer[endedOutboxRow],
) (n int, err error) {
	by.DB, by.halveRow = db, func(ctx context.Context, row endedOutboxRow) (bool, error) { return b.halve(ctx, db, row) }
	by.delayRow = func(ctx context.Context, tx *sqldb.Tx, row endedOutboxRow, wait time.Duration) error {
		_, err := tx.Exec(ctx, b.wait, row.ProjectID, row.ID, wait.Microseconds())
		return err
	}
	now, err := db.Now(ctx)
	if err != nil {
		return 0, err
	}
	var aside []error
	for collisions := 0; n < limit && collisions < maxCollisions; {
		in := turn{limit: min(limit-n, pace.batchSize(most)), until: now.UnixMicro()}
		if collisions > 0 {
			in.skip = 1 + rand.N(maxSkippedShares) //nolint:gosec // any random number will do
		}
		since := turns.lastProject()
		rows, err := takeTurn(ctx, db, turns, b.due, in, scanEndedOutboxRow)
		if err != nil {
			return n, sqldb.Wrap(err, "reading the outbox")
		}
		if len(rows) == 0 {
			break // other gateways consume the remaining rows, if any
		}
		slices.SortFunc(rows, func(a, b endedOutboxRow) int { return sqldb.CompareKeys(a.Key, b.Key) }) // so that locks are taken in one order
		err = by.consumeRows(ctx, rows)
		if errors.Is(err, errConsumedElsewhere) {
			collisions++
			continue
		}
		late := err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
		if whole := n == 0; whole || !late {
			pace.adjustPace(late, len(rows), most)
			if by.tooSlow(ctx, rows, err) {
				err = by.setAside(ctx, rows[0], err)
			}
		}
		var found *store.SetAsideError
		switch {
		case errors.As(err, &found):
			aside = append(aside, found.Rows...)
		case err != nil:
			turns.rewind(since) // the failing row comes again in a smaller batch
			return n, err
		}
		n += len(rows)
	}
	if len(aside) > 0 {
		return n, &store.SetAsideError{Rows: aside}
	}
	return n, nil
}

// halve splits a row in two, unless it has a single run or connector run.
func (b endedOutbox) halve(ctx context.Context, db *sqldb.DB, row endedOutboxRow) (halved bool, err error) {
	if row.runCount() < 2 {
		return false, nil
	}
	return true, db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		taken, err := b.takeRows(ctx, db, tx, []endedOutboxRow{row})
		if err != nil {
			return err
		}
		for _, row := range taken {
			if row.runCount() < 2 {
				return b.insertRows(ctx, tx, row)
			}
			first, second := row.splitHalves()
			if err := b.insertRows(ctx, tx, first, second); err != nil {
				return err
			}
		}
		return nil
	})
}
