// SPDX-License-Identifier: Apache-2.0

package sqlite_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
)

// poisoned returns a store that cannot change rows named poison, and its database.
func poisoned(t *testing.T) (store.Store, func(statement string, args ...any)) {
	t.Helper()
	path := sqlitetest.Migrated(t)
	s := openAt(t, path)
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	do := func(statement string, args ...any) {
		_, err := db.ExecContext(t.Context(), statement, args...)
		require.NoError(t, err)
	}
	for _, change := range []string{"UPDATE", "DELETE"} {
		do(`CREATE TRIGGER poison_` + change + ` BEFORE ` + change + ` ON open_runs WHEN OLD.agent_name = 'poison' BEGIN SELECT RAISE(ABORT, 'poison'); END`)
	}
	do(`CREATE TRIGGER poison_key BEFORE DELETE ON idempotency_keys WHEN OLD.key = 'poison' BEGIN SELECT RAISE(ABORT, 'poison'); END`)
	return s, do
}

// insertRun inserts an open run of an agent in a project. status, lease_until and wake_at follow.
const insertRun = `INSERT INTO open_runs (project_id, id, environment_id, agent_name, input_id, status, class, fresh, deployment_id, attempt, lease_until, wake_at, queued_at)
	VALUES ($1, $2, $3, $4, $2, $5, 1, FALSE, $3, 1, $6, $7, 1)`

// idAtTime returns an ID of a time.
func idAtTime(at time.Time) string { return store.Stamp(uuid.New(), at.UnixMicro(), 0).String() }

// A claim that cannot be ended does not affect other claims, suspended runs that timed out, or runs
// of deleted environments.
func TestSweepLeases_IsolatesFailingRows(t *testing.T) {
	t.Parallel()
	s, do := poisoned(t)
	for _, run := range []struct {
		agent, status string
		lease, wake   any
	}{{"poison", "running", 1, nil}, {"lost", "running", 2, nil}, {"late", "awaiting_approval", nil, 1}, {"gone", "queued", nil, nil}} {
		do(insertRun, uuid.NewString(), idAtTime(time.Now()), uuid.NewString(), run.agent, run.status, run.lease, run.wake)
	}
	do(insertRun, "ffffffff-0000-4000-8000-000000000000", idAtTime(time.Now()), uuid.NewString(), "gone", "queued", nil, nil)
	do(insertRun, "00000000-0000-4000-8000-000000000000", idAtTime(time.Now()), uuid.NewString(), "poison", "queued", nil, nil)
	swept, err := s.SweepLeases(t.Context(), 10)
	require.ErrorContains(t, err, "poison")
	require.Equal(t, store.Swept{GivenBack: 1, Resumed: 1, Cancelled: 4}, swept, "requeued runs are from deleted environments")
}

// A failing row affects neither rows of other kinds nor rows of other projects.
func TestExpireRuns_IsolatesFailingRows(t *testing.T) {
	t.Parallel()
	s, do := poisoned(t)
	do(`INSERT INTO idempotency_keys (project_id, connector_id, key, connector_run_id, run_ids, expires_at) VALUES ($1, $1, 'poison', $1, '[]', 1)`, uuid.NewString())
	do(`INSERT INTO runners (project_id, environment_id, id, seen_at, places, digests) VALUES ($1, $1, 'r', 1, 1, '[]')`, uuid.NewString())
	n, err := s.SweepExpired(t.Context(), 10)
	require.ErrorContains(t, err, "poison")
	require.Equal(t, 1, n)

	old := time.Now().Add(-2 * store.MaxOpen)
	for project, agent := range map[string]string{"00000000-0000-4000-8000-000000000000": "poison", "ffffffff-0000-4000-8000-000000000000": "old"} {
		do(insertRun, project, idAtTime(old), uuid.NewString(), agent, "queued", nil, nil)
	}
	n, err = s.ExpireRuns(t.Context(), store.MaxOpen, 10)
	require.ErrorContains(t, err, "poison")
	require.Equal(t, 1, n)
}
