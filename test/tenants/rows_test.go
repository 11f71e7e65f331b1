// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/agentplatform/agentplatform/store"
)

// open opens the store's file beside the store.
func (p *platform) open() *sql.DB {
	p.t.Helper()
	db, err := sql.Open("sqlite", "file:"+p.path+"?_pragma=busy_timeout(10000)")
	require.NoError(p.t, err)
	return db
}

// rows returns all rows of the tenant as text, by table. It first waits for the gateway's asynchronous work after the end of
// runs.
func (t *tenant) rows() map[string][]string {
	t.t.Helper()
	for left := 1; left > 0; {
		var err error
		left, err = t.store.CountStored(t.t.Context(), 1000)
		require.NoError(t.t, err)
		more, err := t.store.RollUp(t.t.Context(), 1000)
		require.NoError(t.t, err)
		indexed, err := t.store.IndexRuns(t.t.Context(), 1000, func(store.Searched) []string { return nil })
		require.NoError(t.t, err)
		left += more + indexed
	}
	db := t.open()
	defer func() { require.NoError(t.t, db.Close()) }()
	out := map[string][]string{}
	// The webhook rejects a stranger's requests and counts the rejections for the tenant.
	tables := query(t, db, `SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c
		WHERE m.type = 'table' AND c.name = 'project_id' AND m.name <> 'rejections'`)
	require.NotEmpty(t.t, tables)
	for _, table := range tables {
		// Controllers rewrite unchanged rows and count the writes.
		columns := query(t, db, `SELECT name FROM pragma_table_info($1) WHERE name NOT IN ('writes', 'updated_at')`, table)
		out[table] = query(t, db, `SELECT `+strings.Join(columns, ", ")+` FROM `+table+` WHERE project_id = $1`, t.project.String())
	}
	return out
}

// query returns rows as lines.
func query(t *tenant, db *sql.DB, text string, args ...any) (out []string) {
	t.t.Helper()
	rows, err := db.QueryContext(t.t.Context(), text, args...)
	require.NoError(t.t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t.t, err)
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		require.NoError(t.t, rows.Scan(into...))
		out = append(out, fmt.Sprint(values...))
	}
	require.NoError(t.t, rows.Err())
	slices.Sort(out)
	return out
}
