// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store/sqldb"
)

// historyDaysStatement selects the days of a project ($1), newest first: the counted days, the days
// of rows that CountStored has not counted, and the days of open runs. A row moves from one to the
// other in one transaction, so one statement misses no day.
var historyDaysStatement = `WITH RECURSIVE ` +
	walkDays("uncounted", "outbox", "ended_id", ` AND r.consumer = 'storage'`) + `, ` +
	walkDays("open", "open_runs", "id", ``) + `
	SELECT s.day FROM stored_days s WHERE s.project_id = $1
	UNION SELECT day_of(id) FROM uncounted UNION SELECT day_of(id) FROM open ORDER BY 1 DESC`

// auditDaysStatement selects the days of the audit log of a project ($1), newest first.
const auditDaysStatement = `SELECT day FROM audit_days WHERE project_id = $1 ORDER BY day DESC`

// walkDays returns a query that selects the first ID of each day of a project ($1) in a table. It
// walks an index of the IDs, so it reads as many rows as it finds days, and one more.
func walkDays(name, table, column, narrow string) string {
	first := `SELECT r.` + column + ` AS id FROM ` + table + ` r WHERE r.project_id = $1` + narrow
	order := ` ORDER BY r.` + column + ` LIMIT 1`
	return name + ` (id) AS ((` + first + order + `)
		UNION ALL
		SELECT n.id FROM ` + name + ` w CROSS JOIN LATERAL (` + first + `
			AND r.` + column + ` >= id_at((day_of(w.id) + 1) * 86400000000)` + order + `) n)`
}

// ProjectDays implements sqldb.Engine.
func (e engine) ProjectDays(ctx context.Context, q sqldb.Queryer, table string, project uuid.UUID) (days []int64, parted bool, err error) {
	statement := historyDaysStatement
	if table == "audit_log" {
		statement = auditDaysStatement
	}
	rows, err := q.QueryContext(ctx, statement, project)
	if err != nil {
		return nil, true, fmt.Errorf("listing days: %w", err)
	}
	defer func() { _ = rows.Close() }() // Err returns its error
	for rows.Next() {
		var day int64
		if err := rows.Scan(&day); err != nil {
			return nil, true, fmt.Errorf("listing days: %w", err)
		}
		days = append(days, day)
	}
	return days, true, rows.Err()
}
