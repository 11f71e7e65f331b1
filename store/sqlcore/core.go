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

// Queryer runs statements; *sql.DB, *sql.Tx and *sql.Conn do.
type Queryer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Engine is what a database brings.
type Engine interface {
	// Write runs fn in one transaction; nil means that it is durable. When the
	// database rolled back for another transaction's sake, fn runs again.
	Write(ctx context.Context, fn func(ctx context.Context, q Queryer) error) error
	// Single runs fn, which is one statement, or some that must be one transaction
	// with nothing else; nil means that it is durable.
	Single(ctx context.Context, fn func(ctx context.Context, q Queryer) error) error
	// Snapshot runs fn, which only reads, on one state of the database.
	Snapshot(ctx context.Context, fn func(ctx context.Context, q Queryer) error) error
	// Reader runs single statements that only read.
	Reader() Queryer
	// Lists runs lists, each planned for itself.
	Lists() Queryer
	// Keys is a parenthesised source of two columns with these keys, whose arguments
	// begin at $first.
	Keys(keys []store.Key, first int) (source string, args []any)
	// Attend says that runners are there.
	Attend(ctx context.Context, q Queryer, runners []store.RunnerKey) error
	// Lock makes transactions that name the same key take turns.
	Lock(ctx context.Context, q Queryer, key uuid.UUID) error
	// TryLock is Lock, but returns false instead of waiting for another transaction.
	TryLock(ctx context.Context, q Queryer, key uuid.UUID) (bool, error)
	// Part names the part of a table of history that holds an id.
	Part(table string, id uuid.UUID) string
	// HasPart says whether it is there, which a transaction must ask before it reads one that may
	// be gone.
	HasPart(ctx context.Context, q Queryer, table string, id uuid.UUID) (bool, error)
	// DropDays drops parts of history of days before one, which are over, at most limit of them,
	// and few where they are large. All parts stay of days on which open runs, connector runs or deliveries
	// were accepted, and of days from keep on the ended runs whose results are on their way. ErrBusy says
	// that another process drops them at present, ErrRead that some stay because they are read. An engine
	// without parts drops none.
	DropDays(ctx context.Context, before, keep int64, limit int) (DroppedDays, error)
	// OldestDay is the first day that history has a part of that does not stay so; known is false
	// where history has no parts.
	OldestDay(ctx context.Context) (day int64, known bool, err error)
	// Shrink gives some free pages back to the disk, where the engine does not do so by itself: those
	// that are left wait for the next time, if nothing is written there before.
	Shrink(ctx context.Context) error
	// Among follows an id to say that it is one of a column of ids.
	Among(column string) string
	// First is the first of a column of ids, as an index of the schema has it.
	First(column string) string
	// End does what Core.end says but for the slots of keys and the marks of blobs, in one
	// statement where it can; unless keyed is set, runs with a concurrency key do not end.
	End(ctx context.Context, q Queryer, endings []Ending, keyed bool) ([]EndedRun, error)
	// Append appends entries that follow each other to the journal of a run under a
	// current claim, with what their models' calls cost; false when the claim is not
	// current, the entries do not continue the journal or make it too large. What is
	// large of them is in blobs, which it does not mark.
	Append(ctx context.Context, q Queryer, l store.Lease, entries []store.JournalEntry, large Large) (bool, error)
	// Renew renews claims, and revives those that were swept; it returns these.
	Renew(ctx context.Context, q Queryer, environment store.Key, held []store.Held, lease time.Duration) ([]store.Lease, error)
	// TakeDue begins attempts of deliveries that are due, of each destination up to its
	// share, oldest first.
	TakeDue(ctx context.Context, q Queryer, shares []Share, lease time.Duration) ([]store.Delivery, error)
	// Receive moves deliveries that were taken to history, with the attempt of each, and
	// returns which; those whose claims are not current are left as they are.
	Receive(ctx context.Context, q Queryer, receipts []Receipt) ([]store.Key, error)
	// AddTerms adds entries to the index of runs, but for those that it has, and of whose part of
	// history there is none.
	AddTerms(ctx context.Context, q Queryer, entries []Entry) error
	// WithTerms selects project_id and run_id of the runs of those entries of a part of the index, {run_words},
	// that have all of these terms, or the one: of at most so many entries, in no order. Of those that there
	// are beyond these it reads no row. Its arguments begin at $first.
	WithTerms(all []Term, or Term, most, first int) (statement string, args []any)
	// LookThrough selects run_id of the project's, $1, entries w of a part of the index, and as has
	// whether they have all of these terms, or the one. Which of them it looks at, in order and up to a
	// number, among says.
	LookThrough(among string, all []Term, or Term, first int) (statement string, args []any)
	// ByWords runs fn, which only reads, by the index of runs, on one state of the database.
	ByWords(ctx context.Context, fn func(ctx context.Context, q Queryer) error) error
	// Days are those that a table of history has parts of, the newest first; parted is false
	// where history has no parts.
	Days(ctx context.Context, table string) (days []int64, parted bool, err error)
	// Look reads what a claim is decided by, Start carries the decision out.
	Look(ctx context.Context, c store.Claim) (Look, error)
	Start(ctx context.Context, c store.Claim, s Start) (started []store.Claimed, current bool, err error)
}

// DroppedDays is what Engine.DropDays did.
type DroppedDays struct {
	store.Dropped
	// Parted says that all other rows of the days have gone with their parts once none is left; it is
	// false where history has no parts.
	Parted bool
	// Open are the days whose parts stay because something open was accepted on them.
	Open []int64
}

var (
	// ErrBusy is of what somebody else does at present.
	ErrBusy = errors.New("somebody else is at it")
	// ErrRead is of a part of history that stays for now, for somebody reads it.
	ErrRead = errors.New("somebody reads it")
)

// Options are the parts of a Core.
type Options struct {
	Engine Engine
	// Publish takes the hints of a transaction that was committed.
	Publish func(hints []store.Hint)
	// Bytewise comes after a text to compare it byte by byte, as an index does whose texts are in that
	// order: COLLATE "C", or nothing where all are.
	Bytewise string
	// OneAsRange says that a column is to be compared with a range of one value where rows are wanted in
	// the order of it and of their ids: of equality a planner may know that the order of ids is enough,
	// which rows of all values have too; another finds rows between two ids by equality alone.
	OneAsRange bool
	// AtOnce is how many rows of history one transaction deletes at most: where there is one writer
	// others wait for it. A row has 64 KiB at most, that of an input some times as much; what is
	// larger are blobs.
	AtOnce int
	// SkipLocked ends a SELECT whose rows the transaction is about to change,
	// passing over those that another one is changing: "FOR UPDATE SKIP LOCKED",
	// or nothing where there is one writer.
	SkipLocked string
	// Share ends a SELECT of the lease that must not change hands until the
	// transaction ends, Exclusive one that comes before it does; both are nothing
	// where there is one writer. Renewing conflicts with neither: those who share
	// would keep it from its turn for as long as there is one of them.
	Share, Exclusive string
	// Address is the engine's column with the place of a row.
	Address string
	// BadData says whether a statement failed for the data that it was given.
	BadData func(err error) bool
	// NoTable says whether a statement failed for want of a table.
	NoTable func(err error) bool
	// Evaluate tells the concurrency keys of runs by their inputs; nil where no runs
	// are claimed that need it.
	Evaluate store.Evaluator
	// ListsAtOnce is how many lists are read at once: searches read one less, so that they
	// are not in the way of all others.
	ListsAtOnce int
}

// Core is a store but for Accept, Subscribe and its own life.
type Core struct {
	engine  Engine
	publish func([]store.Hint)
	// bytewise, skipLocked, share and exclusive are as in Options.
	bytewise, skipLocked, share, exclusive string
	address                                string
	oneAsRange                             bool
	atOnce                                 int
	badData, noTable                       func(error) bool
	evaluate                               store.Evaluator
	// cluster is the one that must have the lease for anything to be written; ""
	// asserts nothing.
	cluster  string
	expiring *expiring
	asides   *asides
	// turns are those of PostDeliveries, RollUp and IndexRuns.
	turns, rollingTurns, indexingTurns *turns
	// listsAtOnce is Options'.
	listsAtOnce int
	// searches has a place for each search that reads.
	searches chan struct{}
	// rolling and indexing are how fast ended runs are rolled up, and indexed.
	rolling, indexing *pace
	deleting          *deleting
}

// New makes a Core.
func New(o Options) *Core {
	return &Core{
		engine: o.Engine, publish: o.Publish, bytewise: o.Bytewise, oneAsRange: o.OneAsRange, atOnce: o.AtOnce, skipLocked: o.SkipLocked, share: o.Share, exclusive: o.Exclusive, address: o.Address, badData: o.BadData, noTable: o.NoTable,
		evaluate: o.Evaluate, expiring: &expiring{}, asides: &asides{}, deleting: &deleting{},
		turns: newTurns(), rollingTurns: newTurns(), indexingTurns: newTurns(), rolling: &pace{}, indexing: &pace{},
		listsAtOnce: o.ListsAtOnce, searches: make(chan struct{}, max(o.ListsAtOnce-1, 1)),
	}
}

// ListsAtOnce implements store.Store.
func (c *Core) ListsAtOnce() int { return c.listsAtOnce }

// Tx is a transaction that collects hints for after its commit.
type Tx struct {
	Queryer
	hints []store.Hint
	// exclusive is as in Options.
	exclusive string
	// single says that it is one statement, which no other can follow.
	single bool
	// kept are the blobs that it has marked; see Core.writeWith.
	kept []store.Key
}

// Hint remembers a hint for after the commit.
func (t *Tx) Hint(topic store.Topic, key store.Key) {
	t.hints = append(t.hints, store.Hint{Topic: topic, Key: key})
}

// exec runs a statement and returns how many rows it changed.
func (t *Tx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// ordinal draws the next number of the store's one sequence.
func (t *Tx) ordinal(ctx context.Context) (n int64, err error) {
	err = t.QueryRowContext(ctx, `UPDATE ordinals SET value = value + 1 WHERE id = 1 RETURNING value`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("drawing an ordinal: %w", err)
	}
	return n, nil
}

// Write runs fn in a transaction and publishes its hints once it is durable.
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

// single runs fn, which is one statement of the engine, and publishes its hints once
// it is durable. It asserts no lease: it is for what gateways do.
func (c *Core) single(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
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
	defer func() { _ = rows.Close() }() // its error is that of Err
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

// scanner is a row of either kind.
type scanner interface{ Scan(dest ...any) error }

func scanKey(row scanner) (key store.Key, err error) {
	err = row.Scan(&key.ProjectID, &key.ID)
	return key, err
}

func scanID(row scanner) (id uuid.UUID, err error) {
	err = row.Scan(&id)
	return id, err
}

// found turns the driver's word for "no row" into the store's.
func found(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	return err
}

// wrap adds what was being done to an error; nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// list is a growing list of arguments; add returns the placeholder.
type list struct{ args []any }

func (l *list) add(v any) string {
	l.args = append(l.args, v)
	return "$" + strconv.Itoa(len(l.args))
}

// keys is a condition on the projects and ids of rows of a table that holds for those of these
// keys; id is the column of the id.
func (c *Core) keys(l *list, id string, keys []store.Key) string {
	source, args := c.engine.Keys(keys, len(l.args)+1)
	l.args = append(l.args, args...)
	project := "project_id"
	if table, _, qualified := strings.Cut(id, "."); qualified {
		project = table + "." + project
	}
	return "(" + project + ", " + id + ") IN " + source
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// ids is an IN list.
func (l *list) ids(ids []uuid.UUID) string {
	marks := make([]string, len(ids))
	for i, id := range ids {
		marks[i] = l.add(id)
	}
	return "(" + strings.Join(marks, ", ") + ")"
}
