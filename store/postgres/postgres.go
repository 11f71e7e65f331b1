// SPDX-License-Identifier: Apache-2.0

// Package postgres is the store on PostgreSQL: any number of processes share it.
//
// What is done for every webhook is one statement: Accept, starting what a Claim has
// looked for and decided on, Complete. That of Accept and of Complete is for a whole batch,
// and a transaction by itself. Claims of several environments that start runs at the same
// moment share a round trip and a transaction: at most 32 of them, and one batch at a time
// a process. Hints travel by LISTEN/NOTIFY on connections of their own.
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlcore"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// DefaultConnections is how many connections a store takes at most, MinConnections
	// the fewest that it works with, MaxConnections the most that it can be given.
	DefaultConnections = 26
	MinConnections     = 8
	MaxConnections     = 1000
	// hintConnections are those of them that carry hints, one each way.
	hintConnections = 2
	// fewLists is how many read lists, and fewShort how many run short statements, where there
	// are so many for both.
	fewLists, fewShort = 4, 4
	// attempts is how often a transaction runs that PostgreSQL rolls back for
	// another's sake.
	attempts = 5
)

// Options say where the database is.
type Options struct {
	// DSN is a URL or a keyword string as pgx and libpq understand it. It leads to the
	// server itself, or to a pooler that leaves each connection its session.
	DSN string
	// Reread, unless nil, says the DSN anew before each connection: passwords and
	// addresses change while a process runs. What is open stays so, for an hour at
	// most.
	Reread func() (string, error)
	// Connections is how many connections the store takes at most, between MinConnections
	// and MaxConnections; 0 means DefaultConnections. Migrating takes one more.
	Connections int32
	// Logger takes what nobody can be answered; slog.Default() when nil.
	Logger *slog.Logger
	// Evaluate tells the concurrency keys of runs that were accepted before a
	// deployment was live; nil where no runs are claimed.
	Evaluate store.Evaluator
	// tune changes how tests connect.
	tune func(config *pgx.ConnConfig)
	// withTimeout bounds what nobody waits for who would; context.WithTimeout when nil.
	withTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)
}

// CheckConnections says why Options.Connections cannot be so many.
func CheckConnections(most int32) error {
	if most != 0 && (most < MinConnections || most > MaxConnections) {
		return fmt.Errorf("%d connections to PostgreSQL for a process: choose from %d to %d", most, MinConnections, MaxConnections)
	}
	return nil
}

// pools are the sizes of the pool and of that of lists: a third of what carries no hints reads lists,
// but fewLists at least, which are enough for projects to have parts of them, as soon as fewShort are
// left. Of the ten that a facade is given, which is asked for lists more than for anything else, that
// is half of the rest; a process with many, as a gateway, runs short statements above all.
func (o Options) pools() (most, lists int32) {
	rest := cmp.Or(o.Connections, DefaultConnections) - hintConnections
	lists = max(rest/3, min(fewLists, rest-fewShort))
	return rest - lists, lists
}

// Connections implements store.Store.
func (s *Store) Connections() int { return int(s.pools[0].Config().MaxConns) }

// Store is a store.Store on PostgreSQL.
type Store struct {
	*sqlcore.Core
	hub      sqlcore.Hub
	pools    [2]*pgxpool.Pool
	db       *sql.DB // on the first
	lists    *sql.DB // on the second, whose statements are planned for their arguments
	notifier *notifier
	starts   starts
	// renew is Options'.
	renew    func(ctx context.Context, config *pgx.ConnConfig) error
	sessions *sessions
	schema   *sqlcore.Schema
}

var _ store.Store = (*Store)(nil)

// Open makes a store that connects as soon as it is used, and again whenever that is
// lost; Migrate makes its tables.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.withTimeout == nil {
		o.withTimeout = context.WithTimeout
	}
	if err := CheckConnections(o.Connections); err != nil {
		return nil, err
	}
	noTable := func(err error) bool { return hasCode(err, undefinedTable) }
	schema, err := sqlcore.NewSchema(migrations, database.DialectPostgres, noTable)
	if err != nil {
		return nil, err
	}
	most, forLists := o.pools()
	config, err := pgxpool.ParseConfig(o.DSN)
	if err != nil {
		return nil, fmt.Errorf("reading the DSN: %w", err)
	}
	if config.ConnConfig.ValidateConnect == nil && slices.ContainsFunc(config.ConnConfig.Fallbacks, func(of *pgconn.FallbackConfig) bool {
		return of.Host != config.ConnConfig.Host || of.Port != config.ConnConfig.Port
	}) {
		config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary // else a replica that comes first is refused each time
	}
	config.BeforeConnect = o.renew
	config.ConnConfig.DialFunc = dial
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, connectTimeout)
	of := &sessions{withTimeout: o.withTimeout}
	pool, err := connections(ctx, config.Copy(), most, "force_generic_plan", of, o.tune)
	if err != nil {
		return nil, err
	}
	lists, err := connections(ctx, config.Copy(), forLists, "force_custom_plan", of, o.tune)
	if err != nil {
		return nil, err
	}
	s := &Store{
		pools: [2]*pgxpool.Pool{pool, lists}, db: stdlib.OpenDBFromPool(pool), lists: stdlib.OpenDBFromPool(lists), renew: o.renew, sessions: of, schema: schema,
	}
	s.notifier = startNotifier(config.ConnConfig.Copy(), &s.hub, o)
	s.Core = sqlcore.New(sqlcore.Options{
		Engine: engine{s}, Bytewise: ` COLLATE "C"`, OneAsRange: true, AtOnce: 100, SkipLocked: "FOR UPDATE SKIP LOCKED", Share: "FOR KEY SHARE",
		Exclusive: "FOR UPDATE", Address: "ctid", Publish: s.publish, BadData: badData, NoTable: noTable,
		Evaluate: o.Evaluate, ListsAtOnce: int(forLists),
	})
	return s, nil
}

// connections makes a pool whose statements are planned in one way: once for all
// arguments where each finds few rows by an index, which planning again would cost as
// much as running it, or for its arguments each time where these say which partitions
// of history need not even be opened. PostgreSQL's own choice between them goes by what
// it guesses of the lengths of lists.
func connections(
	ctx context.Context, config *pgxpool.Config, most int32, planMode string, of *sessions, tune func(*pgx.ConnConfig),
) (*pgxpool.Pool, error) {
	config.MaxConns = most
	parameters := config.ConnConfig.RuntimeParams
	parameters[planCacheMode] = planMode
	if tune != nil {
		tune(config.ConnConfig)
	}
	planMode = parameters[planCacheMode]
	delete(parameters, planCacheMode) // a pooler refuses what it does not know
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		ctx, cancel := of.withTimeout(ctx, connectTimeout) // the pool makes connections for nobody in particular
		defer cancel()
		sendIDs(conn)
		return of.begin(ctx, conn, planMode)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("making a pool: %w", err)
	}
	return pool, nil
}

// Times after which a connection counts as gone whose server says nothing any more.
const (
	connectTimeout = 10 * time.Second
	// unacknowledged is how long what was sent may stay without an answer of the
	// server's kernel.
	unacknowledged = 20 * time.Second
)

// dial connects so that a server that has gone without a word is noticed within half
// a minute, whether something was asked of it or not.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := &net.Dialer{
		Timeout:         connectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	if strings.HasPrefix(network, "tcp") {
		dialer.Control = giveUp
	}
	return dialer.DialContext(ctx, network, addr)
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

// publish hands hints out, each once, here at once and to the other processes by the notifier.
func (s *Store) publish(hints []store.Hint) {
	hints = sqlcore.Distinct(hints)
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

// Single implements sqlcore.Engine: a statement alone is a transaction.
func (e engine) Single(ctx context.Context, fn func(ctx context.Context, q sqlcore.Queryer) error) error {
	return again(func() error { return fn(ctx, e.db) })
}

// again repeats what PostgreSQL rolled back because of a deadlock or a conflict.
func again(run func() error) (err error) {
	for range attempts {
		if err = run(); !hasCode(err, serializationFailure, deadlock) {
			return err
		}
	}
	return err
}

// Snapshot implements sqlcore.Engine.
func (e engine) Snapshot(ctx context.Context, fn func(ctx context.Context, q sqlcore.Queryer) error) error {
	tx, err := e.lists.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return fmt.Errorf("beginning to read: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // there is nothing to lose
	return fn(ctx, tx)
}

// Reader implements sqlcore.Engine.
func (e engine) Reader() sqlcore.Queryer { return e.db }

// Lists implements sqlcore.Engine.
func (e engine) Lists() sqlcore.Queryer { return e.lists }

// Keys implements sqlcore.Engine.
func (e engine) Keys(keys []store.Key, first int) (string, []any) {
	var project, id []pgtype.UUID
	for _, key := range keys {
		project, id = append(project, known(key.ProjectID)), append(id, known(key.ID))
	}
	return fmt.Sprintf("(SELECT * FROM unnest($%d::uuid[], $%d::uuid[]))", first, first+1), []any{project, id}
}

// Lock implements sqlcore.Engine.
func (e engine) Lock(ctx context.Context, q sqlcore.Queryer, key uuid.UUID) error {
	if _, err := q.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, key.String()); err != nil {
		return fmt.Errorf("waiting for the lock of %s: %w", key, err)
	}
	return nil
}

// TryLock implements sqlcore.Engine.
func (e engine) TryLock(ctx context.Context, q sqlcore.Queryer, key uuid.UUID) (free bool, err error) {
	if err := q.QueryRowContext(ctx, `SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))`, key.String()).Scan(&free); err != nil {
		return false, fmt.Errorf("trying the lock of %s: %w", key, err)
	}
	return free, nil
}

// PostgreSQL's codes: of a transaction that was rolled back for another's sake, or because
// it has waited for long enough, of a statement that took too long, and of one on a table that is not there.
const (
	serializationFailure = "40001"
	deadlock             = "40P01"
	lockTimedOut         = "55P03"
	statementTimedOut    = "57014"
	undefinedTable       = "42P01"
)

// badData says whether PostgreSQL refused a statement for the data in it: a value it
// cannot hold, a constraint, a limit of its own; not for want of a partition.
func badData(err error) bool { return hasCode(err, "22", "23", "54") && !noPartition(err) }

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

// Migrate implements store.Store. Processes that migrate at once take turns. A change
// waits for a lock no longer than lockTimeout, for all else would wait behind it; who
// migrates tries again.
func (s *Store) Migrate(ctx context.Context) error {
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return fmt.Errorf("making the migration lock: %w", err)
	}
	config := s.pools[0].Config().ConnConfig
	if err := s.renew(ctx, config); err != nil {
		return err
	}
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		if err := s.sessions.check(ctx, conn); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, `SELECT set_config('lock_timeout', $1, FALSE), set_config('idle_in_transaction_session_timeout', $2, FALSE)`, lockTimeout, standstill)
		return err
	}))
	db.SetMaxOpenConns(1)
	defer func() { _ = db.Close() }() // nothing waits for it
	if err := s.schema.Migrate(ctx, db, goose.WithSessionLocker(locker)); err != nil {
		return err
	}
	// Statements that were prepared before the migration may not fit any more.
	for _, pool := range s.pools {
		pool.Reset()
	}
	_, err = s.EnsurePartitions(ctx, migratedAhead)
	return err
}

// errReadOnly says that the server takes no writes.
var errReadOnly = errors.New("PostgreSQL takes no writes here: the server is a replica, or its transactions are read-only; " +
	"name the primary in the DSN, or set default_transaction_read_only=off")

// Ping implements store.Store. What is connected to a server that takes no writes is
// connected anew: the primary may be another one by now.
func (s *Store) Ping(ctx context.Context) error {
	var readOnly bool
	if err := s.db.QueryRowContext(ctx, `SELECT current_setting('transaction_read_only')::boolean`).Scan(&readOnly); err != nil {
		return fmt.Errorf("asking whether the server takes writes: %w", err)
	}
	if readOnly {
		for _, pool := range s.pools {
			pool.Reset()
		}
		return errReadOnly
	}
	return s.schema.Check(ctx, s.db)
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.notifier.close()
	s.hub.Close()
	err := errors.Join(s.db.Close(), s.lists.Close())
	for _, pool := range s.pools {
		pool.Close()
	}
	return err
}
