// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"database/sql"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// While another transaction locks the pool or the queued run of one environment, claims of others
// continue, although they share transactions.
func TestClaim_IgnoresLocksOfOtherEnvironments(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"pool": `SELECT 1 FROM pools WHERE project_id = $1 FOR UPDATE`,
		"run":  `SELECT 1 FROM open_runs WHERE project_id = $1 FOR UPDATE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locked, s, db := scene(t)
			free := storebench.NewScene(t, s, 1)
			claim := func(ctx context.Context, of *storebench.Scene) ([]store.Claimed, error) {
				result, err := s.Claim(ctx, store.Claim{
					Environment: store.Key{ProjectID: of.Project, ID: of.Environment}, RunnerID: uuid.NewString(), Slots: 10, Limit: 1, Lease: time.Hour,
				})
				return result.Runs, err
			}
			for _, of := range []*storebench.Scene{locked, free} {
				_, err := s.Accept(t.Context(), []store.Event{of.Event(t), of.Event(t), of.Event(t)})
				require.NoError(t, err)
			}
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(t.Context(), lock, locked.Project)
			require.NoError(t, err)
			type answer struct {
				runs []store.Claimed
				err  error
			}
			waiting := make(chan answer, 1)
			go func() {
				runs, err := claim(t.Context(), locked)
				waiting <- answer{runs, err}
			}()
			awaitBlocked(t.Context(), t, db)
			ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second) // shorter than a batch would wait
			defer cancel()
			for range 3 {
				runs, err := claim(ctx, free)
				require.NoError(t, err)
				require.Len(t, runs, 1)
				require.Equal(t, free.Project, runs[0].Run.ProjectID)
			}
			require.Empty(t, waiting)
			require.NoError(t, tx.Rollback())
			got := <-waiting
			require.NoError(t, got.err)
			require.Len(t, got.runs, 1)
		})
	}
}

// startAnswer is the result of a claim.
type startAnswer struct {
	runs []store.Claimed
	err  error
}

// claimTogether claims a run in each of the scenes, in one transaction at first.
func claimTogether(t *testing.T, s *postgres.Store, scenes ...*storebench.Scene) (answers []chan startAnswer) {
	t.Helper()
	release := s.HoldStarts()
	for _, of := range scenes {
		answer := make(chan startAnswer, 1)
		answers = append(answers, answer)
		go func() {
			result, err := s.Claim(t.Context(), store.Claim{
				Environment: store.Key{ProjectID: of.Project, ID: of.Environment}, RunnerID: "r", Slots: 10, Limit: 1, Lease: time.Hour,
			})
			answer <- startAnswer{result.Runs, err}
		}()
	}
	for s.StartsWaiting() < len(scenes) {
		for _, answer := range answers {
			require.Empty(t, answer, "before it was carried out")
		}
		runtime.Gosched()
	}
	release(t.Context())
	return answers
}

// requireStarted waits for a claim, which must have started a run of a scene.
func requireStarted(t *testing.T, answer <-chan startAnswer, of *storebench.Scene) {
	t.Helper()
	got := <-answer
	require.NoError(t, got.err)
	require.Len(t, got.runs, 1)
	require.Equal(t, of.Project, got.runs[0].Run.ProjectID)
	require.Equal(t, store.RunRunning, got.runs[0].Run.Status)
}

// threeScenes returns three scenes in one store, each with a queued run.
func threeScenes(t *testing.T) ([]*storebench.Scene, *postgres.Store, *sql.DB) {
	t.Helper()
	first, s, db := scene(t)
	all := []*storebench.Scene{first, storebench.NewScene(t, s, 1), storebench.NewScene(t, s, 1)}
	for _, of := range all {
		_, err := s.Accept(t.Context(), []store.Event{of.Event(t)})
		require.NoError(t, err)
	}
	return all, s, db
}

// If a claim of a batch has to wait for a lock, each claim is started alone, and only that claim
// waits.
func TestClaim_SplitsBatchWithLockedRow(t *testing.T) {
	t.Parallel()
	all, s, db := threeScenes(t)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), `SELECT 1 FROM pools WHERE project_id = $1 FOR UPDATE`, all[0].Project)
	require.NoError(t, err)
	answers := claimTogether(t, s, all...)
	requireStarted(t, answers[1], all[1])
	requireStarted(t, answers[2], all[2])
	awaitBlocked(t.Context(), t, db)
	require.Empty(t, answers[0])
	require.NoError(t, tx.Rollback())
	requireStarted(t, answers[0], all[0])
}

// If the partition of a claim's input is missing, the transaction fails for the whole batch. Each
// claim is then started alone, and that claim without its input.
func TestClaim_SplitsBatchWithMissingPartition(t *testing.T) {
	t.Parallel()
	all, s, db := threeScenes(t)
	ancient := store.Stamp(uuid.New(), 0, 0)
	_, err := db.ExecContext(t.Context(), `UPDATE open_runs SET input_id = $2 WHERE project_id = $1`, all[0].Project, ancient)
	require.NoError(t, err)
	for i, answer := range claimTogether(t, s, all...) {
		requireStarted(t, answer, all[i])
	}
}

// A claim reads the inputs of its runs in their partitions only. All other partitions are locked meanwhile.
func TestClaim_LocksPartitionsOfItsInputs(t *testing.T) {
	t.Parallel()
	c, s, db := scene(t)
	manyDays(t, db, "inputs")
	ago := []int{3, 200, 399}
	for _, days := range ago {
		event := c.Event(t)
		event.Runs = event.Runs[:1]
		admissions, err := s.Accept(t.Context(), []store.Event{event})
		require.NoError(t, err)
		require.NoError(t, admissions[0].Err)
		_, err = db.ExecContext(t.Context(), `WITH i AS (INSERT INTO inputs (project_id, id, content_type, data)
			SELECT $1, stamp(gen_random_uuid(), now_us() - $3::bigint * 86400000000, 0), 'text/plain', 'of its day' RETURNING id)
			UPDATE open_runs SET input_id = i.id FROM i WHERE project_id = $1 AND open_runs.id = $2`, c.Project, admissions[0].RunIDs[0], days)
		require.NoError(t, err)
	}
	lockOtherDays(t, db, "inputs", ago...)
	result, err := s.Claim(t.Context(), store.Claim{
		Environment: store.Key{ProjectID: c.Project, ID: c.Environment}, RunnerID: "r", Slots: 10, Limit: 10, Lease: time.Hour,
	})
	require.NoError(t, err)
	require.Len(t, result.Runs, len(ago))
	for _, run := range result.Runs {
		require.Equal(t, "of its day", string(run.Input))
	}
}
