// SPDX-License-Identifier: Apache-2.0

package statistics

import (
	"context"
	"maps"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
)

// RollupBytes is the stored size of a rollup row: about its real size with its share of the
// indexes.
const RollupBytes = 512

// growth is the change of rollup bytes per project in a transaction. It is written at the end, for
// all projects at once, so that concurrent transactions lock in one order.
type growth map[uuid.UUID]int64

// countRows counts n new rows, or deleted rows if n is below 0.
func (g growth) countRows(project uuid.UUID, n int64) { g[project] += n * RollupBytes }

// insertRows inserts rows or adds to existing ones, and counts the new ones, as the scan of the
// returned rows reports.
func (g growth) insertRows(ctx context.Context, tx *sqldb.Tx, numbers sqldb.RowBatch, into, row, after string, isNew func(sqldb.Scanner) (project uuid.UUID, fresh bool, err error)) error {
	return numbers.EachStatement(into, row, after, func(statement string, args []any) error {
		return sqldb.EachRow(ctx, tx, func(row sqldb.Scanner) error {
			project, fresh, err := isNew(row)
			if fresh {
				g.countRows(project, 1)
			}
			return err
		}, statement, args...)
	})
}

// writeBytes adds the growth to the stored bytes of projects.
func (g growth) writeBytes(ctx context.Context, tx *sqldb.Tx) error {
	maps.DeleteFunc(g, func(_ uuid.UUID, bytes int64) bool { return bytes == 0 })
	return storedbytes.Add(ctx, tx, g)
}
