// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
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

// migrated is a database with the schema and its partitions, which is made once and
// copied: to migrate each would take most of a test's time.
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

func TestAStoreIsReadyOnceItIsMigrated(t *testing.T) {
	t.Parallel()
	s := openAt(t, testenv.Postgres(t))
	require.Error(t, s.Ping(t.Context()), "not migrated yet")
	_, err := s.Cluster(t.Context())
	require.ErrorIs(t, err, store.ErrNotFound, "nobody's yet")
	for range 2 {
		require.NoError(t, s.Migrate(t.Context()), "again is no error")
		require.NoError(t, s.Ping(t.Context()))
	}
}

func TestWayOfAWebhook(t *testing.T) {
	t.Parallel()
	storebench.NewScene(t, open(t), 2).Trip(t.Context(), t)
}

func BenchmarkStore(b *testing.B) {
	storebench.Run(b, func(b *testing.B) store.Store { return open(b) })
}

// TestTheDSNIsReadAgain: a connection that is made later goes where the DSN says
// then, as after a password was rotated; one that cannot be read is an error that
// names it.
func TestTheDSNIsReadAgain(t *testing.T) {
	t.Parallel()
	dsn, broken := testenv.Postgres(t), errors.New("the file is gone")
	var reread error
	s, err := postgres.Open(t.Context(), postgres.Options{
		// Nobody of that name may connect: all depends on what is read again.
		DSN:    withUser(t, dsn, "nobody-of-that-name"),
		Reread: func() (string, error) { return dsn, reread },
	})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Close())

	reread = broken
	s, err = postgres.Open(t.Context(), postgres.Options{DSN: dsn, Reread: func() (string, error) { return dsn, reread }})
	require.NoError(t, err, "it opens without its database")
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
