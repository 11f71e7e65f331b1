// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
)

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	return conn
}

func TestPostgres_IsolatesTests(t *testing.T) {
	t.Parallel()
	first, second := connect(t, testenv.Postgres(t)), connect(t, testenv.Postgres(t))
	_, err := first.Exec(t.Context(), "CREATE TABLE things (name text)")
	require.NoError(t, err)

	var there bool
	require.NoError(t, second.QueryRow(t.Context(), "SELECT to_regclass('things') IS NOT NULL").Scan(&there))
	require.False(t, there)
}

func TestPostgres_IsDurable(t *testing.T) {
	t.Parallel()
	conn := connect(t, testenv.Postgres(t))
	for setting, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "200",
		"server_encoding": "UTF8",
	} {
		t.Run(setting, func(t *testing.T) {
			var got string
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&got))
			require.Equal(t, want, got)
		})
	}
}

func TestPostgresPrepared_PreparesOnce(t *testing.T) {
	t.Parallel()
	calls := 0
	prepare := func(dsn string) error {
		calls++
		conn, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(t.Context()) }()
		_, err = conn.Exec(t.Context(), "CREATE TABLE things (name text)")
		return err
	}
	for range 3 {
		conn := connect(t, testenv.PostgresPrepared(t, "things", prepare))
		var rows int
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM things").Scan(&rows))
		require.Zero(t, rows)
		_, err := conn.Exec(t.Context(), "INSERT INTO things VALUES ('one')")
		require.NoError(t, err)
	}
	require.Equal(t, 1, calls)
}

func TestFindPostgres_FollowsLinks(t *testing.T) {
	// The test links Debian's binaries into a PATH without initdb.
	testenv.Postgres(t) // installs PostgreSQL if needed
	dir := testenv.FindPostgres()
	require.NotEmpty(t, dir)
	link := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(dir, "postgres"), filepath.Join(link, "postgres")))
	t.Setenv("PATH", link)
	require.Equal(t, dir, testenv.FindPostgres())
}
