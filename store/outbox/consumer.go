// SPDX-License-Identifier: Apache-2.0

// Package outbox consumes rows of an outbox: fairly per project, and each exactly once.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/sweep"
)

// Consumers that create deliveries: of results, whose rows have IDs of runs, and of failure
// notices, whose rows have IDs of connectors. A user can choose the ID of a connector, so it may
// equal the ID of a run.
const (
	Deliveries     = string(store.ConsumerDeliveries)
	FailureNotices = "failures"
)

// Row is a row of an outbox.
type Row interface {
	// KeyAndFailures returns the key, and how often the row has failed.
	KeyAndFailures() (key store.Key, failures int)
}

// Consumer consumes rows of an outbox.
type Consumer[R Row] struct {
	*sqldb.DB
	// ConsumeAll consumes all rows or none.
	ConsumeAll func(ctx context.Context, rows []R) error
	// TryConsume does the same work for a project that does not exist, and ends with sqldb.ErrTrial.
	TryConsume func(ctx context.Context) error
	// DelayRow delays a row.
	DelayRow func(ctx context.Context, tx *sqldb.Tx, row R, wait time.Duration) error
	// halveRow splits a row with several runs in two; false if the row has one run. It is nil if every
	// row has one.
	halveRow func(ctx context.Context, row R) (bool, error)
}

// Consume consumes rows and sets the failing ones aside. Rows are ordered by project, so retries
// mostly affect one project.
func (c Consumer[R]) Consume(ctx context.Context, rows []R) error {
	return sweep.Isolation[R]{ProcessAll: c.ConsumeAll, IsDataError: c.IsDataError, CanProceed: c.canConsume, SetAside: c.SetAside}.Process(ctx, rows)
}

// TooSlow reports whether a single row has used up the time of a call although the store is fast
// enough.
func (c Consumer[R]) TooSlow(ctx context.Context, rows []R, err error) bool {
	return len(rows) == 1 && err != nil && !errors.As(err, new(*store.SetAsideError)) &&
		errors.Is(ctx.Err(), context.DeadlineExceeded) && c.canConsume(ctx)
}

// canConsume reports whether rows can be consumed now.
func (c Consumer[R]) canConsume(ctx context.Context) bool {
	if errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqldb.ReadTimeout)
	defer cancel()
	return errors.Is(c.TryConsume(ctx), sqldb.ErrTrial)
}

// SetAside delays an outbox row that failed and returns a *store.SetAsideError. A row with several
// runs is split in two, and it returns nil.
func (c Consumer[R]) SetAside(ctx context.Context, row R, because error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return because
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqldb.ReadTimeout)
	defer cancel()
	key, failures := row.KeyAndFailures()
	if c.halveRow != nil {
		if halved, err := c.halveRow(ctx, row); halved || err != nil {
			return sqldb.Wrap(err, "halving the row of %s", key)
		}
	}
	wait := min(AsideFor<<min(failures, 10), maxAside)
	err := c.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error { return c.DelayRow(ctx, tx, row, wait) })
	if err != nil {
		return fmt.Errorf("setting %s aside: %w", key, errors.Join(err, because))
	}
	return &store.SetAsideError{Rows: []error{sqldb.Wrap(because, "%s, which is retried after %s", key, wait)}}
}
