// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// The more columns, the fewer rows are equal. In a unique index, no rows are equal.
func TestPlanner_KnowsEachIndex(t *testing.T) {
	t.Parallel()
	s, _ := recorded(t)
	all, err := indexes(t.Context(), s.read)
	require.NoError(t, err)
	require.Greater(t, len(all), 100)
	for _, i := range all {
		var known string
		require.NoError(t, s.read.QueryRowContext(t.Context(), `SELECT stat FROM sqlite_stat1 WHERE tbl = $1 AND idx = $2`, i.table, i.name).Scan(&known), i.name)
		var numbers []int
		for text := range strings.FieldsSeq(known) {
			n, err := strconv.Atoi(text)
			require.NoError(t, err)
			require.Positive(t, n, "%s: %s", i.name, known)
			if len(numbers) > 0 {
				require.LessOrEqual(t, n, numbers[len(numbers)-1], "%s: %s", i.name, known)
			}
			numbers = append(numbers, n)
		}
		require.Len(t, numbers, 1+len(i.columns), i.name)
		if i.unique {
			require.Equal(t, 1, numbers[len(numbers)-1], i.name)
		}
	}
}

func TestPlanner_Statistics(t *testing.T) {
	t.Parallel()
	for want, i := range map[string]index{
		"1000000 50000 1000 1": {table: "ended_connector_runs", columns: []string{"project_id", "connector_id", "id"}},
		"1000000 50000 1":      {table: "ended_runs", columns: []string{"project_id", "id"}, unique: true},
		"1000 50 1 1":          {table: "deliveries", columns: []string{"project_id", "connector_id", "lease_until"}, partial: true},
		"10000 500 10 1":       {table: "links", columns: []string{"project_id", "connector_id", "agent_name"}, unique: true},
	} {
		t.Run(want, func(t *testing.T) {
			require.Equal(t, want, i.equalRows())
		})
	}
}

// Statistics are known at once, also on the writer's connection, which created the schema.
func TestPlanner_KnowsAtOnce(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "store.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.writer.runOperation(t.Context(), func(ctx context.Context, q sqldb.Queryer) error {
		var (
			id, parent, none int
			step             string
		)
		err := q.QueryRowContext(ctx, `EXPLAIN QUERY PLAN SELECT * FROM ended_connector_runs c
			WHERE c.project_id = $1 AND c.connector_id = $2 AND c.id > $3 AND c.id < $4`, 1, 2, 3, 4).Scan(&id, &parent, &none, &step)
		require.Contains(t, step, "ended_connector_runs_connector")
		return err
	}))
}

// A start without changes writes nothing, so it works with a full disk. Changed statistics are
// corrected.
func TestPlanner_StartWritesNothing(t *testing.T) {
	t.Parallel()
	s, _ := recorded(t)
	known := func() map[string]string {
		known, err := statistics(t.Context(), s.read)
		require.NoError(t, err)
		return known
	}
	exec := func(statement string) {
		require.NoError(t, s.writer.runExclusive(t.Context(), func(db *sql.DB) error {
			_, err := db.ExecContext(t.Context(), statement)
			return err
		}))
	}
	before := known()
	require.NotEmpty(t, before)
	exec(`PRAGMA query_only = TRUE`)
	require.NoError(t, s.Migrate(t.Context()))
	exec(`PRAGMA query_only = FALSE`)
	exec(`ANALYZE`)
	require.NotEqual(t, before, known())
	require.NoError(t, s.Migrate(t.Context()))
	require.Equal(t, before, known())
}

// Lists and searches find failed runs of a project or an agent by their index, even if nearly all
// runs have completed.
func TestPlanner_UsesIndexOfFailedRuns(t *testing.T) {
	t.Parallel()
	s, seen := recorded(t)
	scene := storebench.NewScene(t, s, 1)
	for agent, index := range map[string]string{"": "ended_runs_failed (project_id=? AND id>?)", scene.Links[0].AgentName: "ended_runs_agent_failed (project_id=? AND agent_name=? AND id>?)"} {
		t.Run(agent, func(t *testing.T) {
			for _, search := range []*store.Search{nil, {Match: func(context.Context, store.Searched) bool { return true }}} {
				clear(seen.all)
				_, _, err := s.ListRuns(t.Context(), store.RunQuery{ProjectID: scene.Project, AgentName: agent, Statuses: []store.RunStatus{store.RunFailed}, Search: search, Limit: 20})
				require.NoError(t, err)
				statements := slices.DeleteFunc(slices.Collect(maps.Keys(seen.all)), func(statement string) bool { return !strings.Contains(statement, "ended_runs") })
				require.NotEmpty(t, statements)
				for _, statement := range statements {
					require.Contains(t, strings.Join(explain(t, s, statement), "\n"), index, statement)
				}
			}
		})
	}
}
