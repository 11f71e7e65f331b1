// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3/database"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/storetest"
)

func TestMigrate_ResumesAfterInterruption(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	db := openDB(t, dsn)
	storetest.CheckInterruptedMigration(t, database.DialectPostgres, storetest.Opened{Store: openAt(t, dsn), DB: db})
}

// The statements outside of the store's transactions change nothing either once a newer release excludes this one.
func TestStore_ChangesNothingForExcludedRelease(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	s := openAt(t, dsn)
	db := openDB(t, dsn)
	_, err := db.ExecContext(t.Context(), `UPDATE schema_compat SET oldest = 99`)
	require.NoError(t, err)
	require.ErrorIs(t, s.Ping(t.Context()), store.ErrNewerSchema)
	for name, change := range map[string]func() error{
		"TakeRequest": func() error {
			_, err := s.TakeRequest(t.Context(), uuid.New(), store.RateLimit{Requests: 1, Window: time.Minute})
			return err
		},
		"EnsurePartitions": func() error {
			_, err := s.EnsurePartitions(t.Context(), 9)
			return err
		},
		"Replan": func() error { return s.Replan(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) { require.ErrorIs(t, change(), store.ErrNewerSchema) })
	}
}

// A transaction that locks a table blocks neither the migration forever, nor the statements that
// wait behind the migration.
func TestMigrate_LimitsLockWait(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	s, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE goose_db_version IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	require.ErrorContains(t, s.Migrate(t.Context()), "lock timeout")
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, s.Migrate(t.Context()), "the next attempt succeeds")
	require.NoError(t, conn.Close(t.Context()))
}
