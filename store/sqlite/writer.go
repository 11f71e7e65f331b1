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

	"github.com/agentplatform/agentplatform/store/sqlcore"
)

const (
	// groupLimit is how many operations share a transaction at most.
	groupLimit = 256
	// queueLimit is how many operations wait before their callers do.
	queueLimit = 1024
)

var errClosed = errors.New("the store is closed")

// operation is a write that waits for its turn.
type operation struct {
	ctx context.Context //nolint:containedctx // the caller's, on its way to the writer's goroutine
	run func(ctx context.Context, q sqlcore.Queryer) error
	// Instead of run, without a transaction: by no connection of the writer's, or by that.
	alone   func(db *sql.DB) error
	between func(ctx context.Context, conn *sql.Conn) error
	answer  chan error
}

// writer owns the one connection that writes.
type writer struct {
	db     *sql.DB
	logger *slog.Logger
	queue  chan *operation
	stop   chan struct{}
	once   sync.Once
	done   chan struct{}
	raw    *sql.Conn
	conn   *statements // of raw

	// written has a token once something was written.
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
	}
	go w.loop()
	return w, nil
}

// do runs fn in a transaction and answers after its commit. Once fn is begun
// the context does not stop it: SQLite would roll back the others' work too.
func (w *writer) do(ctx context.Context, fn func(ctx context.Context, q sqlcore.Queryer) error) error {
	return w.submit(&operation{ctx: ctx, run: fn, answer: make(chan error, 1)})
}

// alone runs fn while no transaction is open.
func (w *writer) alone(ctx context.Context, fn func(db *sql.DB) error) error {
	return w.submit(&operation{ctx: ctx, alone: fn, answer: make(chan error, 1)})
}

// between runs fn by the writer's connection between two transactions.
func (w *writer) between(ctx context.Context, fn func(ctx context.Context, conn *sql.Conn) error) error {
	return w.submit(&operation{ctx: ctx, between: fn, answer: make(chan error, 1)})
}

func (w *writer) submit(op *operation) error {
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
	select { // answered just before the end?
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

func (w *writer) loop() {
	defer close(w.done)
	for {
		select {
		case op := <-w.queue:
			w.serve(op)
		case <-w.stop:
			w.disconnect()
			return
		}
	}
}

// serve runs an operation, and with it those that wait.
func (w *writer) serve(op *operation) {
	switch {
	case op.ctx.Err() != nil:
		op.answer <- op.ctx.Err()
	case op.alone != nil:
		w.disconnect() // the pool has one connection only
		op.answer <- op.alone(w.db)
	case op.between != nil:
		err := w.connect(op.ctx)
		if err == nil {
			err = op.between(context.WithoutCancel(op.ctx), w.raw)
		}
		op.answer <- err
	default:
		w.group(op)
	}
}

// group runs operations in one transaction until none waits, and answers them
// after the commit.
func (w *writer) group(op *operation) {
	ctx := context.Background()
	if err := w.connect(ctx); err != nil {
		op.answer <- err
		return
	}
	if _, err := w.conn.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		w.disconnect()
		op.answer <- fmt.Errorf("beginning a transaction: %w", err)
		return
	}
	// The first needs no savepoint: before it there is nothing to keep.
	if err := op.run(context.WithoutCancel(op.ctx), w.conn); err != nil {
		w.rollback(ctx)
		op.answer <- err
		return
	}
	members := []*operation{op}
	var next *operation // one that must wait for the end of the group
	for next == nil && len(members) < groupLimit {
		var ok bool
		if next, ok = w.join(ctx, &members); !ok {
			return
		}
		if next == nil && len(w.queue) == 0 {
			break
		}
	}
	_, err := w.conn.ExecContext(ctx, `COMMIT`)
	if err != nil {
		err = fmt.Errorf("committing: %w", err)
		w.rollback(ctx)
	}
	answer(members, err)
	select {
	case w.written <- struct{}{}:
	default:
	}
	if next != nil {
		w.serve(next)
	}
}

// join takes an operation that waits into the transaction. It returns one that
// cannot be taken, and false when the transaction is lost.
func (w *writer) join(ctx context.Context, members *[]*operation) (next *operation, ok bool) {
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
	if err != nil { // SQLite has rolled back all of it, as it does when the disk is full
		w.rollback(ctx)
		answer(*members, fmt.Errorf("the shared transaction was lost: %w", err))
		return nil, false
	}
	return nil, true
}

func answer(members []*operation, err error) {
	for _, op := range members {
		op.answer <- err
	}
}

// rollback ends the transaction; where that fails the connection goes, and the
// transaction with it.
func (w *writer) rollback(ctx context.Context) {
	if _, err := w.conn.ExecContext(ctx, `ROLLBACK`); err != nil {
		w.logger.Warn("rolling back failed, connecting anew", "error", err)
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

// disconnect drops the connection, so that no transaction survives it.
func (w *writer) disconnect() {
	if w.conn == nil {
		return
	}
	err := w.conn.close()
	if dropped := w.raw.Raw(func(any) error { return driver.ErrBadConn }); !errors.Is(dropped, driver.ErrBadConn) {
		err = errors.Join(err, dropped)
	}
	if err != nil {
		w.logger.Warn("closing the writing connection", "error", err)
	}
	w.raw, w.conn = nil, nil
}
