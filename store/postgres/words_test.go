// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/searchindex"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// A search for two words that half of all runs have each, but no run has both, does not read the
// entries of these runs, whatever the planner expects.
func TestSearch_DisjointWordsReadLittle(t *testing.T) {
	t.Parallel()
	const rows = 10_000 // at least a thousand pages
	dsn := migrated(t)
	scene := storebench.NewScene(t, openAt(t, dsn), 2)
	db := openDB(t, dsn)
	now, err := scene.Store.Now(t.Context())
	require.NoError(t, err)
	today := now.UTC().Truncate(24 * time.Hour).UnixMicro()
	apple, pear := searchindex.WordTerm(scene.Project, "apple"), searchindex.WordTerm(scene.Project, "pear")
	_, err = db.ExecContext(t.Context(), `INSERT INTO run_words (project_id, run_id, terms)
		SELECT $1, stamp(md5('run' || n)::uuid, $2::bigint, n), ARRAY[CASE WHEN n % 2 = 0 THEN $3::bigint ELSE $4::bigint END] || (SELECT array_agg(g) FROM generate_series(1, 100) g) FROM generate_series(1, $5::int) n`,
		scene.Project, today, int64(apple), int64(pear), rows)
	require.NoError(t, err)
	for _, statement := range []string{`SELECT gin_clean_pending_list(c.oid) FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'gin' AND c.relkind = 'i'`, `ANALYZE`} {
		var seen plans
		s, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn}.Tuned(seen.recordPlans("force_custom_plan")))
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
		for _, words := range [][]string{{"apple", "pear"}, {"apple", "plum"}} {
			runs, next, err := s.ListRuns(t.Context(), store.RunQuery{ProjectID: scene.Project, Limit: 10, Search: &store.Search{
				Words: words, Match: func(context.Context, store.Searched) bool { return true },
			}})
			require.NoError(t, err)
			require.Empty(t, runs)
			require.Nil(t, next)
		}
		require.NoError(t, s.Close())
		require.NoError(t, seen.err)
		require.Less(t, seen.blocks(), int64(300), statement)

	}
}

// The newest runs with a common word are found by reading few entries, not all of them.
func TestSearch_CommonWordReadsLittle(t *testing.T) {
	t.Parallel()
	const rows = 20_000 // at least two thousand pages
	dsn := migrated(t)
	scene := storebench.NewScene(t, openAt(t, dsn), 2)
	db := openDB(t, dsn)
	now, err := scene.Store.Now(t.Context())
	require.NoError(t, err)
	today := now.UTC().Truncate(24 * time.Hour).UnixMicro()
	insert(t, db, *scene, scene.Project.String(), today, endedRows[2:3], rows, 0)
	postStorage(t, db, scene.Project, store.Stamp(uuid.UUID{}, today, 0))
	_, err = db.ExecContext(t.Context(), `INSERT INTO run_words (project_id, run_id, terms)
		SELECT project_id, id, ARRAY[$1::bigint] || (SELECT array_agg(g) FROM generate_series(1, 100) g) FROM ended_runs ORDER BY id`, int64(searchindex.WordTerm(scene.Project, "order")))
	require.NoError(t, err)
	for _, statement := range []string{`SELECT gin_clean_pending_list(c.oid) FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'gin' AND c.relkind = 'i'`, `ANALYZE`} {
		_, err = db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
		var seen plans
		s, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn}.Tuned(seen.recordPlans("force_custom_plan")))
		require.NoError(t, err)
		runs, next, err := s.ListRuns(t.Context(), store.RunQuery{ProjectID: scene.Project, Limit: 50, Search: &store.Search{
			Words: []string{"order"}, Match: func(context.Context, store.Searched) bool { return true },
		}})
		require.NoError(t, err)
		require.Len(t, runs, 50)
		require.NotNil(t, next)
		require.NoError(t, s.Close())
		require.NoError(t, seen.err)
		read := int64(0)
		for _, p := range seen.all {
			if strings.Contains(p.Statement, "run_words") {
				read += p.Plan.blocks()
			}
		}
		require.Less(t, read, int64(1000), statement)
	}
}

// A search reads many small runs at a time, and as many large ones as fit into a MiB.
func TestSearch_LimitsReadSize(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	scene := storebench.NewScene(t, openAt(t, dsn), 2)
	db := openDB(t, dsn)
	now, err := scene.Store.Now(t.Context())
	require.NoError(t, err)
	today := now.UTC().Truncate(24 * time.Hour).UnixMicro()
	insert(t, db, *scene, scene.Project.String(), today, endedRows[:3], 40, 0)
	postStorage(t, db, scene.Project, store.Stamp(uuid.UUID{}, today, 0))
	for _, c := range []struct{ output, input, reads int }{{1, 1, 1}, {32 << 10, 1, 2}, {1, 32 << 10, 2}, {32 << 10, 32 << 10, 3}, {64 << 10, 64 << 10, 5}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			for statement, size := range map[string]int{`UPDATE ended_runs SET output = repeat('x', $1)`: c.output, `UPDATE inputs SET data = repeat('x', $1)::bytea`: c.input} {
				_, err := db.ExecContext(t.Context(), statement, size)
				require.NoError(t, err)
			}
			var seen plans
			s, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn}.Tuned(seen.recordPlans("force_custom_plan")))
			require.NoError(t, err)
			runs, _, err := s.ListRuns(t.Context(), store.RunQuery{ProjectID: scene.Project, Limit: 100, Search: &store.Search{
				Match: func(context.Context, store.Searched) bool { return true },
			}})
			require.NoError(t, err)
			require.Len(t, runs, 40)
			require.NoError(t, s.Close())
			reads := 0
			for _, p := range seen.all {
				if strings.Contains(p.Statement, "SELECT h.* FROM ended_runs") {
					reads++
				}
			}
			require.Equal(t, c.reads, reads, "%+v", c)
		})
	}
}

// A statement of a search ends with the time of the search, and lists are read meanwhile. A search
// that used its time itself is too broad. The others have waited for it.
func TestSearch_StatementTimesOut(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	scene := storebench.NewScene(t, openAt(t, dsn), 2)
	db := openDB(t, dsn)
	s, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, Connections: postgres.MinConnections})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), `LOCK TABLE outbox_words`) // so that it takes as long as this lock is held
	require.NoError(t, err)
	const searches = 4
	ends := make(chan error, searches)
	begun := time.Now()
	for range searches {
		go func() {
			_, _, err := s.ListRuns(t.Context(), store.RunQuery{ProjectID: scene.Project, Limit: 10, Search: &store.Search{
				Words: []string{"apple"}, Match: func(context.Context, store.Searched) bool { return true },
				Left: func() time.Duration { return 8*time.Second - time.Since(begun) },
			}})
			ends <- err
		}()
	}
	for range 20 {
		_, _, err = s.ListRuns(t.Context(), store.RunQuery{ProjectID: scene.Project, EnvironmentIDs: []uuid.UUID{scene.Environment}, Limit: 10})
		require.NoError(t, err)
	}
	require.Less(t, len(ends), searches, "lists do not wait for searches")
	broad := 0
	for range searches {
		err := <-ends
		if errors.Is(err, store.ErrSearchTooBroad) {
			broad++
			continue
		}
		require.ErrorIs(t, err, store.ErrSearchBusy)
	}
	require.Equal(t, 1, broad, "it ended while the lock was held")
}
