// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// TestAClaimWaitsForNobodyElsesLocks: while another transaction has the pool or the queued
// run of one environment, claims of others go on, although they share transactions.
func TestAClaimWaitsForNobodyElsesLocks(t *testing.T) {
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
					Environment: store.Key{ProjectID: of.Project, ID: of.Environment}, RunnerID: uuid.NewString(), Places: 10, Limit: 1, Lease: time.Hour,
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
			ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second) // less than a batch would wait
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
