// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Expired deletes expired rows of a table.
type Expired struct {
	*sqldb.DB
	Skipped *Skipped
	// What names the rows.
	What string
	// Table has the rows r. ID is its column that identifies a row in a project, Where the condition
	// of expired rows, with args, and Order their order.
	Table, ID, Where, Order string
	Args                    []any
	// Drop deletes expired rows in order, at most as many as the first argument of l. narrow is
	// another condition on r.
	Drop func(ctx context.Context, tx *sqldb.Tx, narrow string, l sqldb.Args) (int64, error)
}

// rowCondition excludes the rows that are set aside, and selects only some rows if there are any.
func (e Expired) rowCondition(l *sqldb.Args, only []store.Key) (text string) {
	if len(only) > 0 {
		text += ` AND ` + e.KeyCondition(l, "r."+e.ID, only)
	}
	if passed := e.Skipped.Keys(); len(passed) > 0 {
		text += ` AND NOT (` + e.KeyCondition(l, "r."+e.ID, passed) + `)`
	}
	return text
}

// dropSome deletes at most limit rows in a transaction, of these keys if there are any.
func (e Expired) dropSome(ctx context.Context, limit int, only []store.Key) (n int, err error) {
	err = e.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		l := sqldb.Args{Values: append([]any{limit}, e.Args...)}
		narrow := e.rowCondition(&l, only)
		dropped, err := e.Drop(ctx, tx, narrow, l)
		n = int(dropped)
		return err
	})
	if err != nil {
		return 0, err // nothing was deleted
	}
	return n, nil
}

// Sweep deletes at most limit rows. If that fails, it looks for the failing rows and sets them aside,
// so that they block no other row.
func (e Expired) Sweep(ctx context.Context, limit int) (n int, err error) {
	e.Skipped.BeginCall()
	if n, err = e.dropSome(ctx, limit, nil); err == nil {
		return n, nil
	}
	l := sqldb.Args{Values: append([]any{limit}, e.Args...)}
	narrow := e.rowCondition(&l, nil)
	rows, readErr := sqldb.Collect(ctx, e.Reader(), sqldb.ScanKey, `SELECT r.project_id, r.`+e.ID+` FROM `+e.Table+` r
		WHERE `+e.Where+narrow+` ORDER BY `+e.Order+` LIMIT $1`, l.Values...)
	if readErr != nil || len(rows) == 0 {
		return 0, err
	}
	return n, Isolation[store.Key]{
		ProcessAll: func(ctx context.Context, rows []store.Key) error {
			dropped, err := e.dropSome(ctx, len(rows), rows)
			n += dropped
			return err
		},
		IsDataError: e.IsDataError, CanProceed: e.CanWrite,
		SetAside: func(_ context.Context, row store.Key, because error) error {
			return e.Skipped.Skip(row, because)
		},
	}.IsolateAfter(ctx, rows, err)
}
