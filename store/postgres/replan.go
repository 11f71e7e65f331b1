// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Table sizes for Replan, in pages of 8 KiB. A smaller table is as fast without an index. A larger
// table takes long to analyze and is left to the server.
const (
	fewPages  = 8
	manyPages = 4096
)

// Replan implements store.Housekeeping. A connection plans a statement once, for all arguments.
// While tables are empty, all plans look equal, and one that reads all rows of a project may be
// chosen. ANALYZE makes all connections plan again. The server's autovacuum comes too late for
// that: after a minute and many thousand rows.
func (s *Store) Replan(ctx context.Context) error {
	if err := s.schema.CheckUsable(); err != nil {
		return err
	}
	rows, err := s.pools[0].Query(ctx, `SELECT quote_ident(t.relname) FROM (
			SELECT c.relname, c.relpages, pg_relation_size(c.oid) / 8192 AS pages FROM pg_class c
			WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relpages < $1) t
		WHERE t.pages > 2 * GREATEST(t.relpages, $2) AND t.pages <= $1`, manyPages, fewPages/2)
	if err != nil {
		return fmt.Errorf("listing tables that have grown: %w", err)
	}
	grown, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("listing tables that have grown: %w", err)
	}
	for _, table := range grown { // separately: a table may be dropped meanwhile
		if err := s.analyze(ctx, table); err != nil && !hasCode(err, undefinedTable) {
			return fmt.Errorf("analyzing %s: %w", table, err)
		}
	}
	return nil
}

// analyze samples some 3,000 rows of a table, a tenth of the default. Generic plans need the number
// of rows, and hardly their contents.
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
