// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// openSweep processes due open runs or deliveries.
type openSweep[R any] struct {
	*sqldb.DB
	skipped *skippedRows
	// name is the name under which failing rows are set aside.
	name string
	// columns, table, where and order select the rows of the table r, with args; order may be "".
	columns, table, where, order string
	args                         []any
	scan                         func(row sqldb.Scanner) (R, error)
	key                          func(row R) store.Key
	// lock, unless nil, locks the parent of the rows, and reports whether it exists.
	lock func(ctx context.Context, tx *sqldb.Tx) (bool, error)
	// move processes all rows or none, and returns the result.
	move func(ctx context.Context, tx *sqldb.Tx, rows []R) (store.Swept, error)
	// aside, unless nil, is called for a row that is set aside.
	aside func(ctx context.Context, row R)
}

// keysOnly is an openSweep of runs that needs only their keys.
func (c *Core) keysOnly(name, where, order string, move func(ctx context.Context, tx *sqldb.Tx, runs []store.Key) (store.Swept, error), args ...any) openSweep[store.Key] {
	return openSweep[store.Key]{
		DB: c.DB, skipped: c.skipped, name: name, columns: `r.project_id, r.id`, table: `open_runs`, where: where, order: order, args: args, scan: sqldb.ScanKey,
		key: func(run store.Key) store.Key { return run }, move: move,
	}
}

// readDue reads at most limit rows, of these keys if there are any.
func (s openSweep[R]) readDue(ctx context.Context, q sqldb.Queryer, limit int, only []store.Key, lock string) ([]R, error) {
	l := sqldb.Args{Values: append([]any{limit}, s.args...)}
	rest := ``
	if len(only) > 0 {
		rest = ` AND ` + s.KeyCondition(&l, "r.id", only)
	}
	if passed := s.skipped.skippedKeys(s.name); len(passed) > 0 {
		rest += ` AND NOT (` + s.KeyCondition(&l, "r.id", passed) + `)`
	}
	if s.order != "" {
		rest += ` ORDER BY ` + s.order
	}
	return sqldb.Collect(ctx, q, s.scan, `SELECT `+s.columns+` FROM `+s.table+` r WHERE `+s.where+rest+` LIMIT $1 `+lock, l.Values...)
}

// moveBatch processes at most limit rows in one transaction, of these keys if there are any.
func (s openSweep[R]) moveBatch(ctx context.Context, limit int, only []store.Key) (moved store.Swept, err error) {
	err = s.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		moved = store.Swept{}
		if s.lock != nil {
			if there, err := s.lock(ctx, tx); err != nil || !there {
				return err
			}
		}
		rows, err := s.readDue(ctx, tx, limit, only, s.SkipLocked)
		if err == nil && len(rows) > 0 {
			moved, err = s.move(ctx, tx, rows)
		}
		return err
	})
	if err != nil {
		return store.Swept{}, err // nothing was changed
	}
	return moved, nil
}

// setAside makes the next calls skip a row.
func (s openSweep[R]) setAside(ctx context.Context, row R, because error) error {
	if s.aside != nil {
		s.aside(ctx, row)
	}
	return s.skipped.skipRow(s.name, s.key(row), because)
}

// sweepDue processes at most limit rows, in one transaction unless some fail. It opens none if there
// are no rows. Rows that fail alone are set aside.
func (s openSweep[R]) sweepDue(ctx context.Context, limit int) (swept store.Swept, err error) {
	rows, err := s.readDue(ctx, s.Reader(), limit, nil, ``)
	if err != nil || len(rows) == 0 {
		return swept, err
	}
	if swept, err = s.moveBatch(ctx, limit, nil); err == nil {
		return swept, nil
	}
	if len(rows) == 1 && errors.Is(ctx.Err(), context.DeadlineExceeded) && s.CanWrite(ctx) { // this row takes too long
		return swept, s.setAside(ctx, rows[0], err)
	}
	return swept, isolation[R]{
		processAll: func(ctx context.Context, rows []R) error {
			keys := make([]store.Key, len(rows))
			for i, row := range rows {
				keys[i] = s.key(row)
			}
			moved, err := s.moveBatch(ctx, len(rows), keys)
			swept = swept.Plus(moved)
			return err
		},
		isDataError: s.IsDataError, canProceed: s.CanWrite, setAside: s.setAside,
	}.isolateAfter(ctx, rows, err)
}
