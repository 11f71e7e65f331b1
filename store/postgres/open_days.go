// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// openTables are the tables of open runs, connector runs and deliveries. Each of their rows ends in
// the partitions of the day of its ID.
var openTables = []string{"open_runs", "open_connector_runs", "deliveries"}

// openDaysStatement selects the days before $1 on which open rows of a table were accepted. It
// walks the primary key from one day of a project to the next, so it reads as many rows as it finds
// days, and one more per project.
func openDaysStatement(table string) string {
	return fmt.Sprintf(`WITH RECURSIVE w (project_id, id) AS (
			(SELECT r.project_id, r.id FROM %[1]s r ORDER BY r.project_id, r.id LIMIT 1)
			UNION ALL
			SELECT n.project_id, n.id FROM w CROSS JOIN LATERAL (SELECT r.project_id, r.id FROM %[1]s r
				WHERE (r.project_id, r.id) >= (w.project_id, CASE WHEN w.id < id_at($1 * 86400000000)
					THEN id_at((day_of(w.id) + 1) * 86400000000) ELSE 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid END)
				ORDER BY r.project_id, r.id LIMIT 1) n
		)
		SELECT DISTINCT day_of(w.id) FROM w WHERE w.id < id_at($1 * 86400000000)`, table)
}

// openDays returns the days before one with open rows, in days since 1970.
func (s *Store) openDays(ctx context.Context, before int64) (days []int64, err error) {
	before = min(before, math.MaxInt64/(24*time.Hour.Microseconds()))
	for _, table := range openTables {
		rows, err := s.pools[0].Query(ctx, openDaysStatement(table), before)
		if err != nil {
			return nil, fmt.Errorf("listing the days of %s: %w", table, err)
		}
		some, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, fmt.Errorf("listing the days of %s: %w", table, err)
		}
		days = append(days, some...)
	}
	slices.Sort(days)
	return slices.Compact(days), nil
}
