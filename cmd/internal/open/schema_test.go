// SPDX-License-Identifier: Apache-2.0

package open_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/cmd/internal/open"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
)

// executeStatement changes a SQLite store directly.
func executeStatement(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// Store rejects a store with a schema that the process cannot use, and opens a store that is not migrated yet.
func TestStore_RefusesUnusableSchemas(t *testing.T) {
	t.Parallel()
	require.NoError(t, started(t, "--sqlite="+filepath.Join(t.TempDir(), "new.db")))
	for name, row := range map[string]struct {
		statement string
		want      error
	}{
		"usable":            {`UPDATE schema_compat SET oldest = 1`, nil},
		"other migrations":  {`UPDATE schema_fingerprints SET fingerprint = 'of another text'`, store.ErrForeignSchema},
		"excluding release": {`UPDATE schema_compat SET oldest = 99`, store.ErrNewerSchema},
	} {
		t.Run(name, func(t *testing.T) {
			path := sqlitetest.Migrated(t)
			executeStatement(t, path, row.statement)
			require.ErrorIs(t, started(t, "--sqlite="+path), row.want)
		})
	}
}

// A process stops once a newer release excludes it. It keeps working if the store does not respond, and if the newer release
// supports it. It logs once that checks fail, and once that they succeed again.
func TestSchemaWatch_StopsExcludedProcess(t *testing.T) {
	t.Parallel()
	path := sqlitetest.Migrated(t)
	st, err := open.Store(t.Context(), open.Options{SQLite: path})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	ready := func(context.Context) error { return nil }
	between := []func(){
		func() { executeStatement(t, path, `ALTER TABLE goose_db_version RENAME TO away`) },
		func() {},
		func() { executeStatement(t, path, `ALTER TABLE away RENAME TO goose_db_version`) },
		func() {
			executeStatement(t, path, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, TRUE)`)
		},
		func() { executeStatement(t, path, `UPDATE schema_compat SET oldest = 99`) },
	}
	var log bytes.Buffer
	watch := &open.SchemaWatch{Store: st, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	watch.Tick = func(context.Context) error {
		require.NoError(t, watch.Ready(ready)(t.Context()))
		between[0]()
		between = between[1:]
		return nil
	}
	err = watch.Run(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		require.ErrorIs(t, watch.Ready(ready)(t.Context()), store.ErrNewerSchema)
		require.ErrorIs(t, st.HoldCluster(t.Context(), "cluster", [16]byte{1}), store.ErrNewerSchema)
		return nil
	})
	require.ErrorIs(t, err, store.ErrNewerSchema)
	require.Empty(t, between)
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), "two checks failed: %s", log.String())
	require.Equal(t, 1, strings.Count(log.String(), "level=INFO"), log.String())
}

// A manager migrates its store while its schema is watched. A store whose migration was interrupted before its first step is not
// migrated yet, so the watch does not stop the migration.
func TestSchemaWatch_LetsManagerResumeMigration(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	versions, err := database.NewStore(database.DialectSQLite3, goose.DefaultTablename)
	require.NoError(t, err)
	require.NoError(t, versions.CreateVersionTable(t.Context(), db))
	require.NoError(t, versions.Insert(t.Context(), db, database.InsertRequest{Version: 0}))
	require.NoError(t, db.Close())
	st, err := open.Store(t.Context(), open.Options{SQLite: path})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	checked := make(chan struct{})
	watch := &open.SchemaWatch{Store: st, Tick: func(ctx context.Context) error {
		select {
		case checked <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	require.NoError(t, watch.Run(t.Context(), func(ctx context.Context) error {
		for range 2 { // before and after the migration
			select {
			case <-checked:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := st.Migrate(ctx); err != nil {
				return err
			}
		}
		return nil
	}))
}

// The work of a process that stops for another reason ends with its own result.
func TestSchemaWatch_ReturnsResultOfWork(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, want := range map[string]error{"no error": nil, "an error": broken} {
		t.Run(name, func(t *testing.T) {
			st, err := open.Store(t.Context(), open.Options{SQLite: sqlitetest.Migrated(t)})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, st.Close()) })
			watch := &open.SchemaWatch{Store: st}
			require.ErrorIs(t, watch.Run(t.Context(), func(context.Context) error { return want }), want)
		})
	}
}
