// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"database/sql"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
)

// The test moves counted requests into the past.
func TestTakeRequest_SlidesByDatabaseClock(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s, err := Open(t.Context(), Options{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	project, limit := uuid.New(), store.RateLimit{Requests: 2, Window: time.Minute}
	take := func() store.RateVerdict {
		verdict, err := s.TakeRequest(t.Context(), project, limit)
		require.NoError(t, err)
		return verdict
	}
	shift := func(seconds int64) {
		result, err := db.ExecContext(t.Context(), `UPDATE request_windows
			SET taken = ARRAY(SELECT t - $2 * 1000000 FROM unnest(taken) t) WHERE project_id = $1`, project.String(), seconds)
		require.NoError(t, err)
		rows, err := result.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, 1, rows)
	}
	require.True(t, take().Allowed)
	shift(30)
	require.True(t, take().Allowed)
	require.False(t, take().Allowed)
	shift(25) // 55 s and 25 s ago
	refused := take()
	require.False(t, refused.Allowed)
	require.LessOrEqual(t, refused.Reset, 5*time.Second)
	shift(5) // 60 s and 30 s ago
	require.True(t, take().Allowed, "the oldest request has left the window")
	require.False(t, take().Allowed)
	shift(-20) // as if the server's clock had been set back
	require.False(t, take().Allowed, "requests from before the clock was set back count")
}

// Neither the table nor the commit waits for a disk. Later transactions on the same connection do.
func TestTakeRequest_DoesNotWaitForDisk(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{DSN: testenv.Postgres(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	conn, err := s.pools[0].Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for range 2 { // the first call inserts the row, the second updates it
		var (
			allowed                   bool
			counted, oldest, at, most int64
			mode, after, logged       string
		)
		require.NoError(t, conn.QueryRow(t.Context(), takeRequest, uuid.Max, 5, time.Minute.Microseconds()).
			Scan(&allowed, &counted, &oldest, &at, &most, &mode))
		require.True(t, allowed)
		require.Equal(t, "off", mode)
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT current_setting('synchronous_commit'),
			(SELECT relpersistence::text FROM pg_class WHERE oid = 'request_windows'::regclass)`).Scan(&after, &logged))
		require.Equal(t, "on", after)
		require.Equal(t, "u", logged, "the table is unlogged")
	}
}
