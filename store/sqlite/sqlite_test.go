// SPDX-License-Identifier: Apache-2.0

package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/pressly/goose/v3/database"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
	"github.com/agentplatform/agentplatform/store/storetest"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

func openDatabase(tb testing.TB) store.Store {
	tb.Helper()
	return openAt(tb, sqlitetest.Migrated(tb))
}

func openAt(tb testing.TB, path string) store.Store {
	tb.Helper()
	s, err := sqlite.Open(tb.Context(), sqlite.Options{Path: path, Evaluate: expr.On})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

func TestPing_RequiresMigration(t *testing.T) {
	t.Parallel()
	s := openAt(t, filepath.Join(t.TempDir(), "store.db"))
	require.Error(t, s.Ping(t.Context()), "not migrated yet")
	_, err := s.Cluster(t.Context())
	require.ErrorIs(t, err, store.ErrNotFound, "nobody's yet")
	for range 2 {
		require.NoError(t, s.Migrate(t.Context()), "a second call is no error")
		require.NoError(t, s.Ping(t.Context()))
	}
}

func TestMigrate_ResumesAfterInterruption(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := openAt(t, path)
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	storetest.CheckInterruptedMigration(t, database.DialectSQLite3, storetest.Opened{Store: s, DB: db})
}

func TestScene_Trip(t *testing.T) {
	t.Parallel()
	storebench.NewScene(t, openDatabase(t), 2).Trip(t.Context(), t)
}

func TestScene_Tour(t *testing.T) {
	t.Parallel()
	scene := storebench.NewScene(t, openDatabase(t), 2)
	scene.Tour(t)
	scene.Tour(t)
}

func BenchmarkStore(b *testing.B) {
	storebench.Run(b, func(b *testing.B) store.Store { return openDatabase(b) })
}
