// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// Blobs of a transaction that its caller gave up are deleted at once. No limit counts them, so a
// day of them could fill the disk.
func TestComplete_DeletesBlobsAfterCancellation(t *testing.T) {
	t.Parallel()
	scene, s, db := scene(t)
	_, err := s.Accept(t.Context(), []store.Event{scene.Event(t)})
	require.NoError(t, err)
	claimed, err := s.Claim(t.Context(), store.Claim{
		Environment: store.Key{ProjectID: scene.Project, ID: scene.Environment}, RunnerID: "r", Slots: 1, Limit: 1, Lease: time.Hour,
	})
	require.NoError(t, err)
	run := claimed.Runs[0]

	holding, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = holding.ExecContext(t.Context(), `SELECT 1 FROM open_runs WHERE project_id = $1 AND id = $2 FOR UPDATE`, scene.Project, run.Run.ID)
	require.NoError(t, err)
	calling, hangUp := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		answered <- s.AppendJournal(calling, store.Lease{Run: run.Run.Key(), Token: run.Token}, []store.JournalEntry{{
			Sequence: 1, Kind: store.JournalModelAnswer, Data: json.RawMessage(`"` + strings.Repeat("x", 2*store.MaxInlineText) + `"`),
		}})
	}()
	awaitBlocked(t.Context(), t, db)
	loose := func() (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM blobs WHERE mark = ''`).Scan(&n))
		return n
	}
	require.Equal(t, 1, loose())
	hangUp()
	require.ErrorIs(t, <-answered, context.Canceled)
	require.Zero(t, loose())
	require.NoError(t, holding.Rollback())
}
