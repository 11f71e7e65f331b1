// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"strings"

	"github.com/agentplatform/agentplatform/store/sqldb"
)

// SQLite plans with the statistics in sqlite_stat1: the number of rows, and how many of them are
// equal in the first columns of an index. Without statistics, all columns look equally selective,
// and rows of a connector are searched among all rows of a project in a time range. The platform
// does not write the statistics of the actual database, but statistics of a large one. So plans are
// the same everywhere, the tests see them, and nothing has to be counted.

// rowsOf is the number of rows of tables; fewRows for all others.
var rowsOf = func() map[string]int {
	rows := map[string]int{
		"deliveries": 100_000, "open_runs": 100_000, "open_connector_runs": 100_000, "run_rollups": 100_000, "usage_rollups": 100_000, "connector_rollups": 100_000,
	}
	for table := range sqldb.HistoryTables {
		rows[table] = 1_000_000
	}
	return rows
}()

const (
	fewRows = 10_000
	// partOf is the number of rows of a table per row of a partial index.
	partOf = 100
)

// valuesOf is the number of values of a column among rows that are equal in the previous columns.
// All other columns are unique: IDs, times, names and numbers.
var valuesOf = map[string]int{
	"project_id": 20, "environment_id": 4, "connector_id": 50, "agent_name": 50, "deployment_id": 50, "variant_of": 2,
	"class": 3, "fresh": 2, "status": 4, "trigger_type": 4, "kind": 4, "grain": 3, "consumer": 4, "mark": 3, "is_default": 2,
	"test_name": 2, "currency": 30, "ring": 2, "failures": 20, "begins_at": 1000, "day": 30,
}

// index is an index of the schema.
type index struct {
	name, table     string
	unique, partial bool
	columns         []string
}

// equalRows returns its statistics in sqlite_stat1: the number of rows, and the number of equal rows in
// its first column, its first two, and so on.
func (i index) equalRows() string {
	rows, ok := rowsOf[i.table]
	if !ok {
		rows = fewRows
	}
	if i.partial {
		rows /= partOf
	}
	numbers := []string{fmt.Sprint(rows)}
	for n, column := range i.columns {
		values, ok := valuesOf[column]
		if !ok || i.unique && n == len(i.columns)-1 {
			values = rows
		}
		rows = max(rows/max(values, 1), 1)
		numbers = append(numbers, fmt.Sprint(rows))
	}
	return strings.Join(numbers, " ")
}

// setStatistics writes the statistics of each index if they differ, because a start must not depend
// on free disk space. The first ANALYZE, of a table with one row, creates sqlite_stat1. The last
// one counts nothing, and makes the connection read the statistics again.
func setStatistics(ctx context.Context, db *sql.DB) error {
	all, err := indexes(ctx, db)
	if err != nil {
		return fmt.Errorf("reading the indexes: %w", err)
	}
	known, err := statistics(ctx, db)
	if err != nil {
		return fmt.Errorf("reading statistics: %w", err)
	}
	wanted := map[string]string{}
	for _, i := range all {
		wanted[i.name] = i.equalRows()
	}
	if maps.Equal(known, wanted) {
		return nil
	}
	if _, err := db.ExecContext(ctx, `ANALYZE schema_compat`); err != nil {
		return fmt.Errorf("analyzing: %w", err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	if _, err := tx.ExecContext(ctx, `DELETE FROM sqlite_stat1`); err != nil {
		return fmt.Errorf("deleting statistics: %w", err)
	}
	for _, i := range all {
		if _, err := tx.ExecContext(ctx, `INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES ($1, $2, $3)`, i.table, i.name, wanted[i.name]); err != nil {
			return fmt.Errorf("writing statistics of %s: %w", i.name, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("writing statistics: %w", err)
	}
	_, err = db.ExecContext(ctx, `ANALYZE sqlite_schema`)
	return err
}

// statistics returns the current statistics by index name; none for a new database.
func statistics(ctx context.Context, db *sql.DB) (map[string]string, error) {
	var some bool
	if err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat1')`).Scan(&some); err != nil || !some {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, `SELECT COALESCE(idx, tbl), stat FROM sqlite_stat1`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err returns its error
	known := map[string]string{}
	for rows.Next() {
		var name, stat string
		if err := rows.Scan(&name, &stat); err != nil {
			return nil, err
		}
		known[name] = stat
	}
	return known, rows.Err()
}

// indexes returns the indexes of the platform's tables.
func indexes(ctx context.Context, db *sql.DB) ([]index, error) {
	rows, err := db.QueryContext(ctx, `SELECT i.name, s.name, i."unique", i.partial, COALESCE(c.name, '')
		FROM sqlite_schema s, pragma_index_list(s.name) i, pragma_index_info(i.name) c
		WHERE s.type = 'table' AND s.name NOT LIKE 'sqlite_%' AND s.name NOT LIKE 'run_terms%' ORDER BY i.name, c.seqno`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err returns its error
	var all []index
	for rows.Next() {
		var (
			i      index
			column string
		)
		if err := rows.Scan(&i.name, &i.table, &i.unique, &i.partial, &column); err != nil {
			return nil, err
		}
		if len(all) == 0 || all[len(all)-1].name != i.name {
			all = append(all, i)
		}
		last := &all[len(all)-1]
		last.columns = append(last.columns, column)
	}
	return all, rows.Err()
}
