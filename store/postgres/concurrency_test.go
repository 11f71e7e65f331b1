// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// A run that ends waits for the acceptance of another run with its key, and then sees that run.
func TestComplete_HandsKeyToRunBeingAccepted(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	s := openAt(t, dsn)
	db := openDB(t, dsn)
	scene := storebench.NewScene(t, s, 1)
	e := scene.Event(t)
	e.Runs[0].Concurrency.Text = "k"
	_, err := s.Accept(t.Context(), []store.Event{e})
	require.NoError(t, err)
	claim := func() []store.Claimed {
		result, err := s.Claim(t.Context(), store.Claim{
			Environment: store.Key{ProjectID: scene.Project, ID: scene.Environment}, RunnerID: "r", Slots: 5, Limit: 5, Lease: time.Hour,
		})
		require.NoError(t, err)
		return result.Runs
	}
	held := claim()
	require.Len(t, held, 1)

	next := uuid.Must(uuid.NewV7())
	accepting, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	for _, statement := range []string{
		`UPDATE concurrency_slots SET run_id = run_id WHERE project_id = $1 AND run_id = $2 AND run_id <> $3`,
		`INSERT INTO open_runs (project_id, id, environment_id, agent_name, input_id, status, class, queued_at, concurrency_key, blocked)
			SELECT project_id, $3, environment_id, agent_name, input_id, 'queued', class, queued_at, concurrency_key, TRUE
			FROM open_runs WHERE project_id = $1 AND id = $2`,
	} {
		_, err := accepting.ExecContext(t.Context(), statement, scene.Project, held[0].Run.ID, next)
		require.NoError(t, err)
	}
	ended := make(chan error, 1)
	go func() {
		answers, err := s.Complete(t.Context(), []store.Completion{{
			Lease: store.Lease{Run: held[0].Run.Key(), Token: held[0].Token}, Status: store.RunCompleted,
		}})
		if err == nil {
			err = answers[0]
		}
		ended <- err
	}()
	for waits := 0; waits == 0; {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits))
	}
	var open int
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM open_runs WHERE project_id = $1 AND id = $2`,
		scene.Project, held[0].Run.ID).Scan(&open))
	require.Equal(t, 1, open, "the end and the handover commit together")
	require.NoError(t, accepting.Commit())
	require.NoError(t, <-ended)
	after := claim()
	require.Len(t, after, 1)
	require.Equal(t, next, after[0].Run.ID)
}
