// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
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
