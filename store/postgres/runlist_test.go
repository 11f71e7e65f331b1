// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// endedRun inserts a run that was queued some days and seconds ago.
func endedRun(t *testing.T, db *sql.DB, project, environment uuid.UUID, daysAgo, seconds int, status store.RunStatus) (id uuid.UUID) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), `INSERT INTO ended_runs (project_id, id, environment_id, agent_name, input_id, status,
			deployment_id, token, attempt, runner_id, error_code, error, output, input_tokens, output_tokens, thinking_tokens, cached_input_tokens,
			total_tokens, queued_at, ended_at)
		SELECT $1, id, $2, 'hello', id, $5, NULL, 1, 1, 'r', '', '', 'done', 1, 1, 1, 1, 1, us, us
		FROM (SELECT us, stamp(gen_random_uuid(), us, 0) AS id FROM (SELECT now_us() - $3::bigint * 86400000000 - $4::bigint * 1000000 AS us) c) s RETURNING id::text`,
		project, environment, daysAgo, seconds, string(status)).Scan(&id))
	postStorage(t, db, project, id)
	return id
}

// A list without a time window locks the partitions of the days that it reads, and its pages reach
// all days.
func TestListRuns_LocksPartitionsOfItsDays(t *testing.T) {
	t.Parallel()
	c, s, db := scene(t)
	manyDays(t, db, "ended_runs")
	var all, failed []uuid.UUID
	// A list finds runs by the millisecond, so two runs of a day are seconds apart.
	for _, ago := range []int{0, 1, 5, 13, 14, 15, 16, 100, 142, 143, 144, 145, 300, 400} {
		all = append(all, endedRun(t, db, c.Project, c.Environment, ago, 1, store.RunCompleted))
		if ago%5 == 0 {
			failed = append(failed, endedRun(t, db, c.Project, c.Environment, ago, 0, store.RunFailed))
			all = append(all, failed[len(failed)-1])
		}
	}
	_, err := s.CountStored(t.Context(), 7) // the days of the others are not counted yet
	require.NoError(t, err)
	newestFirst := func(a, b uuid.UUID) int { return -slices.Compare(a[:], b[:]) }
	slices.SortFunc(all, newestFirst)
	search := &store.Search{Match: func(context.Context, store.Searched) bool { return true }}
	for name, row := range map[string]struct {
		query store.RunQuery
		want  []uuid.UUID
	}{
		"all":          {store.RunQuery{}, all},
		"of a status":  {store.RunQuery{Statuses: []store.RunStatus{store.RunFailed}}, failed},
		"of a search":  {store.RunQuery{Search: search}, all},
		"in a window":  {store.RunQuery{Since: store.TimeOf(all[len(all)-4]), Until: store.TimeOf(all[1])}, all[2 : len(all)-3]},
		"of an agent":  {store.RunQuery{AgentName: "hello", EnvironmentIDs: []uuid.UUID{c.Environment}}, all},
		"of no agent":  {store.RunQuery{AgentName: "nobody"}, nil},
		"found seldom": {store.RunQuery{Statuses: []store.RunStatus{store.RunFailed}, AgentName: "hello", Search: search}, failed},
	} {
		t.Run(name, func(t *testing.T) {
			q := row.query
			q.ProjectID = c.Project
			for _, limit := range []int{1, 3, 100} {
				var got []uuid.UUID
				q.Limit, q.Before = limit, nil
				for more := true; more; more = q.Before != nil {
					runs, next, err := s.ListRuns(t.Context(), q)
					require.NoError(t, err)
					for _, run := range runs {
						got = append(got, run.ID)
					}
					q.Before = next
				}
				require.Equal(t, row.want, got, "in pages of %d", limit)
			}
		})
	}
	for name, q := range map[string]store.RunQuery{
		"all": {}, "of a status": {Statuses: []store.RunStatus{store.RunFailed}}, "of a search": {Search: search},
	} {
		t.Run("locks of a first page: "+name, func(t *testing.T) {
			q.ProjectID, q.Limit = c.Project, 1
			locked := partitionsLocked(t, s, db, all[0], q)
			require.Positive(t, locked)
			require.LessOrEqual(t, locked, 16)
		})
	}
}

// partitionsLocked returns how many partitions of ended runs a list locks, up to that of the newest
// run. A statement locks partitions in order.
func partitionsLocked(t *testing.T, s *postgres.Store, db *sql.DB, newest uuid.UUID, q store.RunQuery) (locked int) {
	t.Helper()
	last, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = last.ExecContext(t.Context(), `LOCK TABLE ended_runs_`+store.TimeOf(newest).UTC().Format("20060102"))
	require.NoError(t, err)
	listed := make(chan error, 1)
	go func() {
		_, _, err := s.ListRuns(t.Context(), q)
		listed <- err
	}()
	awaitBlocked(t.Context(), t, db)
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(DISTINCT c.oid) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
		WHERE c.relkind = 'r' AND c.relname ~ '^ended_runs_[0-9]{8}$'
			AND l.pid IN (SELECT pid FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0)`).
		Scan(&locked))
	require.NoError(t, last.Rollback())
	require.NoError(t, <-listed)
	return locked
}

// A backlog does not slow the list of a deployment: its runs have not started, so they are no candidates.
func TestListRuns_SkipsBacklogOfDeploymentList(t *testing.T) {
	t.Parallel()
	counted := &statements{}
	dsn := migrated(t)
	s, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn}.Tuned(func(config *pgx.ConnConfig) { config.Tracer = counted }))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	db := openDB(t, dsn)
	c := storebench.NewScene(t, s, 2)
	ended := endedRun(t, db, c.Project, c.Environment, 0, 1, store.RunCompleted)
	_, err = db.ExecContext(t.Context(), `UPDATE ended_runs SET deployment_id = $1`, c.Deployment)
	require.NoError(t, err)
	list := func() int64 {
		before := counted.Load()
		runs, _, err := s.ListRuns(t.Context(), store.RunQuery{ProjectID: c.Project, DeploymentID: c.Deployment, Limit: 1})
		require.NoError(t, err)
		require.Len(t, runs, 1)
		require.Equal(t, ended, runs[0].ID)
		return counted.Load() - before
	}
	list() // it opens a connection
	alone := list()
	for range 10 {
		_, err := s.Accept(t.Context(), []store.Event{c.Event(t)})
		require.NoError(t, err)
	}
	require.Equal(t, alone, list())
}
