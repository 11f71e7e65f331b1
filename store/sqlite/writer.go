// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/agentplatform/agentplatform/store/sqldb"
)

const (
	// groupLimit is the maximum number of operations per transaction.
	groupLimit = 256
	// queueLimit is the number of waiting operations above which callers block.
	queueLimit = 1024
)

var errClosed = errors.New("the store is closed")

// operation is a waiting write.
type operation struct {
	ctx context.Context //nolint:containedctx // of the caller, passed to the writer's goroutine
	run func(ctx context.Context, q sqldb.Queryer) error
	// Instead of run, without a transaction: with a new connection, or with the writer's.
	alone   func(db *sql.DB) error
	between func(ctx context.Context, conn *sql.Conn) error
	answer  chan error
}

// writer owns the only connection that writes.
type writer struct {
	db     *sql.DB
	logger *slog.Logger
	queue  chan *operation
	stop   chan struct{}
	once   sync.Once
	done   chan struct{}
	raw    *sql.Conn
	conn   *statements // of raw
	// prepare runs before each transaction. If it fails, the transaction does not begin.
	prepare func(ctx context.Context) error

	// written has a token after a write.
	written chan struct{}
}

func openWriter(ctx context.Context, db *sql.DB, logger *slog.Logger) (*writer, error) {
	db.SetMaxOpenConns(1)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	w := &writer{
		db: db, logger: logger,
		queue: make(chan *operation, queueLimit), stop: make(chan struct{}), done: make(chan struct{}),
		written: make(chan struct{}, 1),
		prepare: func(context.Context) error { return nil },
	}
	go w.runLoop()
	return w, nil
}

// runOperation runs fn in a transaction and returns after the commit. Once fn has begun, the context does not
// stop it, because SQLite would roll back the other operations too.
func (w *writer) runOperation(ctx context.Context, fn func(ctx context.Context, q sqldb.Queryer) error) error {
	return w.submitOperation(&operation{ctx: ctx, run: fn, answer: make(chan error, 1)})
}

// runExclusive runs fn while no transaction is open.
func (w *writer) runExclusive(ctx context.Context, fn func(db *sql.DB) error) error {
	return w.submitOperation(&operation{ctx: ctx, alone: fn, answer: make(chan error, 1)})
}

// between runs fn with the writer's connection between two transactions.
func (w *writer) between(ctx context.Context, fn func(ctx context.Context, conn *sql.Conn) error) error {
	return w.submitOperation(&operation{ctx: ctx, between: fn, answer: make(chan error, 1)})
}

func (w *writer) submitOperation(op *operation) error {
	select {
	case w.queue <- op:
	case <-op.ctx.Done():
		return op.ctx.Err()
	case <-w.stop:
		return errClosed
	}
	select {
	case err := <-op.answer:
		return err
	case <-w.done:
	}
	select { // the result may have come just before the end
	case err := <-op.answer:
		return err
	default:
		return errClosed
	}
}

func (w *writer) close() error {
	w.once.Do(func() { close(w.stop) })
	<-w.done
	return w.db.Close()
}

func (w *writer) runLoop() {
	defer close(w.done)
	for {
		select {
		case op := <-w.queue:
			w.serveOperation(op)
		case <-w.stop:
			w.disconnect()
			return
		}
	}
}

// serveOperation runs an operation, together with waiting ones.
func (w *writer) serveOperation(op *operation) {
	switch {
	case op.ctx.Err() != nil:
		op.answer <- op.ctx.Err()
	case op.alone != nil:
		err := w.prepare(context.WithoutCancel(op.ctx))
		if err == nil {
			w.disconnect() // the pool has one connection only
			err = op.alone(w.db)
		}
		op.answer <- err
	case op.between != nil:
		err := w.connect(op.ctx)
		if err == nil {
			err = op.between(context.WithoutCancel(op.ctx), w.raw)
		}
		op.answer <- err
	default:
		w.runGroup(op)
	}
}

// runGroup runs operations in one transaction until none waits, and returns their results after the
// commit.
func (w *writer) runGroup(op *operation) {
	ctx := context.Background()
	err := w.prepare(ctx)
	if err == nil {
		err = w.connect(ctx)
	}
	if err != nil {
		op.answer <- err
		return
	}
	if _, err := w.conn.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		w.disconnect()
		op.answer <- fmt.Errorf("beginning a transaction: %w", err)
		return
	}
	// The first needs no savepoint, because there is nothing before it to keep.
	if err := op.run(context.WithoutCancel(op.ctx), w.conn); err != nil {
		w.rollback(ctx)
		op.answer <- err
		return
	}
	members := []*operation{op}
	var next *operation // an operation that must wait for the end of the group
	for next == nil && len(members) < groupLimit {
		var ok bool
		if next, ok = w.joinGroup(ctx, &members); !ok {
			return
		}
		if next == nil && len(w.queue) == 0 {
			break
		}
	}
	if _, err = w.conn.ExecContext(ctx, `COMMIT`); err != nil {
		err = fmt.Errorf("committing: %w", err)
		w.rollback(ctx)
	}
	answerAll(members, err)
	select {
	case w.written <- struct{}{}:
	default:
	}
	if next != nil {
		w.serveOperation(next)
	}
}

// joinGroup adds a waiting operation to the transaction. It returns an operation that cannot be added,
// and false if the transaction is lost.
func (w *writer) joinGroup(ctx context.Context, members *[]*operation) (next *operation, ok bool) {
	var op *operation
	select {
	case op = <-w.queue:
	default:
		return nil, true
	}
	if op.alone != nil || op.between != nil {
		return op, true
	}
	if err := op.ctx.Err(); err != nil {
		op.answer <- err
		return nil, true
	}
	_, err := w.conn.ExecContext(ctx, `SAVEPOINT op`)
	if err == nil {
		if refused := op.run(context.WithoutCancel(op.ctx), w.conn); refused != nil {
			_, err = w.conn.ExecContext(ctx, `ROLLBACK TO op`)
			op.answer <- refused
		} else {
			*members = append(*members, op)
		}
	} else {
		op.answer <- err
	}
	if err == nil {
		_, err = w.conn.ExecContext(ctx, `RELEASE op`)
	}
	if err != nil { // SQLite has rolled back all of it, for example because the disk is full
		w.rollback(ctx)
		answerAll(*members, fmt.Errorf("the shared transaction was lost: %w", err))
		return nil, false
	}
	return nil, true
}

func answerAll(members []*operation, err error) {
	for _, op := range members {
		op.answer <- err
	}
}

// rollback ends the transaction. If that fails, it closes the connection, and the transaction with
// it.
func (w *writer) rollback(ctx context.Context) {
	if _, err := w.conn.ExecContext(ctx, `ROLLBACK`); err != nil {
		w.logger.Warn("rolling back failed, reconnecting", "error", err)
		w.disconnect()
	}
}

func (w *writer) connect(ctx context.Context) error {
	if w.conn != nil {
		return nil
	}
	conn, err := w.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	w.raw, w.conn = conn, newStatements(conn)
	return nil
}

// disconnect closes the connection, so that no transaction survives.
func (w *writer) disconnect() {
	if w.conn == nil {
		return
	}
	err := w.conn.close()
	if dropped := w.raw.Raw(func(any) error { return driver.ErrBadConn }); !errors.Is(dropped, driver.ErrBadConn) {
		err = errors.Join(err, dropped)
	}
	if err != nil {
		w.logger.Warn("closing the connection of the writer", "error", err)
	}
	w.raw, w.conn = nil, nil
}
