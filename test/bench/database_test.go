// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// database is a store and, beside it, its driver without the store.
type database struct {
	name  string
	store store.Store
	dsn   string // of PostgreSQL
	// insert is BEGIN, the two INSERTs of an accepted event, COMMIT.
	insert func(ctx context.Context, project, environment, connector, link uuid.UUID) error
	// commit is a transaction of one small INSERT.
	commit func(ctx context.Context) error
}

const (
	insertConnectorRun = `INSERT INTO connector_runs (id, project_id, environment_id, connector_id, status, trigger_type,
		input, content_type, open_runs, failed_runs, started_at) VALUES ($1, $2, $3, $4, 'running', 'webhook', $5, 'application/json', 1, 0, $6)`
	insertAgentRun = `INSERT INTO agent_runs (id, project_id, environment_id, connector_id, connector_run_id, link_id, position,
		agent_name, status, error_code, error, queued_at) VALUES ($1, $2, $3, $4, $5, $6, 0, 'hello', 'queued', '', '', $7)`
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
		insert: func(ctx context.Context, project, environment, connector, link uuid.UUID) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				id, now := newID(), time.Now().UnixMicro()
				if _, err := tx.Exec(ctx, insertConnectorRun, id, project, environment, connector, body, now); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, insertAgentRun, newID(), project, environment, connector, id, link, now)
				return err
			})
		},
		commit: func(ctx context.Context) error {
			_, err := pool.Exec(ctx, insertSmall)
			return err
		},
	}
}

func openSQLite(tb testing.TB) *database {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "bench.db")
	st, err := sqlite.Open(tb.Context(), sqlite.Options{Path: path, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, st.Close()) })
	require.NoError(tb, st.Migrate(tb.Context()))
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=synchronous(FULL)&_pragma=journal_mode(WAL)")
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	db.SetMaxOpenConns(64)
	db.SetMaxIdleConns(64)
	_, err = db.ExecContext(tb.Context(), createSmall)
	require.NoError(tb, err)
	var turn sync.Mutex // SQLite's own waiting is unfair: one connection would have all the turns
	return &database{name: "sqlite", store: st,
		insert: func(ctx context.Context, project, environment, connector, link uuid.UUID) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }() // after a commit it does nothing
			id, now := newID(), time.Now().UnixMicro()
			if _, err := tx.ExecContext(ctx, insertConnectorRun, id, project, environment, connector, body, now); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, insertAgentRun, newID(), project, environment, connector, id, link, now); err != nil {
				return err
			}
			return tx.Commit()
		},
		commit: func(ctx context.Context) error {
			turn.Lock()
			defer turn.Unlock()
			_, err := db.ExecContext(ctx, insertSmall)
			return err
		},
	}
}

// engines are both stores, one after the other.
func engines(b *testing.B, run func(b *testing.B, e *database)) {
	b.Helper()
	for name, open := range map[string]func(testing.TB) *database{"postgres": openPostgres, "sqlite": openSQLite} {
		b.Run(name, func(b *testing.B) { run(b, open(b)) })
	}
}
