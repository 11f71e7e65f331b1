// SPDX-License-Identifier: Apache-2.0

// Package postgres is the store on PostgreSQL: any number of processes share it.
//
// What is done for every webhook (Accept, Claim, Complete) is one statement, and
// so one round trip and one transaction. Hints travel by LISTEN/NOTIFY on
// connections of their own.
package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlcore"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// defaultConns is the size of the pool; two connections more carry hints.
	defaultConns = 16
	// attempts is how often a transaction runs that PostgreSQL rolls back for
	// another's sake.
	attempts = 5
)

// Options say where the database is.
type Options struct {
	// DSN is a URL or a keyword string as pgx and libpq understand it. Hints need
	// a direct connection or a pooler in session mode.
	DSN string
	// Reread, unless nil, says the DSN anew before each connection: passwords and
	// addresses change while a process runs. What is open stays so, for an hour at
	// most.
	Reread func() (string, error)
	// Logger takes what nobody can be answered; slog.Default() when nil.
	Logger *slog.Logger
}

// Store is a store.Store on PostgreSQL.
type Store struct {
	*sqlcore.Core
	hub      sqlcore.Hub
	pool     *pgxpool.Pool
	db       *sql.DB
	notifier *notifier
}

var _ store.Store = (*Store)(nil)

// Open connects to the database; Migrate makes its tables.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	config, err := pgxpool.ParseConfig(o.DSN)
	if err != nil {
		return nil, fmt.Errorf("reading the DSN: %w", err)
	}
	config.MaxConns = defaultConns
	config.AfterConnect = durable
	config.BeforeConnect = o.renew
	// The statements are made so that one plan fits; planning Accept anew for each
	// batch would take longer than running it.
	config.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("making the pool: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	s := &Store{pool: pool, db: stdlib.OpenDBFromPool(pool)}
	s.notifier = startNotifier(config.ConnConfig.Copy(), o.renew, &s.hub, o.Logger)
	s.Core = sqlcore.New(sqlcore.Options{
		Engine: engine{s}, SkipLocked: "FOR UPDATE SKIP LOCKED", Share: "FOR KEY SHARE",
		Exclusive: "FOR UPDATE", Publish: s.publish, NoTable: func(err error) bool { return hasCode(err, undefinedTable) },
	})
	return s, nil
}

// renew puts what the DSN says now into the configuration of a connection.
func (o Options) renew(_ context.Context, config *pgx.ConnConfig) error {
	if o.Reread == nil {
		return nil
	}
	dsn, err := o.Reread()
	if err != nil {
		return fmt.Errorf("reading the DSN again: %w", err)
	}
	now, err := pgx.ParseConfig(dsn)
	if err != nil {
		return fmt.Errorf("reading the DSN again: %w", err)
	}
	config.Host, config.Port, config.Database = now.Host, now.Port, now.Database
	config.User, config.Password, config.TLSConfig = now.User, now.Password, now.TLSConfig
	config.Fallbacks = now.Fallbacks
	return nil
}

// durable refuses a server that loses what it has confirmed, and sets right a
// session that would.
func durable(ctx context.Context, conn *pgx.Conn) error {
	var fsync, commit string
	if err := conn.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit')`).
		Scan(&fsync, &commit); err != nil {
		return fmt.Errorf("reading the server's durability: %w", err)
	}
	if fsync != "on" {
		return errors.New("the server runs with fsync=off: it loses accepted webhooks when it crashes; set fsync=on")
	}
	if commit == "off" || commit == "local" || commit == "remote_write" {
		if _, err := conn.Exec(ctx, `SET synchronous_commit = on`); err != nil {
			return fmt.Errorf("setting synchronous_commit: %w", err)
		}
	}
	return nil
}

// publish hands hints out here at once and to the other processes by the notifier.
func (s *Store) publish(hints []store.Hint) {
	s.hub.Publish(hints)
	s.notifier.send(hints)
}

// engine is what sqlcore asks of PostgreSQL.
type engine struct{ *Store }

// Write implements sqlcore.Engine.
func (e engine) Write(ctx context.Context, fn func(ctx context.Context, q sqlcore.Queryer) error) error {
	return again(func() error {
		tx, err := e.db.BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("beginning a transaction: %w", err)
		}
		if err := fn(ctx, tx); err != nil {
			_ = tx.Rollback() // the error that matters is fn's
			return err
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("committing: %w", err)
		}
		return nil
	})
}

// again repeats what PostgreSQL rolled back because of a deadlock or a conflict.
func again(run func() error) (err error) {
	for range attempts {
		if err = run(); !hasCode(err, "40001", "40P01") {
			return err
		}
	}
	return err
}

// Snapshot implements sqlcore.Engine.
func (e engine) Snapshot(ctx context.Context, fn func(ctx context.Context, q sqlcore.Queryer) error) error {
	tx, err := e.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return fmt.Errorf("beginning to read: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // there is nothing to lose
	return fn(ctx, tx)
}

// Reader implements sqlcore.Engine.
func (e engine) Reader() sqlcore.Queryer { return e.db }

// Lock implements sqlcore.Engine.
func (e engine) Lock(ctx context.Context, q sqlcore.Queryer, key uuid.UUID) error {
	if _, err := q.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, key.String()); err != nil {
		return fmt.Errorf("waiting for the lock of %s: %w", key, err)
	}
	return nil
}

// undefinedTable is PostgreSQL's code of a statement on a table that is not there.
const undefinedTable = "42P01"

// hasCode says whether an error is PostgreSQL's with a code or class among these.
func hasCode(err error, codes ...string) bool {
	var failure *pgconn.PgError
	if !errors.As(err, &failure) {
		return false
	}
	for _, code := range codes {
		if failure.Code == code || failure.Code[:2] == code {
			return true
		}
	}
	return false
}

// Subscribe implements store.Notifier.
func (s *Store) Subscribe(topic store.Topic) (<-chan store.Hint, func()) {
	return s.hub.Subscribe(topic)
}

// Migrate implements store.Store. Processes that migrate at once take turns.
func (s *Store) Migrate(ctx context.Context) error {
	scripts, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("opening the migrations: %w", err)
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return fmt.Errorf("making the migration lock: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, s.db, scripts,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrating: %w", err)
	}
	// Statements that were prepared before the migration may not fit any more.
	s.pool.Reset()
	return nil
}

// Ping implements store.Store.
func (s *Store) Ping(ctx context.Context) error { return sqlcore.CheckSchema(ctx, s.db, migrations) }

// Close implements store.Store.
func (s *Store) Close() error {
	s.notifier.close()
	s.hub.Close()
	err := s.db.Close()
	s.pool.Close()
	return err
}
