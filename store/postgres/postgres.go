// SPDX-License-Identifier: Apache-2.0

// Package postgres is the store on PostgreSQL. Any number of processes share it.
//
// The work for every webhook is three statements: Accept, starting the runs that a Claim has chosen,
// and Complete. Accept and Complete are one statement per batch, which is a transaction. Claims of
// several environments that start runs together share a round trip and a transaction: at most 32 of
// them, and one batch at a time per process. Hints use LISTEN/NOTIFY on connections of their own.
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
	"strconv"
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
	"github.com/agentplatform/agentplatform/store/hint"
	"github.com/agentplatform/agentplatform/store/schema"
	"github.com/agentplatform/agentplatform/store/sqlcore"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// DefaultConnections is the default maximum of connections of a store, MinConnections the
	// lowest and MaxConnections the highest allowed maximum.
	DefaultConnections = 26
	MinConnections     = 8
	MaxConnections     = 1000
	// hintConnections carry hints, one for each direction.
	hintConnections = 2
	// minListConnections is the minimum number of connections for lists, minShortConnections for short
	// statements, if there are enough for both.
	minListConnections, minShortConnections = 4, 4
	// maxAttempts is the number of attempts for a transaction that PostgreSQL rolls back because of another
	// one.
	maxAttempts = 5
)

// Options configure a store.
type Options struct {
	// DSN is a URL or a keyword string for pgx or libpq. It leads to the server, or to a pooler in
	// session mode.
	DSN string
	// Reread, unless nil, returns the current DSN before each new connection, because passwords and
	// addresses change. Open connections are kept for at most an hour.
	Reread func() (string, error)
	// Connections is the maximum number of connections, between MinConnections and MaxConnections;
	// 0 means DefaultConnections. Migrating takes one more.
	Connections int32
	// Logger logs errors that no caller receives; slog.Default() if nil.
	Logger *slog.Logger
	// Evaluate evaluates the concurrency keys of runs that were accepted without a live deployment;
	// nil if no runs are claimed.
	Evaluate store.Evaluator
	// tune changes how tests connect.
	tune func(config *pgx.ConnConfig)
	// withTimeout limits operations that no caller waits for; context.WithTimeout if nil.
	withTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)
}

// CheckConnections returns why Options.Connections cannot have this value.
func CheckConnections(most int32) error {
	if most != 0 && (most < MinConnections || most > MaxConnections) {
		return fmt.Errorf("%d connections to PostgreSQL per process: choose %d to %d", most, MinConnections, MaxConnections)
	}
	return nil
}

// poolSizes returns the sizes of the pool and of the pool for lists. A third of the connections without hints
// is for lists: at least minListConnections, so that several projects read at once, if minShortConnections are
// left. For a facade with ten connections, which mostly reads lists, that is half. A
// gateway with many connections mostly runs short statements.
func (o Options) poolSizes() (most, lists int32) {
	rest := cmp.Or(o.Connections, DefaultConnections) - hintConnections
	lists = max(rest/3, min(minListConnections, rest-minShortConnections))
	return rest - lists, lists
}

// Connections implements store.Store.
func (s *Store) Connections() int { return int(s.pools[0].Config().MaxConns) }

// Store is a store.Store on PostgreSQL.
type Store struct {
	*sqlcore.Core
	hub      hint.Hub
	pools    [2]*pgxpool.Pool
	db       *sql.DB // on the first pool
	lists    *sql.DB // on the second pool, whose statements are planned for their arguments
	notifier *notifier
	starts   startQueue
	// renew updates the configuration of a new connection.
	renew    func(ctx context.Context, config *pgx.ConnConfig) error
	sessions *sessions
	schema   *schema.Schema
}

var _ store.Store = (*Store)(nil)

// Open returns a store that connects on first use, and again after a lost connection. Migrate
// creates its tables.
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
	schema, err := schema.New(migrations, database.DialectPostgres, noTable)
	if err != nil {
		return nil, err
	}
	most, forLists := o.poolSizes()
	config, err := pgxpool.ParseConfig(o.DSN)
	if err != nil {
		return nil, fmt.Errorf("reading the DSN: %w", err)
	}
	if config.ConnConfig.ValidateConnect == nil && slices.ContainsFunc(config.ConnConfig.Fallbacks, func(of *pgconn.FallbackConfig) bool {
		return of.Host != config.ConnConfig.Host || of.Port != config.ConnConfig.Port
	}) {
		config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary // the DSN may name a replica first
	}
	config.BeforeConnect = o.refreshConfig
	config.ConnConfig.DialFunc = dial
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, connectTimeout)
	of := &sessions{withTimeout: o.withTimeout}
	pool, err := newPool(ctx, config.Copy(), most, "force_generic_plan", of, o.tune)
	if err != nil {
		return nil, err
	}
	lists, err := newPool(ctx, config.Copy(), forLists, "force_custom_plan", of, o.tune)
	if err != nil {
		return nil, err
	}
	s := &Store{
		pools: [2]*pgxpool.Pool{pool, lists}, db: stdlib.OpenDBFromPool(pool), lists: stdlib.OpenDBFromPool(lists), renew: o.refreshConfig, sessions: of, schema: schema,
	}
	s.notifier = startNotifier(config.ConnConfig.Copy(), &s.hub, o)
	s.Core = sqlcore.New(sqlcore.Options{
		Engine: engine{s}, Publish: s.publish, AtOnce: 100, Evaluate: o.Evaluate, ListsAtOnce: int(forLists),
		Dialect: sqldb.Dialect{
			Bytewise: ` COLLATE "C"`, OneAsRange: true, SkipLocked: "FOR UPDATE SKIP LOCKED", Share: "FOR KEY SHARE",
			Exclusive: "FOR UPDATE", Address: "ctid", BadData: badData, NoTable: noTable,
		},
	})
	return s, nil
}

// newPool returns a pool with one plan mode. Generic plans suit statements that find few
// rows by an index, for which planning costs as much as running. Custom plans suit statements whose
// arguments exclude partitions. PostgreSQL's own choice depends on its guess of list lengths.
func newPool(
	ctx context.Context, config *pgxpool.Config, most int32, planMode string, of *sessions, tune func(*pgx.ConnConfig),
) (*pgxpool.Pool, error) {
	config.MaxConns = most
	parameters := config.ConnConfig.RuntimeParams
	parameters[planCacheMode] = planMode
	if tune != nil {
		tune(config.ConnConfig)
	}
	planMode = parameters[planCacheMode]
	delete(parameters, planCacheMode) // a pooler rejects unknown parameters
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		ctx, cancel := of.withTimeout(ctx, connectTimeout) // the pool opens connections without a caller
		defer cancel()
		sendIDs(conn)
		return of.prepareSession(ctx, conn, planMode)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("creating a pool: %w", err)
	}
	return pool, nil
}

// Timeouts for connections to a server that no longer responds.
const (
	connectTimeout = 10 * time.Second
	// ackTimeout is the maximum time until the server's kernel acknowledges sent data.
	ackTimeout = 20 * time.Second
)

// dial connects with settings that detect a dead server within half a minute, whether or not a
// query is running.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := &net.Dialer{
		Timeout:         connectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	if strings.HasPrefix(network, "tcp") {
		dialer.Control = setUserTimeout
	}
	return dialer.DialContext(ctx, network, addr)
}

// refreshConfig sets the configuration of a connection from the current DSN.
func (o Options) refreshConfig(_ context.Context, config *pgx.ConnConfig) error {
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

// publish sends hints, each once: to this process directly, and to other processes by the notifier.
func (s *Store) publish(hints []store.Hint) {
	hints = s.hub.WorthSending(hints)
	s.hub.Publish(hints)
	s.notifier.queueHints(hints)
}

// engine implements sqlcore.Engine for PostgreSQL.
type engine struct{ *Store }

// CheckUsable implements sqldb.Engine.
func (e engine) CheckUsable() error { return e.schema.CheckUsable() }

// Write implements sqldb.Engine.
func (e engine) Write(ctx context.Context, fn func(ctx context.Context, q sqldb.Queryer) error) error {
	return retryConflicts(func() error {
		tx, err := e.db.BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("beginning a transaction: %w", err)
		}
		if err := fn(ctx, tx); err != nil {
			_ = tx.Rollback() // fn's error matters
			return err
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("committing: %w", err)
		}
		return nil
	})
}

// Single implements sqldb.Engine. A single statement is a transaction.
func (e engine) Single(ctx context.Context, fn func(ctx context.Context, q sqldb.Queryer) error) error {
	return retryConflicts(func() error { return fn(ctx, e.db) })
}

// retryConflicts retries work that PostgreSQL rolled back because of a deadlock or a conflict.
func retryConflicts(run func() error) (err error) {
	for range maxAttempts {
		if err = run(); !hasCode(err, serializationFailure, deadlock) {
			return err
		}
	}
	return err
}

// Snapshot implements sqldb.Engine.
func (e engine) Snapshot(ctx context.Context, fn func(ctx context.Context, q sqldb.Queryer) error) error {
	tx, err := e.lists.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return fmt.Errorf("beginning a read transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // there is nothing to lose
	return fn(ctx, tx)
}

// Reader implements sqldb.Engine.
func (e engine) Reader() sqldb.Queryer { return e.db }

// Lists implements sqldb.Engine.
func (e engine) Lists() sqldb.Queryer { return e.lists }

// Keys implements sqldb.Engine.
func (e engine) Keys(keys []store.Key, first int) (string, []any) {
	var project, id []pgtype.UUID
	for _, key := range keys {
		project, id = append(project, validUUID(key.ProjectID)), append(id, validUUID(key.ID))
	}
	return fmt.Sprintf("(SELECT * FROM unnest($%d::uuid[], $%d::uuid[]))", first, first+1), []any{project, id}
}

// Lock implements sqldb.Engine.
func (e engine) Lock(ctx context.Context, q sqldb.Queryer, key uuid.UUID) error {
	if _, err := q.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, key.String()); err != nil {
		return fmt.Errorf("waiting for the lock of %s: %w", key, err)
	}
	return nil
}

// TryLock implements sqldb.Engine.
func (e engine) TryLock(ctx context.Context, q sqldb.Queryer, key uuid.UUID, within time.Duration) (free bool, err error) {
	if within > 0 {
		return e.lockWithin(ctx, q, key, within)
	}
	if err := q.QueryRowContext(ctx, `SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))`, key.String()).Scan(&free); err != nil {
		return false, fmt.Errorf("trying the lock of %s: %w", key, err)
	}
	return free, nil
}

// lockWithin waits for a lock for a limited time.
func (e engine) lockWithin(ctx context.Context, q sqldb.Queryer, key uuid.UUID, within time.Duration) (bool, error) {
	var before string
	if err := q.QueryRowContext(ctx, `SELECT current_setting('lock_timeout')`).Scan(&before); err != nil {
		return false, fmt.Errorf("reading the lock timeout: %w", err)
	}
	set := func(value string) error {
		_, err := q.ExecContext(ctx, `SELECT set_config('lock_timeout', $1, TRUE)`, value)
		return err
	}
	if err := set(strconv.FormatInt(within.Milliseconds(), 10)); err != nil {
		return false, fmt.Errorf("setting the lock timeout: %w", err)
	}
	if err := e.Lock(ctx, q, key); hasCode(err, lockTimedOut) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return true, set(before)
}

// PostgreSQL's error codes: a transaction rolled back because of another one, or after waiting too
// long for a lock; a statement timeout; a missing table.
const (
	serializationFailure = "40001"
	deadlock             = "40P01"
	lockTimedOut         = "55P03"
	statementTimedOut    = "57014"
	undefinedTable       = "42P01"
)

// badData reports whether PostgreSQL rejected a statement because of its data: an invalid value, a
// constraint, or a limit, but not a missing partition.
func badData(err error) bool { return hasCode(err, "22", "23", "54") && !noPartition(err) }

// hasCode reports whether an error is PostgreSQL's with one of these codes or classes.
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

// Migrate implements store.Store. Concurrent processes migrate one after the other. A change waits
// for a lock for at most lockTimeout, because other statements wait behind it. The caller retries.
func (s *Store) Migrate(ctx context.Context) error {
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return fmt.Errorf("creating the migration lock: %w", err)
	}
	config := s.pools[0].Config().ConnConfig
	if err := s.renew(ctx, config); err != nil {
		return err
	}
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		if err := s.sessions.checkShared(ctx, conn); err != nil {
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
	// Statements that were prepared before the migration may be invalid.
	for _, pool := range s.pools {
		pool.Reset()
	}
	_, err = s.EnsurePartitions(ctx, initialDaysAhead)
	return err
}

// errReadOnly means that the server accepts no writes.
var errReadOnly = errors.New("PostgreSQL takes no writes here: the server is a replica, or its transactions are read-only; " +
	"name the primary in the DSN, or set default_transaction_read_only=off")

// Ping implements store.Store. If the server accepts no writes, it closes the connections, because
// another server may be the primary now.
func (s *Store) Ping(ctx context.Context) error {
	var readOnly bool
	if err := s.db.QueryRowContext(ctx, `SELECT current_setting('transaction_read_only')::boolean`).Scan(&readOnly); err != nil {
		return fmt.Errorf("checking if the server accepts writes: %w", err)
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
