// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

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
	// Snapshot runs fn, which only reads, on one state of the database.
	Snapshot(ctx context.Context, fn func(ctx context.Context, q Queryer) error) error
	// Reader runs single statements that only read.
	Reader() Queryer
	// Lock makes transactions that name the same key take turns.
	Lock(ctx context.Context, q Queryer, key uuid.UUID) error
}

// Options are the parts of a Core.
type Options struct {
	Engine Engine
	// Publish takes the hints of a transaction that was committed.
	Publish func(hints []store.Hint)
	// SkipLocked ends a SELECT whose rows the transaction is about to change,
	// passing over those that another one is changing: "FOR UPDATE SKIP LOCKED",
	// or nothing where there is one writer.
	SkipLocked string
	// Share ends a SELECT of the lease that must not change hands until the
	// transaction ends, Exclusive one that comes before it does; both are nothing
	// where there is one writer. Renewing conflicts with neither: those who share
	// would keep it from its turn for as long as there is one of them.
	Share, Exclusive string
	// NoTable says whether a statement failed for want of a table.
	NoTable func(err error) bool
}

// Core is a store but for Accept, Claim, Complete, Subscribe and its own life.
type Core struct {
	engine  Engine
	publish func([]store.Hint)
	// skipLocked, share and exclusive are as in Options.
	skipLocked, share, exclusive string
	noTable                      func(error) bool
	// cluster is the one that must have the lease for anything to be written; ""
	// asserts nothing.
	cluster string
}

// New makes a Core.
func New(o Options) *Core {
	return &Core{
		engine: o.Engine, publish: o.Publish, skipLocked: o.SkipLocked, share: o.Share, exclusive: o.Exclusive, noTable: o.NoTable,
	}
}

// Tx is a transaction that collects hints for after its commit.
type Tx struct {
	Queryer
	hints []store.Hint
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
		tx = &Tx{Queryer: q}
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

// keys is a condition on a column with ids, and on project_id beside it, that
// holds for the rows of these keys; for none without keys.
func (l *list) keys(column string, keys []store.Key) string {
	if len(keys) == 0 {
		return "FALSE"
	}
	qualifier, _, qualified := strings.Cut(column, ".")
	project := "project_id"
	if qualified {
		project = qualifier + ".project_id"
	}
	of := map[uuid.UUID][]uuid.UUID{}
	for _, key := range keys {
		of[key.ProjectID] = append(of[key.ProjectID], key.ID)
	}
	var parts []string
	for _, id := range slices.SortedFunc(maps.Keys(of), compareIDs) {
		parts = append(parts, project+" = "+l.add(id)+" AND "+column+" IN "+l.ids(of[id]))
	}
	return "(" + strings.Join(parts, " OR ") + ")"
}

// leases is a condition on runs that holds for those that run under these leases.
func (l *list) leases(leases []store.Lease) string {
	parts := make([]string, len(leases))
	for i, lease := range leases {
		parts[i] = "project_id = " + l.add(lease.Run.ProjectID) + " AND id = " + l.add(lease.Run.ID) +
			" AND fencing_token = " + l.add(lease.Token)
	}
	return "(" + strings.Join(parts, " OR ") + ")"
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

func compareKeys(a, b store.Key) int {
	return cmp.Or(compareIDs(a.ProjectID, b.ProjectID), compareIDs(a.ID, b.ID))
}

// ids is an IN list.
func (l *list) ids(ids []uuid.UUID) string {
	marks := make([]string, len(ids))
	for i, id := range ids {
		marks[i] = l.add(id)
	}
	return "(" + strings.Join(marks, ", ") + ")"
}
