// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"database/sql"
	"errors"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

func open(tb testing.TB) *postgres.Store {
	tb.Helper()
	return openAt(tb, migrated(tb))
}

// migrated is a database with schema and partitions. It is created once and copied, because
// migrating would take most of a test's time.
func migrated(tb testing.TB) (dsn string) {
	tb.Helper()
	return testenv.PostgresPrepared(tb, "migrated", func(dsn string) error {
		s, err := postgres.Open(tb.Context(), postgres.Options{DSN: dsn})
		if err != nil {
			return err
		}
		return errors.Join(s.Migrate(tb.Context()), s.Close())
	})
}

func openAt(tb testing.TB, dsn string) *postgres.Store {
	tb.Helper()
	s, err := postgres.Open(tb.Context(), postgres.Options{DSN: dsn, Evaluate: expr.On})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// openDB opens a database without a store.
func openDB(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	return db
}

func TestPing_RequiresMigration(t *testing.T) {
	t.Parallel()
	s := openAt(t, testenv.Postgres(t))
	require.Error(t, s.Ping(t.Context()), "not migrated yet")
	_, err := s.Cluster(t.Context())
	require.ErrorIs(t, err, store.ErrNotFound, "nobody's yet")
	for range 2 {
		require.NoError(t, s.Migrate(t.Context()), "a second call is no error")
		require.NoError(t, s.Ping(t.Context()))
	}
}

func TestScene_Trip(t *testing.T) {
	t.Parallel()
	storebench.NewScene(t, open(t), 2).Trip(t.Context(), t)
}

func BenchmarkStore(b *testing.B) {
	storebench.Run(b, func(b *testing.B) store.Store { return open(b) })
}

// A new connection uses the current DSN, for example after a password rotation. An unreadable DSN
// is an error that names it.
func TestOpen_RereadsDSN(t *testing.T) {
	t.Parallel()
	dsn, broken := testenv.Postgres(t), errors.New("the file is gone")
	var reread error
	s, err := postgres.Open(t.Context(), postgres.Options{
		// No user of that name exists, so only the reread DSN works.
		DSN:    withUser(t, dsn, "nobody-of-that-name"),
		Reread: func() (string, error) { return dsn, reread },
	})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Close())

	reread = broken
	s, err = postgres.Open(t.Context(), postgres.Options{DSN: dsn, Reread: func() (string, error) { return dsn, reread }})
	require.NoError(t, err, "opening does not need the database")
	require.ErrorIs(t, s.Ping(t.Context()), broken)
	require.NoError(t, s.Close())
}

func withUser(t *testing.T, dsn, user string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.User = url.UserPassword(user, "wrong")
	return u.String()
}
