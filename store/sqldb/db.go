// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// Queryer runs statements. *sql.DB, *sql.Tx and *sql.Conn implement it.
type Queryer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Engine has the parts of a database that all concerns need.
type Engine interface {
	// CheckUsable returns an error if the last Ping found a schema that this release must not change.
	CheckUsable() error
	// Write runs fn in one transaction; nil means that it is durable. If the database rolls back
	// because of another transaction, fn runs again.
	Write(ctx context.Context, fn func(ctx context.Context, q Queryer) error) error
	// Single runs fn, which is one statement, or several that form a transaction of their own; nil
	// means that it is durable.
	Single(ctx context.Context, fn func(ctx context.Context, q Queryer) error) error
	// Snapshot runs fn, which only reads, on one snapshot of the database.
	Snapshot(ctx context.Context, fn func(ctx context.Context, q Queryer) error) error
	// Reader runs single statements that only read.
	Reader() Queryer
	// Lists runs list statements, each planned for its arguments.
	Lists() Queryer
	// Keys returns a parenthesized source with two columns for these keys. Its arguments begin at
	// $first.
	Keys(keys []store.Key, first int) (source string, args []any)
	// Lock serializes transactions that lock the same key.
	Lock(ctx context.Context, q Queryer, key uuid.UUID) error
	// TryLock is Lock, but returns false if another transaction keeps the lock for this time. Then
	// the transaction must be rolled back.
	TryLock(ctx context.Context, q Queryer, key uuid.UUID, within time.Duration) (bool, error)
	// Part returns the name of the partition of a history table that holds an ID.
	Part(table string, id uuid.UUID) string
	// HasPart reports whether the partition exists. A transaction checks that before it reads one
	// that may be deleted.
	HasPart(ctx context.Context, q Queryer, table string, id uuid.UUID) (bool, error)
	// ProjectDays returns the days on which a project may have rows in a history table, newest
	// first, including the days of open runs, which end there. parted is as in Days.
	ProjectDays(ctx context.Context, q Queryer, table string, project uuid.UUID) (days []int64, parted bool, err error)
	// Days returns the days with partitions of a history table, newest first; parted is false if
	// history has no partitions.
	Days(ctx context.Context, table string) (days []int64, parted bool, err error)
	// Among returns the condition, after an ID, that a column of ID lists contains it.
	Among(column string) string
	// FirstElement returns the first ID of a column of ID lists, as an index of the schema has it.
	FirstElement(column string) string
}

// Dialect is the SQL that differs between databases.
type Dialect struct {
	// Bytewise is the suffix that compares a text bytewise, as in the indexes: COLLATE "C", or
	// nothing if that is the default.
	Bytewise string
	// OneAsRange means that an equality condition on a column must be written as a range to get
	// rows in the order of the column and the IDs. With an equality, one planner may choose an
	// index on IDs alone, which has rows of all values. The other planner needs the equality to
	// find rows between two IDs.
	OneAsRange bool
	// SkipLocked is the suffix of a SELECT for rows that the transaction will change. It skips rows
	// that another transaction is changing: "FOR UPDATE SKIP LOCKED", or nothing with a single
	// writer.
	SkipLocked string
	// Share is the suffix of a SELECT of the lease that must not change hands during the
	// transaction. Exclusive is the suffix before a change. Both are empty with a single writer.
	// Renewing conflicts with neither, because a steady stream of shared locks would block it.
	Share, Exclusive string
	// Address is the engine's column with the address of a row.
	Address string
	// BadData reports whether a statement failed because of its data.
	BadData func(err error) bool
	// NoTable reports whether a statement failed because a table is missing.
	NoTable func(err error) bool
}

// DB is the database of a store, for all of its concerns.
type DB struct {
	Engine
	Dialect
	// Publish sends the hints of a committed transaction.
	Publish func(hints []store.Hint)
	// cluster must have the lease for writes; "" asserts nothing.
	cluster string
}

// ForCluster returns a DB whose transactions fail unless a cluster has the lease.
func (d *DB) ForCluster(clusterUID string) *DB {
	of := *d
	of.cluster = clusterUID
	return &of
}

// Write runs fn in a transaction and publishes its hints after the commit.
func (d *DB) Write(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	return d.run(ctx, d.Engine.Write, false, func(ctx context.Context, tx *Tx) error {
		if err := d.assertLease(ctx, tx); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

// Exec executes one statement in a transaction of Write and returns the number of changed rows.
func (d *DB) Exec(ctx context.Context, statement string, args ...any) (n int64, err error) {
	err = d.Write(ctx, func(ctx context.Context, tx *Tx) (err error) {
		n, err = tx.Exec(ctx, statement, args...)
		return err
	})
	return n, err
}

// WriteSingle runs fn, which is one statement of the engine, and publishes its hints after the commit.
// It asserts no lease, because gateways use it.
func (d *DB) WriteSingle(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	return d.run(ctx, d.Engine.Single, true, fn)
}

// run runs fn in a transaction and publishes its hints after the commit.
func (d *DB) run(
	ctx context.Context, transaction func(context.Context, func(context.Context, Queryer) error) error, single bool,
	fn func(ctx context.Context, tx *Tx) error,
) error {
	if err := d.CheckUsable(); err != nil {
		return err
	}
	var tx *Tx
	err := transaction(ctx, func(ctx context.Context, q Queryer) error {
		tx = &Tx{Queryer: q, Exclusive: d.Exclusive, Single: single}
		return fn(ctx, tx)
	})
	if err == nil && len(tx.Hints) > 0 {
		d.Publish(tx.Hints)
	}
	return err
}

// IsDataError reports whether the data of the rows caused the error.
func (d *DB) IsDataError(err error) bool {
	return d.BadData(err) || errors.Is(err, ErrUnreadable)
}

// CanWrite reports whether the store can write now.
func (d *DB) CanWrite(ctx context.Context) bool {
	if errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ReadTimeout)
	defer cancel()
	return errors.Is(d.Write(ctx, func(ctx context.Context, tx *Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM departed WHERE project_id = $1`, uuid.Nil)
		return cmp.Or(err, ErrTrial)
	}), ErrTrial)
}

// ReadTimeout limits trials and other calls after a failed one, and reading the contents of claimed deliveries.
const ReadTimeout = 10 * time.Second

// ErrTrial rolls back a trial.
var ErrTrial = errors.New("for trial")

// Now implements store.Housekeeping.
func (d *DB) Now(ctx context.Context) (time.Time, error) { return ReadNow(ctx, d.Reader()) }

// ReadNow returns the database's time.
func ReadNow(ctx context.Context, q Queryer) (now time.Time, err error) {
	err = q.QueryRowContext(ctx, `SELECT now_us()`).Scan(ScanTime(&now))
	return now, Wrap(err, "reading the store's clock")
}
