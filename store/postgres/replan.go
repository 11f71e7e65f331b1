// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Bounds of Replan, in pages of 8 KiB: a table with fewer is read as fast without an index,
// and one that has more is left to the server, for it takes long to be looked at.
const (
	fewPages  = 8
	manyPages = 4096
)

// Replan implements store.Housekeeping. A connection plans a statement once, for any
// arguments; while the tables are empty each way to the rows looks as good as any other, and
// one that reads all rows of a project may be chosen. ANALYZE lets all connections plan anew.
// The server's own comes too late for that: a minute and many thousand rows.
func (s *Store) Replan(ctx context.Context) error {
	rows, err := s.pools[0].Query(ctx, `SELECT quote_ident(t.relname) FROM (
			SELECT c.relname, c.relpages, pg_relation_size(c.oid) / 8192 AS pages FROM pg_class c
			WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relpages < $1) t
		WHERE t.pages > 2 * GREATEST(t.relpages, $2) AND t.pages <= $1`, manyPages, fewPages/2)
	if err != nil {
		return fmt.Errorf("looking for tables that have grown: %w", err)
	}
	grown, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("looking for tables that have grown: %w", err)
	}
	for _, table := range grown { // each for itself: one may be dropped meanwhile
		if err := s.analyze(ctx, table); err != nil && !hasCode(err, undefinedTable) {
			return fmt.Errorf("letting statements about %s be planned anew: %w", table, err)
		}
	}
	return nil
}

// analyze reads some 3,000 rows of a table, a tenth of what is usual: plans that are for any
// arguments need to know how many rows there are, and hardly what is in them.
func (s *Store) analyze(ctx context.Context, table string) error {
	return pgx.BeginFunc(ctx, s.pools[0], func(tx pgx.Tx) error {
		for _, statement := range []string{`SET LOCAL default_statistics_target = 10`, `ANALYZE (SKIP_LOCKED) ` + table} {
			if _, err := tx.Exec(ctx, statement, pgx.QueryExecModeExec); err != nil {
				return err
			}
		}
		return nil
	})
}
