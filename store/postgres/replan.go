// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Bounds of Replan, in pages of 8 KiB: a table with fewer is read as fast without an index,
// and one that is known to have more is not taken for a small one.
const (
	fewPages  = 8
	manyPages = 4096
)

// Replan implements store.Housekeeping. A connection plans a statement once, for any
// arguments; while the tables are empty each way to the rows looks as good as any other, and
// one that reads all rows of a project may be chosen. ANALYZE lets all connections plan anew.
// The server's own comes too late for that: a minute and many thousand rows.
func (s *Store) Replan(ctx context.Context) error {
	rows, err := s.pools[0].Query(ctx, `SELECT quote_ident(c.relname) FROM pg_class c
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relpages < $1
			AND pg_relation_size(c.oid) > 2 * 8192 * GREATEST(c.relpages, $2)`, manyPages, fewPages/2)
	if err != nil {
		return fmt.Errorf("looking for tables that have grown: %w", err)
	}
	grown, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("looking for tables that have grown: %w", err)
	}
	if len(grown) == 0 {
		return nil
	}
	if _, err := s.pools[0].Exec(ctx, `ANALYZE (SKIP_LOCKED) `+strings.Join(grown, ", "), pgx.QueryExecModeExec); err != nil {
		return fmt.Errorf("letting statements be planned anew: %w", err)
	}
	return nil
}
