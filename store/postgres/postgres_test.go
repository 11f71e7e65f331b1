// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"errors"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

func open(tb testing.TB) store.Store {
	tb.Helper()
	return openAt(tb, testenv.Postgres(tb))
}

func openAt(tb testing.TB, dsn string) store.Store {
	tb.Helper()
	s, err := postgres.Open(tb.Context(), postgres.Options{DSN: dsn})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	require.Error(tb, s.Ping(tb.Context()), "not migrated yet")
	_, err = s.Cluster(tb.Context())
	require.ErrorIs(tb, err, store.ErrNotFound, "nobody's yet")
	require.NoError(tb, s.Migrate(tb.Context()))
	require.NoError(tb, s.Ping(tb.Context()))
	return s
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
	_, err = postgres.Open(t.Context(), postgres.Options{DSN: dsn, Reread: func() (string, error) { return dsn, reread }})
	require.ErrorIs(t, err, broken)
}

func withUser(t *testing.T, dsn, user string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.User = url.UserPassword(user, "wrong")
	return u.String()
}
