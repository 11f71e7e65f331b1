// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// A run saves a file while a count of stored bytes waits for the row of another project. The row of the run's project comes
// first in the order of locks.
func TestCountStored_BlocksNoSaveOfOtherProject(t *testing.T) {
	t.Parallel()
	c, s, db := scene(t)
	_, err := s.Accept(t.Context(), []store.Event{c.Event(t)})
	require.NoError(t, err)
	claim, err := s.Claim(t.Context(), store.Claim{
		Environment: store.Key{ProjectID: c.Project, ID: c.Environment}, RunnerID: "r", Slots: 1, Limit: 1, Lease: store.LeaseDuration,
	})
	require.NoError(t, err)
	require.Len(t, claim.Runs, 1)
	run := claim.Runs[0]
	other := uuid.Must(uuid.Parse("ffffffff-ffff-7fff-bfff-ffffffffffff"))
	for _, project := range []uuid.UUID{c.Project, other} {
		postStorage(t, db, project, run.Run.ID)
		_, err = db.ExecContext(t.Context(), `INSERT INTO stored_days (project_id, day, bytes) VALUES ($1, day_of($2), 0)`, project, run.Run.ID)
		require.NoError(t, err)
	}
	locked, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	_, err = locked.ExecContext(t.Context(), `SELECT 1 FROM stored_days WHERE project_id = $1 FOR UPDATE`, other)
	require.NoError(t, err)
	counted := make(chan error, 1)
	go func() {
		_, err := s.CountStored(context.WithoutCancel(t.Context()), 10)
		counted <- err
	}()
	awaitBlocked(t.Context(), t, db)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it only has to catch hangs
	defer cancel()
	text := "the text of a file"
	digest := sha256.Sum256([]byte(text))
	data, err := json.Marshal(store.SavedFile{
		ID: "s1", Name: "f", MIMEType: "text/plain", Size: int64(len(text)), SHA256: hex.EncodeToString(digest[:]),
	})
	require.NoError(t, err)
	saved := s.SaveFile(ctx, store.Lease{Run: run.Run.Key(), Token: run.Token}, []store.JournalEntry{
		{Sequence: 1, Kind: store.JournalFile, Data: data}, {Sequence: 2, Kind: store.JournalToolResult, Data: []byte(`{}`)},
	}, strings.NewReader(text))
	require.NoError(t, locked.Rollback())
	require.NoError(t, saved)
	require.NoError(t, <-counted)
	var bytes int64
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT bytes FROM stored_bytes WHERE project_id = $1`, other).Scan(&bytes))
	require.EqualValues(t, 1, bytes)
}

// Another gateway counts the oldest rows. A count takes rows of other projects, so it does not report that few rows are left.
func TestCountStored_TakesRowsBehindLockedRows(t *testing.T) {
	t.Parallel()
	const limit = 3
	c, s, db := scene(t)
	other := uuid.New()
	for _, project := range []uuid.UUID{c.Project, other} {
		for range limit {
			postStorage(t, db, project, uuid.Must(uuid.NewV7()))
		}
	}
	locked, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	_, err = locked.ExecContext(t.Context(), `SELECT 1 FROM outbox WHERE project_id = $1 FOR UPDATE`, c.Project)
	require.NoError(t, err)
	n, err := s.CountStored(t.Context(), limit)
	require.NoError(t, locked.Rollback())
	require.NoError(t, err)
	require.Equal(t, limit, n)
}
