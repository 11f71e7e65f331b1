// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// An upload that is stored again while the sweep deletes it exists afterwards.
func TestPutUpload_SurvivesSweep(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	s, project := openAt(t, dsn), uuid.New()
	db := openDB(t, dsn)
	old, err := s.PutUpload(t.Context(), project, strings.NewReader("content"), 100)
	require.NoError(t, err)
	sweep, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = sweep.ExecContext(t.Context(), `SELECT 1 FROM uploads WHERE project_id = $1 FOR UPDATE`, project.String())
	require.NoError(t, err)
	put := make(chan error, 1)
	go func() {
		_, err := s.PutUpload(t.Context(), project, strings.NewReader("content"), 100)
		put <- err
	}()
	for waits := 0; waits == 0; {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits))
	}
	_, err = sweep.ExecContext(t.Context(), `DELETE FROM uploads WHERE project_id = $1`, project.String())
	require.NoError(t, err)
	require.NoError(t, sweep.Commit())
	require.NoError(t, <-put)
	require.NoError(t, s.HasUpload(t.Context(), project, old.Digest))
}
