// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// TestABlobThatGoesIsNobodysInput: an event is accepted with its input or not at all,
// also when the blob is being deleted as it comes.
func TestABlobThatGoesIsNobodysInput(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	s := openAt(t, dsn)
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	scene := storebench.NewScene(t, s, 1)
	blob := uuid.Must(uuid.NewV7())
	_, err = s.PutBlob(t.Context(), store.Key{ProjectID: scene.Project, ID: blob}, strings.NewReader("content"))
	require.NoError(t, err)
	e := scene.Event(t)
	e.Input, e.InputBlob = nil, &blob

	dropping, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	for _, statement := range []string{
		`DELETE FROM blob_chunks WHERE project_id = $1 AND blob_id = $2`, `DELETE FROM blobs WHERE project_id = $1 AND id = $2`,
	} {
		_, err := dropping.ExecContext(t.Context(), statement, scene.Project, blob)
		require.NoError(t, err)
	}
	accepted := make(chan []store.Admission, 1)
	go func() {
		admissions, _ := s.Accept(t.Context(), []store.Event{e}) // the admission has the error too
		accepted <- admissions
	}()
	for waits := 0; waits == 0; {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits))
	}
	require.NoError(t, dropping.Commit())
	require.ErrorIs(t, (<-accepted)[0].Err, store.ErrNotFound)
}
