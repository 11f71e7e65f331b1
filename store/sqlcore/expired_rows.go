// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// expiredRows deletes expired rows of a table.
type expiredRows struct {
	*sqldb.DB
	skipped *skippedRows
	// what names the rows. It is also the name under which failing rows are set aside.
	what string
	// table has the rows r. id is its column that identifies a row in a project, where the condition
	// of expired rows, with args, and order their order.
	table, id, where, order string
	args                    []any
	// drop deletes expired rows in order, at most as many as the first argument of l. narrow is
	// another condition on r.
	drop func(ctx context.Context, tx *sqldb.Tx, narrow string, l sqldb.Args) (int64, error)
}

// rowCondition excludes the rows that are set aside, and selects only some rows if there are any.
func (e expiredRows) rowCondition(l *sqldb.Args, only []store.Key) (text string) {
	if len(only) > 0 {
		text += ` AND ` + e.KeyCondition(l, "r."+e.id, only)
	}
	if passed := e.skipped.skippedKeys(e.what); len(passed) > 0 {
		text += ` AND NOT (` + e.KeyCondition(l, "r."+e.id, passed) + `)`
	}
	return text
}

// dropSome deletes at most limit rows in a transaction, of these keys if there are any.
func (e expiredRows) dropSome(ctx context.Context, limit int, only []store.Key) (n int, err error) {
	err = e.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		l := sqldb.Args{Values: append([]any{limit}, e.args...)}
		narrow := e.rowCondition(&l, only)
		dropped, err := e.drop(ctx, tx, narrow, l)
		n = int(dropped)
		return err
	})
	if err != nil {
		return 0, err // nothing was deleted
	}
	return n, nil
}

// sweepRows deletes at most limit rows. If that fails, it looks for the failing rows and sets them aside,
// so that they block no other row.
func (e expiredRows) sweepRows(ctx context.Context, limit int) (n int, err error) {
	e.skipped.beginCall(e.what)
	if n, err = e.dropSome(ctx, limit, nil); err == nil {
		return n, nil
	}
	l := sqldb.Args{Values: append([]any{limit}, e.args...)}
	narrow := e.rowCondition(&l, nil)
	rows, readErr := sqldb.Collect(ctx, e.Reader(), sqldb.ScanKey, `SELECT r.project_id, r.`+e.id+` FROM `+e.table+` r
		WHERE `+e.where+narrow+` ORDER BY `+e.order+` LIMIT $1`, l.Values...)
	if readErr != nil || len(rows) == 0 {
		return 0, err
	}
	return n, isolation[store.Key]{
		processAll: func(ctx context.Context, rows []store.Key) error {
			dropped, err := e.dropSome(ctx, len(rows), rows)
			n += dropped
			return err
		},
		isDataError: e.IsDataError, canProceed: e.CanWrite,
		setAside: func(_ context.Context, row store.Key, because error) error {
			return e.skipped.skipRow(e.what, row, because)
		},
	}.isolateAfter(ctx, rows, err)
}
