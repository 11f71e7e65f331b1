// SPDX-License-Identifier: Apache-2.0

package open

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/probe"
	"github.com/agentplatform/agentplatform/store"
)

// watchInterval is the interval between two checks of a schema.
const watchInterval = 10 * time.Second

// SchemaWatch checks the schema of a store while a process works. Another release may migrate the schema meanwhile.
type SchemaWatch struct {
	Store interface {
		Ping(ctx context.Context) error
	}
	// Tick is called after each check. If nil, Run waits for watchInterval.
	Tick func(ctx context.Context) error
	// Logger is the default logger if nil.
	Logger *slog.Logger

	unusable atomic.Pointer[error]
}

// isUnusable reports whether a process cannot use a schema, however long it waits.
func isUnusable(err error) bool {
	return errors.Is(err, store.ErrForeignSchema) || errors.Is(err, store.ErrNewerSchema)
}

// Run runs work. It stops work if the process can no longer use the schema, and returns the reason.
func (w *SchemaWatch) Run(ctx context.Context, work func(ctx context.Context) error) error {
	working, stop := context.WithCancel(ctx)
	checked := make(chan struct{})
	go func() {
		defer close(checked)
		w.checkUntilDone(working)
		if w.unusable.Load() != nil {
			stop()
		}
	}()
	err := work(working)
	stop()
	<-checked
	return errors.Join(w.stopReason(), err)
}

// checkUntilDone checks the schema until ctx ends or the process cannot use it.
func (w *SchemaWatch) checkUntilDone(ctx context.Context) {
	tick := w.Tick
	if tick == nil {
		tick = func(ctx context.Context) error { return pause.For(ctx, watchInterval) }
	}
	failing := false
	for {
		check, cancel := context.WithTimeout(ctx, checkTimeout)
		err := w.Store.Ping(check)
		cancel()
		if isUnusable(err) {
			w.unusable.Store(&err)
			return
		}
		if ctx.Err() == nil && (err != nil) != failing {
			failing = err != nil
			w.logChange(ctx, err)
		}
		if tick(ctx) != nil {
			return
		}
	}
}

// logChange logs that checks begin to fail, or succeed again if err is nil.
func (w *SchemaWatch) logChange(ctx context.Context, err error) {
	logger := w.Logger
	if logger == nil {
		logger = slog.Default()
	}
	if err != nil {
		logger.WarnContext(ctx, "cannot check the schema of the store; retrying", "error", err)
		return
	}
	logger.InfoContext(ctx, "checked the schema of the store again")
}

// stopReason returns why the process cannot use the schema, or nil.
func (w *SchemaWatch) stopReason() error {
	if err := w.unusable.Load(); err != nil {
		return *err
	}
	return nil
}

// Ready returns a readiness check that also fails once the process cannot use the schema.
func (w *SchemaWatch) Ready(next probe.Check) probe.Check {
	return func(ctx context.Context) error {
		if err := w.stopReason(); err != nil {
			return err
		}
		return next(ctx)
	}
}
