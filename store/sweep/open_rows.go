// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"errors"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// OpenRows processes due open runs or deliveries.
type OpenRows[R any] struct {
	*sqldb.DB
	Skipped *Skipped
	// Columns, Table, Where and Order select the rows of the table r, with args; Order may be "".
	Columns, Table, Where, Order string
	Args                         []any
	Scan                         func(row sqldb.Scanner) (R, error)
	Key                          func(row R) store.Key
	// Lock, unless nil, locks the parent of the rows, and reports whether it exists.
	Lock func(ctx context.Context, tx *sqldb.Tx) (bool, error)
	// Move processes all rows or none, and returns the result.
	Move func(ctx context.Context, tx *sqldb.Tx, rows []R) (store.Swept, error)
	// Aside, unless nil, is called for a row that is set aside.
	Aside func(ctx context.Context, row R)
}

// RunsByKey is an OpenRows of runs that needs only their keys.
func RunsByKey(db *sqldb.DB, skipped *Skipped, where, order string, move func(ctx context.Context, tx *sqldb.Tx, runs []store.Key) (store.Swept, error), args ...any) OpenRows[store.Key] {
	return OpenRows[store.Key]{
		DB: db, Skipped: skipped, Columns: `r.project_id, r.id`, Table: `open_runs`, Where: where, Order: order, Args: args, Scan: sqldb.ScanKey,
		Key: func(run store.Key) store.Key { return run }, Move: move,
	}
}

// readDue reads at most limit rows, of these keys if there are any.
func (s OpenRows[R]) readDue(ctx context.Context, q sqldb.Queryer, limit int, only []store.Key, lock string) ([]R, error) {
	l := sqldb.Args{Values: append([]any{limit}, s.Args...)}
	rest := ``
	if len(only) > 0 {
		rest = ` AND ` + s.KeyCondition(&l, "r.id", only)
	}
	if passed := s.Skipped.Keys(); len(passed) > 0 {
		rest += ` AND NOT (` + s.KeyCondition(&l, "r.id", passed) + `)`
	}
	if s.Order != "" {
		rest += ` ORDER BY ` + s.Order
	}
	return sqldb.Collect(ctx, q, s.Scan, `SELECT `+s.Columns+` FROM `+s.Table+` r WHERE `+s.Where+rest+` LIMIT $1 `+lock, l.Values...)
}

// moveBatch processes at most limit rows in one transaction, of these keys if there are any.
func (s OpenRows[R]) moveBatch(ctx context.Context, limit int, only []store.Key) (moved store.Swept, err error) {
	err = s.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		moved = store.Swept{}
		if s.Lock != nil {
			if there, err := s.Lock(ctx, tx); err != nil || !there {
				return err
			}
		}
		rows, err := s.readDue(ctx, tx, limit, only, s.SkipLocked)
		if err == nil && len(rows) > 0 {
			moved, err = s.Move(ctx, tx, rows)
		}
		return err
	})
	if err != nil {
		return store.Swept{}, err // nothing was changed
	}
	return moved, nil
}

// setAside makes the next calls skip a row.
func (s OpenRows[R]) setAside(ctx context.Context, row R, because error) error {
	if s.Aside != nil {
		s.Aside(ctx, row)
	}
	return s.Skipped.Skip(s.Key(row), because)
}

// Sweep processes at most limit rows, in one transaction unless some fail. It opens none if there
// are no rows. Rows that fail alone are set aside.
func (s OpenRows[R]) Sweep(ctx context.Context, limit int) (swept store.Swept, err error) {
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
	return swept, Isolation[R]{
		ProcessAll: func(ctx context.Context, rows []R) error {
			keys := make([]store.Key, len(rows))
			for i, row := range rows {
				keys[i] = s.Key(row)
			}
			moved, err := s.moveBatch(ctx, len(rows), keys)
			swept = swept.Plus(moved)
			return err
		},
		IsDataError: s.IsDataError, CanProceed: s.CanWrite, SetAside: s.setAside,
	}.IsolateAfter(ctx, rows, err)
}
