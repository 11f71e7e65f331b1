// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// scene returns a store with a live deployment, and its database.
func scene(t *testing.T) (*storebench.Scene, *postgres.Store, *sql.DB) {
	t.Helper()
	dsn := migrated(t)
	s := openAt(t, dsn)
	db := openDB(t, dsn)
	return storebench.NewScene(t, s, 2), s, db
}

// Events without a partition are not rejected as invalid. The caller retries them.
func TestAccept_ReturnsErrorForMissingPartition(t *testing.T) {
	t.Parallel()
	c, s, db := scene(t)
	for _, ahead := range []string{"0 days", "1 day"} { // midnight may pass meanwhile
		var day string
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT to_char(now() AT TIME ZONE 'UTC' + $1::interval, 'YYYYMMDD')`, ahead).Scan(&day))
		_, err := db.ExecContext(t.Context(), `DROP TABLE inputs_`+day)
		require.NoError(t, err)
	}
	events := []store.Event{c.Event(t), c.Event(t)}
	admissions, err := s.Accept(t.Context(), events)
	require.Error(t, err, "the store is at fault")
	for _, a := range admissions {
		require.ErrorIs(t, err, errors.Unwrap(a.Err), "each event has the error of the call")
	}
	_, err = s.EnsurePartitions(t.Context(), 1)
	require.NoError(t, err)
	admissions, err = s.Accept(t.Context(), events)
	require.NoError(t, err)
	for _, a := range admissions {
		require.NoError(t, a.Err)
		require.Equal(t, store.Accepted, a.Verdict)
	}
}

// awaitBlocked returns once a statement of another connection waits for a lock.
func awaitBlocked(ctx context.Context, t *testing.T, db *sql.DB) {
	t.Helper()
	for waiting := 0; waiting == 0; {
		require.NoError(t, db.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
	}
}

// One of the last two runs is ending and waits while the other one ends and commits. Whichever row
// it waits for, the last commit closes the connector run, once.
func TestComplete_LastTwoRunsInEitherOrder(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{
		"waiting for its run":           `SELECT 1 FROM open_runs WHERE project_id = $1 AND id = $2 FOR UPDATE`,
		"waiting for its connector run": `SELECT 1 FROM open_connector_runs WHERE project_id = $1 AND run_ids @> ARRAY[$2::uuid] FOR UPDATE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, s, db := scene(t)
			admissions, err := s.Accept(t.Context(), []store.Event{c.Event(t)})
			require.NoError(t, err)
			claimed, err := s.Claim(t.Context(), store.Claim{
				Environment: store.Key{ProjectID: c.Project, ID: c.Environment}, RunnerID: "r", Slots: 2, Limit: 2, Lease: store.LeaseDuration,
			})
			require.NoError(t, err)
			require.Len(t, claimed.Runs, 2)
			complete := func(run store.Claimed, status store.RunStatus) error {
				answers, err := s.Complete(t.Context(), []store.Completion{{Lease: store.Lease{Run: run.Run.Key(), Token: run.Token}, Status: status}})
				return errors.Join(append(slices.Clone(answers), err)...)
			}
			held, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = held.ExecContext(t.Context(), first, c.Project.String(), claimed.Runs[0].Run.ID.String())
			require.NoError(t, err)
			early, late := make(chan error, 1), make(chan error, 1)
			go func() { early <- complete(claimed.Runs[0], store.RunFailed) }()
			awaitBlocked(t.Context(), t, db)
			go func() { late <- complete(claimed.Runs[1], store.RunCompleted) }()
			if name == "waiting for its run" {
				require.NoError(t, <-late, "it commits while the other waits")
			}
			require.NoError(t, held.Commit())
			require.NoError(t, <-early)
			if name != "waiting for its run" {
				require.NoError(t, <-late)
			}
			outcome, err := s.Outcome(t.Context(), store.Key{ProjectID: c.Project, ID: admissions[0].ConnectorRunID})
			require.NoError(t, err)
			require.Equal(t, store.ConnectorRunFailed, outcome.Status)
			require.Len(t, outcome.Runs, 2)
			for table, rows := range map[string]int{"open_connector_runs": 0, "ended_connector_runs": 1, "open_runs": 0, "ended_runs": 2} {
				t.Run(table, func(t *testing.T) {
					var n int
					require.NoError(t, db.QueryRowContext(t.Context(), fmt.Sprintf(`SELECT count(*) FROM %s`, table)).Scan(&n))
					require.Equal(t, rows, n)
				})
			}
		})
	}
}

// The connector run that started a run, and the run's deliveries, are found by index among any
// number of connector runs and open deliveries, for lists and for erasing.
func TestListConnectorRuns_FindsRunByIndex(t *testing.T) {
	t.Parallel()
	dsn, c, _ := stored(t, size{ended: 5000, queued: 5000}, "of the store")
	var seen plans
	s, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn}.Tuned(seen.recordPlans("force_generic_plan")))
	require.NoError(t, err)
	admissions, err := s.Accept(t.Context(), []store.Event{c.Event(t)})
	require.NoError(t, err)
	seen.forgetPlans()
	runs, total, err := s.ListConnectorRuns(t.Context(), store.ConnectorRunQuery{
		Connector: store.Key{ProjectID: c.Project, ID: c.Connector}, Run: admissions[0].RunIDs[0], Limit: 10,
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, total)
	require.Equal(t, admissions[0].ConnectorRunID, runs[0].ID)
	require.Positive(t, seen.blocks())
	require.Less(t, seen.blocks(), int64(50))

	ended, _, err := s.ListRuns(t.Context(), store.RunQuery{ProjectID: c.Project, Statuses: []store.RunStatus{store.RunCompleted}, Limit: 1})
	require.NoError(t, err)
	seen.forgetPlans()
	require.NoError(t, s.EraseRun(t.Context(), ended[0].Key()))
	require.Positive(t, seen.blocks())
	require.Less(t, seen.blocks(), int64(200), "only its own rows are read")
	require.NoError(t, s.Close())
	require.NoError(t, seen.err)
}
