// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// database is a store with a direct connection to its database.
type database struct {
	name  string
	store store.Store
	dsn   string // of PostgreSQL
	// commit runs a transaction of one small INSERT.
	commit func(ctx context.Context) error
	// exec runs a statement, row scans the only row of one.
	exec func(ctx context.Context, statement string) error
	row  func(ctx context.Context, query string, into ...any) error
	// yardstick creates a yardstick on the same kind of database.
	yardstick func(tb testing.TB) *yardstick
}

// count runs a query that returns a single number.
func (d *database) count(ctx context.Context, query string) (n int64, err error) {
	err = d.row(ctx, query, &n)
	return n, err
}

const (
	createSmall = `CREATE TABLE bench_small (id BIGINT, payload TEXT)`
	insertSmall = `INSERT INTO bench_small (id, payload) VALUES (1, 'small')`
)

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

func openPostgres(tb testing.TB) *database {
	tb.Helper()
	dsn := testenv.Postgres(tb)
	st, err := postgres.Open(tb.Context(), postgres.Options{DSN: dsn, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, st.Close()) })
	require.NoError(tb, st.Migrate(tb.Context()))
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(tb, err)
	config.MaxConns = 64
	pool, err := pgxpool.NewWithConfig(tb.Context(), config)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	_, err = pool.Exec(tb.Context(), createSmall)
	require.NoError(tb, err)
	return &database{name: "postgres", store: st, dsn: dsn,
		commit: func(ctx context.Context) error {
			_, err := pool.Exec(ctx, insertSmall)
			return err
		},
		exec: func(ctx context.Context, statement string) error {
			_, err := pool.Exec(ctx, statement)
			return err
		},
		row: func(ctx context.Context, query string, into ...any) error {
			return pool.QueryRow(ctx, query).Scan(into...)
		},
		yardstick: yardstickPostgres,
	}
}

func openSQLite(tb testing.TB) *database {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "bench.db")
	st, err := sqlite.Open(tb.Context(), sqlite.Options{Path: path, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, st.Close()) })
	require.NoError(tb, st.Migrate(tb.Context()))
	db, err := sql.Open("sqlite", sqliteDSN(path))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	db.SetMaxOpenConns(64)
	db.SetMaxIdleConns(64)
	_, err = db.ExecContext(tb.Context(), createSmall)
	require.NoError(tb, err)
	var turn sync.Mutex // SQLite's own waiting is unfair: one connection would have all the turns
	return &database{name: "sqlite", store: st,
		commit: func(ctx context.Context) error {
			turn.Lock()
			defer turn.Unlock()
			_, err := db.ExecContext(ctx, insertSmall)
			return err
		},
		exec: func(ctx context.Context, statement string) error {
			_, err := db.ExecContext(ctx, statement)
			return err
		},
		row: func(ctx context.Context, query string, into ...any) error {
			return db.QueryRowContext(ctx, query).Scan(into...)
		},
		yardstick: yardstickSQLite,
	}
}

// databases are the kinds of them.
var databases = map[string]func(testing.TB) *database{"postgres": openPostgres, "sqlite": openSQLite}

// engines are both stores, one after the other.
func engines(b *testing.B, run func(b *testing.B, e *database)) {
	b.Helper()
	for name, open := range databases {
		b.Run(name, func(b *testing.B) { run(b, open(b)) })
	}
}
