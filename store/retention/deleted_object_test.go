// SPDX-License-Identifier: Apache-2.0

package retention_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store/retention"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Each table with rows of projects is emptied, delays the deletion of a project, or is history and deleted by days. The
// projection deletes the projects themselves, and dropBlobsOf the blobs.
func TestDeletedProject_LeavesNoRows(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+sqlitetest.Migrated(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	tables, err := sqldb.Collect(t.Context(), db, func(row sqldb.Scanner) (name string, err error) {
		err = row.Scan(&name)
		return name, err
	}, `SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c ON c.name = 'project_id' WHERE m.type = 'table' ORDER BY m.name`)
	require.NoError(t, err)
	require.Greater(t, len(tables), 30, "tables were found")
	emptied := strings.Join(retention.ProjectStatements(), "\n")
	for _, table := range tables {
		if _, history := sqldb.HistoryTables[table]; history || slices.Contains([]string{"projects", "blobs", "blob_chunks"}, table) {
			continue
		}
		if !strings.Contains(retention.PickDeparted, "NOT EXISTS (SELECT 1 FROM "+table+" ") {
			require.Contains(t, emptied, "DELETE FROM "+table+" WHERE project_id = $1 AND ", "projectTables lacks %s", table)
		}
	}
}
