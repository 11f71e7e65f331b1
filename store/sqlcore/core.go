// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// Engine has the parts of a store that differ between databases.
type Engine interface {
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
	// Attend records runners as present.
	Attend(ctx context.Context, q Queryer, runners []store.RunnerKey) error
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
	// DropDays drops partitions of past days before one, at most limit of them, and fewer if they
	// are large. It keeps all partitions of days on which open runs, connector runs or deliveries
	// were accepted. From the day keep on, it also keeps ended runs whose results are still to be
	// delivered. A partition that it cannot drop delays no other. ErrBusy means that another process
	// is dropping partitions, ErrRead that some stay because they are being read. An engine without partitions drops none.
	DropDays(ctx context.Context, before, keep int64, limit int) (DroppedDays, error)
	// OldestDays returns the first day with a partition that DropDays does not keep, and the first
	// open day, 0 without any; parted is false if history has no partitions.
	OldestDays(ctx context.Context) (deletable, open int64, parted bool, err error)
	// Shrink returns some free pages to the disk, if the engine does not do so itself. The
	// remaining pages wait for the next call, unless they are reused before.
	Shrink(ctx context.Context) error
	// Among returns the condition, after an ID, that a column of IDs contains it.
	Among(column string) string
	// First returns the first of a column of IDs, as an index of the schema has it.
	First(column string) string
	// End does the work of Core.end without concurrency slots and blob marks, in one statement if
	// possible. Unless keyed is set, runs with a concurrency key do not end.
	End(ctx context.Context, q Queryer, endings []Ending, keyed bool) ([]EndedRun, error)
	// Append appends consecutive entries to the journals of different runs under current claims, with the cost of their model
	// calls, in one statement if possible. It returns the runs to which it has appended: not those whose claim is not current,
	// or whose entries do not continue the journal or make it too large.
	Append(ctx context.Context, q Queryer, appends []Append) (appended []store.Key, err error)
	// Renew renews claims and revives swept ones. It returns the renewed ones.
	Renew(ctx context.Context, q Queryer, environment store.Key, held []store.Held, lease time.Duration) ([]store.Lease, error)
	// TakeDue begins attempts of due deliveries, for each destination up to its share, oldest
	// first.
	TakeDue(ctx context.Context, q Queryer, shares []Share, lease time.Duration) ([]store.Delivery, error)
	// Receive moves successful deliveries to history, with the attempt of each, and returns their
	// keys. It skips deliveries whose claims are not current.
	Receive(ctx context.Context, q Queryer, receipts []Receipt) ([]store.Key, error)
	// AddTerms adds entries to the search index and returns the runs whose rows it inserted. It
	// skips existing rows and deleted partitions.
	AddTerms(ctx context.Context, q Queryer, entries []Entry) (added []store.Key, err error)
	// WithTerms selects project_id and run_id of the runs in a partition of the index, {run_words},
	// whose entries have all of these terms, or the one. It reads at most so many entries, in no
	// order, and no row beyond them. Its arguments begin at $first.
	WithTerms(all []Term, or Term, most, first int) (statement string, args []any)
	// LookThrough selects run_id of entries w of the project $1 in a partition of the index, and
	// has: whether they have all of these terms, or the one. among selects the entries, with their
	// order and limit.
	LookThrough(among string, all []Term, or Term, first int) (statement string, args []any)
	// ByWords runs fn, which only reads, with plans for the search index, on one snapshot of the
	// database.
	ByWords(ctx context.Context, fn func(ctx context.Context, q Queryer) error) error
	// Days returns the days with partitions of a history table, newest first; parted is false if
	// history has no partitions.
	Days(ctx context.Context, table string) (days []int64, parted bool, err error)
	// ProjectDays returns the days on which a project may have rows in a history table, newest
	// first, including the days of open runs, which end there. parted is as in Days.
	ProjectDays(ctx context.Context, q Queryer, table string, project uuid.UUID) (days []int64, parted bool, err error)
	// Look reads the data for the decision of a claim. Start carries out the decision.
	Look(ctx context.Context, c store.Claim) (Look, error)
	Start(ctx context.Context, c store.Claim, s Start) (started []store.Claimed, current bool, err error)
}

// DroppedDays is the result of Engine.DropDays.
type DroppedDays struct {
	store.Dropped
	// Parted means that all rows of the days are deleted with their partitions. It is false if
	// history has no partitions.
	Parted bool
	KeptDays
	// Left are the days with partitions that should be dropped and still exist.
	Left []int64
}

// KeptDays are past days with partitions that are needed.
type KeptDays struct {
	// Open are the days with open rows. All their partitions are kept.
	Open []int64
	// Results are the days with results that are still to be delivered. Their ended runs are kept.
	Results []int64
}

var (
	// ErrBusy means that another process does the same work now.
	ErrBusy = errors.New("partition drop in progress")
	// ErrRead means that a partition stays for now because it is being read.
	ErrRead = errors.New("partition in use")
)

// Options are the parts of a Core.
type Options struct {
	Engine Engine
	// Publish sends the hints of a committed transaction.
	Publish func(hints []store.Hint)
	// Bytewise is the suffix that compares a text bytewise, as in the indexes: COLLATE "C", or
	// nothing if that is the default.
	Bytewise string
	// OneAsRange means that an equality condition on a column must be written as a range to get
	// rows in the order of the column and the IDs. With an equality, one planner may choose an
	// index on IDs alone, which has rows of all values. The other planner needs the equality to
	// find rows between two IDs.
	OneAsRange bool
	// AtOnce is the maximum number of history rows that one transaction deletes, because other
	// writers wait for it if there is only one writer. A row has at most 64 KiB, and an input
	// several times as much. Larger values are blobs.
	AtOnce int
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
	// Evaluate evaluates the concurrency keys of runs; nil if no runs are claimed that need it.
	Evaluate store.Evaluator
	// ListsAtOnce is the number of concurrent list statements. Searches use one less, so that they
	// do not block all other lists.
	ListsAtOnce int
}

// Core is a store without Accept, Subscribe and its own lifecycle.
type Core struct {
	engine  Engine
	publish func([]store.Hint)
	// bytewise, skipLocked, share and exclusive are the Options.
	bytewise, skipLocked, share, exclusive string
	address                                string
	oneAsRange                             bool
	atOnce                                 int
	badData, noTable                       func(error) bool
	evaluate                               store.Evaluator
	// cluster must have the lease for writes; "" asserts nothing.
	cluster  string
	expiring *expiryCursor
	skipped  *skippedRows
	// turns are the turns of PostDeliveries, RollUp, IndexRuns and TrimHistory.
	turns, rollingTurns, indexingTurns, traceTurns, trimming, dropping *projectCursor
	// listsAtOnce is Options.ListsAtOnce.
	listsAtOnce int
	// searches has a slot for each search that reads.
	searches chan struct{}
	// rolling and indexing are the current batch sizes of the rollup and the index.
	rolling, indexing *batchPace
	deleting          *deletionProgress
}

// New returns a Core.
func New(o Options) *Core {
	return &Core{
		engine: o.Engine, publish: o.Publish, bytewise: o.Bytewise, oneAsRange: o.OneAsRange, atOnce: o.AtOnce, skipLocked: o.SkipLocked, share: o.Share, exclusive: o.Exclusive, address: o.Address, badData: o.BadData, noTable: o.NoTable,
		evaluate: o.Evaluate, expiring: &expiryCursor{}, skipped: &skippedRows{}, deleting: &deletionProgress{},
		turns: newProjectCursor(), rollingTurns: newProjectCursor(), indexingTurns: newProjectCursor(), traceTurns: newProjectCursor(), trimming: newProjectCursor(), dropping: newProjectCursor(), rolling: &batchPace{}, indexing: &batchPace{},
		listsAtOnce: o.ListsAtOnce, searches: make(chan struct{}, max(o.ListsAtOnce-1, 1)),
	}
}

// ListsAtOnce implements store.Store.
func (c *Core) ListsAtOnce() int { return c.listsAtOnce }

// Tx is a transaction that collects hints for after its commit.
type Tx struct {
	Queryer
	hints []store.Hint
	// exclusive is Options.Exclusive.
	exclusive string
	// single means that the transaction is one statement and cannot have another.
	single bool
	// kept are the marked blobs; see Core.writeWith.
	kept []store.Key
}

// Hint records a hint for after the commit.
func (t *Tx) Hint(topic store.Topic, key store.Key) {
	t.hints = append(t.hints, store.Hint{Topic: topic, Key: key})
}

// exec runs a statement and returns the number of changed rows.
func (t *Tx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// ordinal returns the next number of the store's only sequence.
func (t *Tx) ordinal(ctx context.Context) (n int64, err error) {
	err = t.QueryRowContext(ctx, `UPDATE ordinals SET value = value + 1 WHERE id = 1 RETURNING value`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("drawing an ordinal: %w", err)
	}
	return n, nil
}

// Write runs fn in a transaction and publishes its hints after the commit.
func (c *Core) Write(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	var tx *Tx
	err := c.engine.Write(ctx, func(ctx context.Context, q Queryer) error {
		tx = &Tx{Queryer: q, exclusive: c.exclusive}
		if err := c.assertLease(ctx, tx); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
	if err == nil && len(tx.hints) > 0 {
		c.publish(tx.hints)
	}
	return err
}

// writeSingle runs fn, which is one statement of the engine, and publishes its hints after the commit.
// It asserts no lease, because gateways use it.
func (c *Core) writeSingle(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	var tx *Tx
	err := c.engine.Single(ctx, func(ctx context.Context, q Queryer) error {
		tx = &Tx{Queryer: q, exclusive: c.exclusive, single: true}
		return fn(ctx, tx)
	})
	if err == nil && len(tx.hints) > 0 {
		c.publish(tx.hints)
	}
	return err
}

// collect reads all rows of a query.
func collect[T any](ctx context.Context, q Queryer, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err returns its error
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// scanner is a *sql.Row or *sql.Rows.
type scanner interface{ Scan(dest ...any) error }

func scanKey(row scanner) (key store.Key, err error) {
	err = row.Scan(&key.ProjectID, &key.ID)
	return key, err
}

func scanUUID(row scanner) (id uuid.UUID, err error) {
	err = row.Scan(&id)
	return id, err
}

// mapNoRows maps the driver's error for a missing row to ErrNotFound.
func mapNoRows(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	return err
}

// wrap adds context to an error; nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// argList is a growing list of arguments. addArg returns the placeholder.
type argList struct{ args []any }

func (l *argList) addArg(v any) string {
	l.args = append(l.args, v)
	return "$" + strconv.Itoa(len(l.args))
}

// keyCondition returns the condition that a row has one of these keys. id is the column of its ID.
func (c *Core) keyCondition(l *argList, id string, keys []store.Key) string {
	source, args := c.engine.Keys(keys, len(l.args)+1)
	l.args = append(l.args, args...)
	project := "project_id"
	if table, _, qualified := strings.Cut(id, "."); qualified {
		project = table + "." + project
	}
	return "(" + project + ", " + id + ") IN " + source
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// addIDs returns an IN list.
func (l *argList) addIDs(ids []uuid.UUID) string {
	marks := make([]string, len(ids))
	for i, id := range ids {
		marks[i] = l.addArg(id)
	}
	return "(" + strings.Join(marks, ", ") + ")"
}
