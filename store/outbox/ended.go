// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/sweep"
)

// EndedRow is an outbox row of ended runs and connector runs.
type EndedRow struct {
	store.Key
	failures            int
	PostedAt            int64
	Runs, ConnectorRuns []store.Key
}

// KeyAndFailures implements Row.
func (e EndedRow) KeyAndFailures() (store.Key, int) { return e.Key, e.failures }

func scanEndedOutboxRow(row sqldb.Scanner) (e EndedRow, err error) {
	var runs, connectorRuns []uuid.UUID
	err = row.Scan(&e.ProjectID, &e.ID, &e.failures, &e.PostedAt, sqldb.ScanIDs(&runs), sqldb.ScanIDs(&connectorRuns))
	e.Runs, e.ConnectorRuns = sqldb.KeysFromIDs(e.ProjectID, runs), sqldb.KeysFromIDs(e.ProjectID, connectorRuns)
	return e, err
}

// Column is a column of IDs in an outbox of ended rows.
type Column struct{ table, column string }

var (
	RunsToRollUp          = Column{"outbox_rollups", "run_ids"}
	ConnectorRunsToRollUp = Column{"outbox_rollups", "connector_run_ids"}
	RunsToIndex           = Column{"outbox_words", "run_ids"}
)

// waitingFirst is the number of outbox rows that are read at first. Many projects have no more.
const waitingFirst = 1024

// NewestIDs returns the project's IDs in the column: all of them, or the newest rows with about most IDs. In
// the second case leftOut is the latest posting time of the other rows. Otherwise it is 0.
func (e Column) NewestIDs(ctx context.Context, q sqldb.Queryer, project uuid.UUID, most int) (ids []store.Key, leftOut int64, err error) {
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

// AllIDs returns all IDs of a project in the column.
func (e Column) AllIDs(ctx context.Context, q sqldb.Queryer, project uuid.UUID) ([]store.Key, error) {
	ids, _, err := e.NewestIDs(ctx, q, project, math.MaxInt32)
	return ids, err
}

// Without returns the row without consumed runs.
func (e EndedRow) Without(done map[store.Key]bool) EndedRow {
	consumed := func(key store.Key) bool { return done[key] }
	e.Runs, e.ConnectorRuns = slices.DeleteFunc(slices.Clone(e.Runs), consumed), slices.DeleteFunc(slices.Clone(e.ConnectorRuns), consumed)
	return e
}

// RowsByProject groups rows by project. The rows are in the order of their projects.
func RowsByProject(rows []EndedRow) (projects [][]EndedRow) {
	for i, row := range rows {
		if i == 0 || row.ProjectID != rows[i-1].ProjectID {
			projects = append(projects, nil)
		}
		projects[len(projects)-1] = append(projects[len(projects)-1], row)
	}
	return projects
}

// Alternate returns the keys in an order that alternates between projects. So every prefix of the
// list has an equal share of each project.
func Alternate(keys []store.Key) []store.Key {
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

func (e EndedRow) runCount() int { return len(e.Runs) + len(e.ConnectorRuns) }

// splitHalves splits a row in two. The second half gets a new ID, because another row can have the ID of one of its runs.
func (e EndedRow) splitHalves(id uuid.UUID) (a, b EndedRow) {
	half := (e.runCount() + 1) / 2
	runs := min(half, len(e.Runs))
	a, b = e, e
	a.Runs, b.Runs = e.Runs[:runs], e.Runs[runs:]
	a.ConnectorRuns, b.ConnectorRuns = e.ConnectorRuns[:half-runs], e.ConnectorRuns[half-runs:]
	b.ID = id
	return a, b
}

// Ended is an outbox of ended rows.
type Ended struct {
	// due are the rows that may be consumed.
	due Source
	// take deletes and returns the rows that match a condition on keys.
	take func(keys string) string
	// into and row insert the remaining rows.
	into, row string
	// wait delays the row of the project $1 and the ID $2 by $3.
	wait string
}

const endedColumns = `project_id, ended_id, failures, posted_at, run_ids`

// Rollups is the outbox of the rollups.
var Rollups = Ended{
	due: Source{Table: `outbox_rollups`, Columns: endedColumns + `, connector_run_ids`},
	take: func(keys string) string {
		return `DELETE FROM outbox_rollups WHERE ` + keys + ` RETURNING ` + endedColumns + `, connector_run_ids`
	},
	into: `INSERT INTO outbox_rollups (project_id, ended_id, failures, posted_at, run_ids, connector_run_ids) VALUES `, row: `(%, %, %, %, %, %)`,
	wait: `UPDATE outbox_rollups SET failures = failures + 1, posted_at = now_us() + $3 WHERE project_id = $1 AND ended_id = $2 AND posted_at <= now_us()`,
}

// Words is the outbox of the search index.
var Words = Ended{
	due: Source{Table: `outbox_words`, Columns: endedColumns + `, '{}'`},
	take: func(keys string) string {
		return `DELETE FROM outbox_words WHERE ` + keys + ` RETURNING ` + endedColumns + `, '{}'`
	},
	into: `INSERT INTO outbox_words (project_id, ended_id, failures, posted_at, run_ids) VALUES `, row: `(%, %, %, %, %)`,
	wait: `UPDATE outbox_words SET failures = failures + 1, posted_at = now_us() + $3 WHERE project_id = $1 AND ended_id = $2 AND posted_at <= now_us()`,
}

// Take takes rows that no other process has taken, in their current state.
func (b Ended) Take(ctx context.Context, db *sqldb.DB, tx *sqldb.Tx, rows []EndedRow) ([]EndedRow, error) {
	var l sqldb.Args
	keys := make([]store.Key, len(rows))
	for i, row := range rows {
		keys[i] = row.Key
	}
	return sqldb.Collect(ctx, tx, scanEndedOutboxRow, b.take(db.KeyCondition(&l, "ended_id", keys)), l.Values...)
}

// Insert inserts rows into the outbox, except empty ones.
func (b Ended) Insert(ctx context.Context, tx *sqldb.Tx, left ...EndedRow) error {
	var all sqldb.RowBatch
	for _, e := range left {
		if e.runCount() > 0 {
			all.Add(e.ProjectID, e.ID, e.failures, e.PostedAt, sqldb.IDsText(e.Runs), sqldb.IDsText(e.ConnectorRuns))
		}
	}
	return all.Insert(ctx, tx, b.into, b.row, ``)
}

// PostConnectorRuns adds ended connector runs to the outbox.
func PostConnectorRuns(ctx context.Context, tx *sqldb.Tx, ended []store.Key) error {
	of := map[uuid.UUID][]uuid.UUID{}
	for _, key := range ended {
		of[key.ProjectID] = append(of[key.ProjectID], key.ID)
	}
	var posted sqldb.RowBatch
	for _, project := range slices.SortedFunc(maps.Keys(of), sqldb.CompareIDs) {
		posted.Add(project, of[project][0], sqldb.IDsText(sqldb.KeysFromIDs(project, of[project])))
	}
	return posted.Insert(ctx, tx, `INSERT INTO outbox_rollups (project_id, ended_id, connector_run_ids, posted_at) VALUES `, `(%, %, %, now_us())`, ``)
}

// Pace is the batch size of a consumer. It is halved after each call that did not finish in time,
// and doubled after each other call.
type Pace struct{ slow atomic.Int32 }

// maxSlow is the maximum number of halvings.
const maxSlow = 7

// BatchSize returns how many of n are taken at once.
func (p *Pace) BatchSize(n int) int { return max(n>>p.slow.Load(), 1) }

// adjustPace records that rows of at most n were taken, and whether the call was late. After a late call the
// next call takes half of them.
func (p *Pace) adjustPace(late bool, rows, n int) {
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

// Consume consumes an outbox in batches, so that transactions are short. It returns the number of
// rows, including partly consumed ones. Rows posted meanwhile wait for the next call, because consuming
// rows one by one costs five times as much as in batches. A failing row blocks no other row: the consumer
// sets it aside. If a row uses up the time of a call, the next call takes fewer rows.
func (b Ended) Consume(
	ctx context.Context, db *sqldb.DB, pace *Pace, turns *Cursor, limit, most int, by Consumer[EndedRow],
) (n int, err error) {
	by.DB, by.halveRow = db, func(ctx context.Context, row EndedRow) (bool, error) { return b.halve(ctx, db, row) }
	by.DelayRow = func(ctx context.Context, tx *sqldb.Tx, row EndedRow, wait time.Duration) error {
		_, err := tx.Exec(ctx, b.wait, row.ProjectID, row.ID, wait.Microseconds())
		return err
	}
	now, err := db.Now(ctx)
	if err != nil {
		return 0, err
	}
	var aside []error
	for collisions := 0; n < limit && collisions < maxCollisions; {
		in := Turn{Limit: min(limit-n, pace.BatchSize(most)), Until: now.UnixMicro()}
		if collisions > 0 {
			in.skip = 1 + rand.N(maxSkippedShares) //nolint:gosec // any random number will do
		}
		since := turns.Last()
		rows, err := TakeTurn(ctx, db, turns, b.due, in, scanEndedOutboxRow)
		if err != nil {
			return n, sqldb.Wrap(err, "reading the outbox")
		}
		if len(rows) == 0 {
			break // other gateways consume the remaining rows, if any
		}
		slices.SortFunc(rows, func(a, b EndedRow) int { return sqldb.CompareKeys(a.Key, b.Key) }) // so that locks are taken in one order
		err = by.Consume(ctx, rows)
		if errors.Is(err, sweep.ErrConsumedElsewhere) {
			collisions++
			continue
		}
		late := err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
		if whole := n == 0; whole || !late {
			pace.adjustPace(late, len(rows), most)
			if by.TooSlow(ctx, rows, err) {
				err = by.SetAside(ctx, rows[0], err)
			}
		}
		var found *store.SetAsideError
		switch {
		case errors.As(err, &found):
			aside = append(aside, found.Rows...)
		case err != nil:
			turns.Rewind(since) // the failing row comes again in a smaller batch
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
func (b Ended) halve(ctx context.Context, db *sqldb.DB, row EndedRow) (halved bool, err error) {
	if row.runCount() < 2 {
		return false, nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return false, sqldb.Wrap(err, "generating an ID")
	}
	return true, db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		taken, err := b.Take(ctx, db, tx, []EndedRow{row})
		if err != nil {
			return err
		}
		for _, row := range taken {
			if row.runCount() < 2 {
				return b.Insert(ctx, tx, row)
			}
			first, second := row.splitHalves(id)
			if err := b.Insert(ctx, tx, first, second); err != nil {
				return err
			}
		}
		return nil
	})
}
