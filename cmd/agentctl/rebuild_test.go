// SPDX-License-Identifier: Apache-2.0

package main

import (
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// Wrong statistics are recounted. The command prints each day, and the audit log has its user.
func TestStoreRebuildRollups_RecountsRuns(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Migrate(t.Context()))
	raw, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, raw.Close()) })
	project, connector := uuid.New(), uuid.New()
	at := time.Now().UTC()
	_, err = raw.ExecContext(t.Context(), `INSERT INTO stored_bytes (project_id, bytes) VALUES ($1, 1)`, project.String())
	require.NoError(t, err)
	_, err = raw.ExecContext(t.Context(), `INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type, run_ids,
		error, started_at, ended_at) VALUES ($1, $2, $1, $3, 'completed', 'webhook', '', '[]', '', 0, 0)`,
		project.String(), store.Stamp(uuid.New(), at.UnixMicro(), 0).String(), connector.String())
	require.NoError(t, err)

	out, _, err := run(t, "store", "rebuild-rollups", "--sqlite", path)
	require.NoError(t, err)
	require.Contains(t, out, "project "+project.String()+": "+at.Format(time.DateOnly))
	require.Contains(t, out, "\n1 runs of agents and connectors were counted\n")
	got, err := db.ConnectorStatistics(t.Context(), store.ConnectorStatisticsQuery{Connector: store.Key{ProjectID: project, ID: connector}})
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Total())
	log, err := db.ListAudit(t.Context(), store.AuditQuery{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, "store rebuild-rollups", log[0].Operation)
	_, _, err = run(t, "store", "rebuild-rollups")
	require.ErrorContains(t, err, "name one store")
}
