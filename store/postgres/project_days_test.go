// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// manyDays creates partitions of a history table for the 400 days before today.
func manyDays(t *testing.T, db *sql.DB, table string) {
	t.Helper()
	for hundred := range 4 { // the lock table of the server has no room for more at once
		_, err := db.ExecContext(t.Context(), `DO $$ DECLARE d bigint; BEGIN
			FOR d IN SELECT now_us() / 86400000000 - `+strconv.Itoa(100*hundred)+` - n FROM generate_series(1, 100) n LOOP
				EXECUTE format('CREATE TABLE `+table+`_%s PARTITION OF `+table+` FOR VALUES FROM (%L) TO (%L)',
					to_char(to_timestamp(d * 86400) AT TIME ZONE 'UTC', 'YYYYMMDD'), id_at(d * 86400000000), id_at((d + 1) * 86400000000));
			END LOOP;
		END $$`)
		require.NoError(t, err)
	}
}

// lockOtherDays locks the partitions of a history table except the partitions of some days ago, until the end
// of the test.
func lockOtherDays(t *testing.T, db *sql.DB, table string, daysAgo ...int) {
	t.Helper()
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tx.Rollback()) })
	var others string
	require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT string_agg(c.relname::text, ', ') FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = $1::text::regclass AND right(c.relname, 8) <> ALL (SELECT to_char(to_timestamp((now_us() / 1000000) - 86400 * ago) AT TIME ZONE 'UTC', 'YYYYMMDD')
			FROM unnest($2::bigint[]) ago)`, table, daysAgo).Scan(&others))
	require.GreaterOrEqual(t, strings.Count(others, ", "), 400-len(daysAgo))
	_, err = tx.ExecContext(t.Context(), `LOCK TABLE `+others)
	require.NoError(t, err)
}

// postStorage posts the stored bytes of a history row, as its insertion does.
func postStorage(t *testing.T, db *sql.DB, project, id uuid.UUID) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at) VALUES ($1, 'storage', $2, 1, now_us())`, project, id)
	require.NoError(t, err)
}

// endedConnectorRun inserts a connector run that was accepted some days ago.
func endedConnectorRun(t *testing.T, db *sql.DB, c *storebench.Scene, daysAgo int, status store.ConnectorRunStatus) (id uuid.UUID) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), `INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type,
			content_type, run_ids, error, started_at, ended_at)
		SELECT $1, stamp(gen_random_uuid(), us, 0), $2, $3, $5, 'webhook', 'text/plain', '{}', '', us, us
		FROM (SELECT now_us() - $4::bigint * 86400000000 AS us) s RETURNING id::text`,
		c.Project, c.Environment, c.Connector, daysAgo, string(status)).Scan(&id))
	postStorage(t, db, c.Project, id)
	_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_rollups (project_id, ended_id, connector_run_ids, posted_at) VALUES ($1, $2, ARRAY[$2::uuid], 0)`, c.Project, id)
	require.NoError(t, err)
	return id
}

// auditEntry records an operation with an outcome, as of some days ago.
func auditEntry(t *testing.T, s *postgres.Store, db *sql.DB, project uuid.UUID, daysAgo int) (id uuid.UUID) {
	t.Helper()
	id, err := s.RecordAudit(t.Context(), store.AuditEntry{
		ProjectID: project, Operation: "createConnector", Actor: store.AuditActor{Kind: store.AuditAPIKey}, Outcome: &store.AuditOutcome{Status: 201},
	})
	require.NoError(t, err)
	was := id
	id = store.Stamp(was, store.TimeOf(was).UnixMicro()-int64(daysAgo)*aDay.Microseconds(), 0)
	for _, statement := range []string{
		`UPDATE audit_log SET id = $3 WHERE project_id = $1 AND id = $2`, `UPDATE audit_outcomes SET id = $3 WHERE project_id = $1 AND id = $2`,
		`UPDATE audit_days SET day = day_of($3) WHERE project_id = $1 AND day = day_of($2)`,
	} {
		_, err := db.ExecContext(t.Context(), statement, project, was, id)
		require.NoError(t, err)
	}
	return id
}

// Lists without a time window, erasures and sweeps lock only partitions of days on which the project
// has history, some of which is not counted yet. All other partitions are locked meanwhile.
func TestLists_LockDaysOfProject(t *testing.T) {
	t.Parallel()
	c, s, db := scene(t)
	ago := []int{3, 200, 399}
	var runs, connectorRuns, audited []uuid.UUID
	tables := []string{"ended_runs", "run_words", "ended_connector_runs", "audit_log", "audit_outcomes"}
	for _, table := range tables {
		manyDays(t, db, table)
	}
	for i, days := range ago {
		if i == 2 {
			_, err := s.CountStored(t.Context(), 10)
			require.NoError(t, err)
		}
		runs = append(runs, endedRun(t, db, c.Project, c.Environment, days, 0, []store.RunStatus{store.RunCompleted, store.RunFailed}[i%2]))
		audited = append(audited, auditEntry(t, s, db, c.Project, days))
		connectorRuns = append(connectorRuns, endedConnectorRun(t, db, c, days, []store.ConnectorRunStatus{store.ConnectorRunCompleted, store.ConnectorRunFailed}[i%2]))
	}
	for _, table := range tables {
		lockOtherDays(t, db, table, ago...)
	}
	for name, do := range map[string]func(t *testing.T){
		"runs":           func(t *testing.T) { listsRuns(t, s, c.Project, runs) },
		"connector runs": func(t *testing.T) { listsConnectorRuns(t, s, c, runs[1], connectorRuns) },
		"replays":        func(t *testing.T) { replays(t, s, c, connectorRuns) },
		"audit entries":  func(t *testing.T) { listsAudit(t, s, c.Project, audited) },
		"rollups":        func(t *testing.T) { require.NoError(t, s.RebuildRollups(t.Context(), func(store.RollupHour) {})) },
		"missing rows":   func(t *testing.T) { consumesMissing(t, s, db, c.Project) },
		"blobs": func(t *testing.T) {
			_, err := s.DropHistory(t.Context(), 500*aDay, 10)
			require.NoError(t, err)
		},
	} {
		t.Run(name, do)
	}
	t.Run("erasures", func(t *testing.T) {
		run := store.Key{ProjectID: c.Project, ID: runs[1]}
		require.NoError(t, s.EraseRun(t.Context(), run))
		_, err := s.Run(t.Context(), run)
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

// listsRuns checks the lists of a project with these runs, newest first.
func listsRuns(t *testing.T, s *postgres.Store, project uuid.UUID, runs []uuid.UUID) {
	match := func(context.Context, store.Searched) bool { return true }
	for name, row := range map[string]struct {
		query store.RunQuery
		want  []uuid.UUID
	}{
		"all":                   {store.RunQuery{ProjectID: project}, runs},
		"of a status":           {store.RunQuery{ProjectID: project, Statuses: []store.RunStatus{store.RunFailed}}, runs[1:2]},
		"of a search":           {store.RunQuery{ProjectID: project, Search: &store.Search{Match: match}}, runs},
		"of a search for words": {store.RunQuery{ProjectID: project, Search: &store.Search{Words: []string{"nothing"}, Match: match}}, nil},
		"of another project":    {store.RunQuery{ProjectID: uuid.New()}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			q := row.query
			q.Limit = 10
			found, _, err := s.ListRuns(t.Context(), q)
			require.NoError(t, err)
			var got []uuid.UUID
			for _, run := range found {
				got = append(got, run.ID)
			}
			require.Equal(t, row.want, got)
		})
	}
}

// listsConnectorRuns checks the lists of a connector with these connector runs, newest first.
func listsConnectorRuns(t *testing.T, s *postgres.Store, c *storebench.Scene, run uuid.UUID, want []uuid.UUID) {
	connector := store.Key{ProjectID: c.Project, ID: c.Connector}
	for name, row := range map[string]struct {
		query store.ConnectorRunQuery
		want  []uuid.UUID
	}{
		"all":                  {store.ConnectorRunQuery{Connector: connector}, want},
		"from an offset":       {store.ConnectorRunQuery{Connector: connector, Offset: 1}, want[1:]},
		"of a connector":       {store.ConnectorRunQuery{Connector: store.Key{ProjectID: c.Project, ID: uuid.New()}}, nil},
		"of an agent run":      {store.ConnectorRunQuery{Connector: connector, Run: run}, nil},
		"of a project of none": {store.ConnectorRunQuery{Connector: store.Key{ProjectID: uuid.New(), ID: c.Connector}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			q := row.query
			q.Limit = 10
			found, _, err := s.ListConnectorRuns(t.Context(), q)
			require.NoError(t, err)
			var got []uuid.UUID
			for _, run := range found {
				got = append(got, run.ID)
			}
			require.Equal(t, row.want, got)
		})
	}
	_, err := s.ConnectorStatistics(t.Context(), store.ConnectorStatisticsQuery{Connector: connector})
	require.NoError(t, err)
}

// listsAudit checks the audit log of a project with these entries, newest first.
func listsAudit(t *testing.T, s *postgres.Store, project uuid.UUID, want []uuid.UUID) {
	for name, row := range map[string]struct {
		query store.AuditQuery
		want  []uuid.UUID
	}{
		"all":                {store.AuditQuery{ProjectID: project, Limit: 10}, want},
		"first page":         {store.AuditQuery{ProjectID: project, Limit: 1}, want[:1]},
		"before an entry":    {store.AuditQuery{ProjectID: project, Limit: 10, Before: &want[0]}, want[1:]},
		"of another project": {store.AuditQuery{ProjectID: uuid.New(), Limit: 10}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := s.ListAudit(t.Context(), row.query)
			require.NoError(t, err)
			var got []uuid.UUID
			for _, entry := range found {
				require.NotNil(t, entry.Outcome)
				got = append(got, entry.ID)
			}
			require.Equal(t, row.want, got)
		})
	}
}

// replays checks the replay of all connector runs, which are given newest first.
func replays(t *testing.T, s *postgres.Store, c *storebench.Scene, runs []uuid.UUID) {
	connector := store.Key{ProjectID: c.Project, ID: c.Connector}
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	filter := store.ReplayFilter{
		Statuses: []store.ConnectorRunStatus{store.ConnectorRunCompleted, store.ConnectorRunFailed}, Since: now.Add(-500 * aDay), Until: now,
	}
	match, err := s.MatchReplay(t.Context(), connector, filter)
	require.NoError(t, err)
	require.Equal(t, store.ReplayMatch{Matched: int64(len(runs))}, match)
	page, err := s.ReplayOriginals(t.Context(), store.Replay{ProjectID: c.Project, ConnectorID: c.Connector, Filter: filter}, 10)
	require.NoError(t, err)
	require.True(t, page.End)
	require.Len(t, page.Originals, len(runs))
	require.Equal(t, runs[len(runs)-1], page.Originals[0].ID, "the oldest first")
}

// consumesMissing checks that consumers of the outbox take rows of missing runs.
func consumesMissing(t *testing.T, s *postgres.Store, db *sql.DB, project uuid.UUID) {
	id, err := uuid.NewV7()
	require.NoError(t, err)
	id = store.Stamp(id, time.Now().Add(-200*aDay).UnixMicro(), 0)
	for _, statement := range []string{
		`INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at) VALUES ($1, 'deliveries', $2, 0, 0)`,
		`INSERT INTO outbox_rollups (project_id, ended_id, run_ids, connector_run_ids, posted_at) VALUES ($1, $2, ARRAY[$2::uuid], ARRAY[$2::uuid], 0)`,
		`INSERT INTO outbox_words (project_id, ended_id, run_ids, posted_at) VALUES ($1, $2, ARRAY[$2::uuid], 0)`,
	} {
		_, err := db.ExecContext(t.Context(), statement, project, id)
		require.NoError(t, err)
	}
	within, cancel := context.WithTimeout(t.Context(), 20*time.Second) // to fail early
	defer cancel()
	for name, consume := range map[string]func(ctx context.Context, limit int) (int, error){
		"deliveries": s.PostDeliveries, "rollups": s.RollUp,
		"words": func(ctx context.Context, limit int) (int, error) {
			return s.IndexRuns(ctx, limit, func(store.Searched) []string { return nil })
		},
	} {
		n, err := consume(within, 10)
		require.NoError(t, err, name)
		require.Positive(t, n, name)
	}
}
