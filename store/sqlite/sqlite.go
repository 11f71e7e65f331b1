// SPDX-License-Identifier: Apache-2.0

// Package sqlite is the store on an embedded SQLite database. It is the default if everything runs in
// one process, which must be the only one that has the file open.
//
// One goroutine writes. Waiting writes share a transaction, each in a savepoint of its own, and return
// after the commit. So concurrent writes share the cost of a sync. Reads use connections of their own
// and see the last commit.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	goose "github.com/pressly/goose/v3/database"
	modernc "modernc.org/sqlite"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/hint"
	"github.com/agentplatform/agentplatform/store/schema"
	"github.com/agentplatform/agentplatform/store/sqlcore"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

//go:embed migrations/*.sql
var migrations embed.FS

// busyTimeout is how long a connection waits for another process that has the file, in
// milliseconds.
const busyTimeout = 10_000

// readers is the number of concurrent reads.
const readers = 8

// Options configure a store.
type Options struct {
	// Path is the database file, or a folder that contains it as `store.db`. The file is created if
	// it is missing. The folder must exist.
	Path string
	// Logger logs errors that no caller receives; slog.Default() if nil.
	Logger *slog.Logger
	// Evaluate evaluates the concurrency keys of runs that were accepted without a live deployment;
	// nil if no runs are claimed.
	Evaluate store.Evaluator
}

// Store is a store.Store on SQLite.
type Store struct {
	*sqlcore.Core
	hub    hint.Hub
	read   *sql.DB
	reader *statements // of read
	// snapshots has one slot less than there are readers, because preparing a statement for a
	// snapshot takes a second connection.
	snapshots chan struct{}
	writer    *writer
	// checkpointer moves the pages that the writer has written.
	checkpointer *checkpointer
	logger       *slog.Logger
	schema       *schema.Schema
	// requests are the counted requests of rate limits.
	requests store.RateWindows
}

var _ store.Store = (*Store)(nil)

// Connections implements store.Store.
func (s *Store) Connections() int { return readers }

// Open opens the database. Migrate creates its tables.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Path = databaseFile(o.Path)
	schema, err := schema.New(migrations, goose.DialectSQLite3, noTable)
	if err != nil {
		return nil, err
	}
	s := &Store{logger: o.Logger, schema: schema, snapshots: make(chan struct{}, readers-1)}
	if s.writer, err = openWriter(ctx, openDatabase(o.Path, "immediate", "rwc"), o.Logger); err != nil {
		return nil, fmt.Errorf("opening %s: %w", o.Path, err)
	}
	if s.checkpointer, err = openCheckpointer(ctx, o.Path, s.writer, o.Logger, time.After); err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", o.Path, err), s.writer.close())
	}
	s.read = openDatabase(o.Path, "deferred", "ro")
	s.read.SetMaxOpenConns(readers)
	s.read.SetMaxIdleConns(readers)
	s.reader = newStatements(s.read)
	s.Core = sqlcore.New(sqlcore.Options{
		Engine: engine{s}, Publish: s.publish, AtOnce: 25, Evaluate: o.Evaluate, ListsAtOnce: readers,
		Dialect: sqldb.Dialect{Address: "rowid", BadData: isConstraint, NoTable: noTable},
	})
	return s, nil
}

// databaseFile returns the database file for a path of the file or its folder.
func databaseFile(path string) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return filepath.Join(path, "store.db")
	}
	return path
}

// noTable reports whether a statement failed because a table is missing, for which SQLite has no
// code.
func noTable(err error) bool { return strings.Contains(err.Error(), "no such table") }

// database opens connections with the driver that provides now_us().
type database struct{ dsn string }

var withClock = func() *modernc.Driver {
	d := &modernc.Driver{}
	d.MustRegisterScalarFunction("now_us", 0, func(*modernc.FunctionContext, []driver.Value) (driver.Value, error) {
		return machineClock.now().UnixMicro(), nil
	})
	d.MustRegisterDeterministicScalarFunction("id_at", 1, func(_ *modernc.FunctionContext, args []driver.Value) (driver.Value, error) {
		us, _ := args[0].(int64)
		id := store.Stamp(uuid.UUID{}, max(us, 0)/1000*1000, 0)
		id[6], id[7] = 0, 0
		return id.String(), nil
	})
	d.MustRegisterDeterministicScalarFunction("id_list", 1, func(_ *modernc.FunctionContext, args []driver.Value) (driver.Value, error) {
		id, _ := args[0].(string)
		if id == uuid.Nil.String() {
			return `[]`, nil
		}
		return `["` + id + `"]`, nil
	})
	return d
}()

// Connect implements driver.Connector.
func (d database) Connect(context.Context) (driver.Conn, error) { return withClock.Open(d.dsn) }

// Driver implements driver.Connector.
func (d database) Driver() driver.Driver { return withClock }

func openDatabase(path, lock, mode string) *sql.DB { return sql.OpenDB(databaseAt(path, lock, mode)) }

// openAlone opens a database that no other connection, of this or another process, may have open.
// Otherwise its first statement fails. Closing it moves the log to the file, and deletes the log.
func openAlone(path string) *sql.DB {
	// The lock is requested before other pragmas read the schema, without waiting.
	db := sql.OpenDB(databaseBy(path, "deferred", "rw", []string{"busy_timeout(0)", "locking_mode(EXCLUSIVE)", "synchronous(FULL)"}))
	db.SetMaxOpenConns(1)
	return db
}

func databaseAt(path, lock, mode string) database {
	pragmas := []string{fmt.Sprintf("busy_timeout(%d)", busyTimeout), "synchronous(FULL)", "foreign_keys(1)", "temp_store(MEMORY)"}
	if mode == "rwc" {
		// The first pragma applies to a new file only and selects how free pages are found. The
		// last one is the number of bytes of the log that stay after a restart. Commits move no
		// pages.
		pragmas = append(pragmas, "auto_vacuum(INCREMENTAL)", "journal_mode(WAL)", "wal_autocheckpoint(0)",
			fmt.Sprintf("journal_size_limit(%d)", longestLog*pageSize))
	}
	return databaseBy(path, lock, mode, pragmas)
}

func databaseBy(path, lock, mode string, pragmas []string) database {
	query := url.Values{"mode": {mode}, "_txlock": {lock}, "_pragma": pragmas}
	return database{dsn: (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: query.Encode()}).String()}
}

// engine implements sqlcore.Engine for SQLite.
type engine struct{ *Store }

// Write implements sqldb.Engine.
func (e engine) Write(ctx context.Context, fn func(ctx context.Context, q sqldb.Queryer) error) error {
	return e.writer.runOperation(ctx, fn)
}

// Single implements sqldb.Engine.
func (e engine) Single(ctx context.Context, fn func(ctx context.Context, q sqldb.Queryer) error) error {
	return e.writer.runOperation(ctx, fn)
}

// Snapshot implements sqldb.Engine.
func (e engine) Snapshot(ctx context.Context, fn func(ctx context.Context, q sqldb.Queryer) error) error {
	select {
	case e.snapshots <- struct{}{}:
		defer func() { <-e.snapshots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	tx, err := e.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("beginning a read transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // there is nothing to lose
	return fn(ctx, snapshot{tx, e.reader})
}

// snapshot runs the prepared statements of a pool in a transaction.
type snapshot struct {
	*sql.Tx
	prepared *statements
}

// QueryContext implements sqldb.Queryer.
func (s snapshot) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if stmt := s.prepared.preparedStatement(ctx, query); stmt != nil {
		defer s.prepared.release(stmt)
		return s.StmtContext(ctx, stmt.Stmt).QueryContext(ctx, args...)
	}
	return s.Tx.QueryContext(ctx, query, args...)
}

// QueryRowContext implements sqldb.Queryer.
func (s snapshot) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt := s.prepared.preparedStatement(ctx, query); stmt != nil {
		defer s.prepared.release(stmt)
		return s.StmtContext(ctx, stmt.Stmt).QueryRowContext(ctx, args...)
	}
	return s.Tx.QueryRowContext(ctx, query, args...)
}

// Reader implements sqldb.Engine.
func (e engine) Reader() sqldb.Queryer { return e.reader }

// Lock implements sqldb.Engine. There is one writer.
func (e engine) Lock(context.Context, sqldb.Queryer, uuid.UUID) error { return nil }

// TryLock implements sqldb.Engine. There is one writer.
func (e engine) TryLock(context.Context, sqldb.Queryer, uuid.UUID, time.Duration) (bool, error) {
	return true, nil
}

// publish sends hints, each once.
func (s *Store) publish(hints []store.Hint) { s.hub.Publish(s.hub.WorthSending(hints)) }

// Subscribe implements store.Notifier.
func (s *Store) Subscribe(topic store.Topic) (<-chan store.Hint, func()) {
	return s.hub.Subscribe(topic)
}

// Migrate implements store.Store.
func (s *Store) Migrate(ctx context.Context) error {
	return s.writer.runExclusive(ctx, func(db *sql.DB) error {
		if err := s.schema.Migrate(ctx, db); err != nil {
			return err
		}
		return setStatistics(ctx, db)
	})
}

// CheckUsable implements sqldb.Engine.
func (e engine) CheckUsable() error { return e.schema.CheckUsable() }

// Ping implements store.Store.
func (s *Store) Ping(ctx context.Context) error { return s.schema.Check(ctx, s.read) }

// Close implements store.Store.
func (s *Store) Close() error {
	s.hub.Close()
	s.checkpointer.stop()
	return errors.Join(s.writer.close(), s.reader.close(), s.read.Close(), s.checkpointer.db.Close())
}
