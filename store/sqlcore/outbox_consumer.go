// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// outboxRow is a row of an outbox.
type outboxRow interface {
	// keyAndFailures returns the key, and how often the row has failed.
	keyAndFailures() (key store.Key, failures int)
}

// consumer consumes rows of an outbox.
type consumer[R outboxRow] struct {
	*sqldb.DB
	// consumeAll consumes all rows or none.
	consumeAll func(ctx context.Context, rows []R) error
	// tryConsume does the same work for a project that does not exist, and ends with errTrial.
	tryConsume func(ctx context.Context) error
	// delayRow delays a row.
	delayRow func(ctx context.Context, tx *sqldb.Tx, row R, wait time.Duration) error
	// halveRow splits a row with several runs in two; false if the row has one run. It is nil if every
	// row has one.
	halveRow func(ctx context.Context, row R) (bool, error)
}

// consumeRows consumes rows and sets the failing ones aside. Rows are ordered by project, so retries
// mostly affect one project.
func (c consumer[R]) consumeRows(ctx context.Context, rows []R) error {
	return isolation[R]{processAll: c.consumeAll, isDataError: c.IsDataError, canProceed: c.canConsume, setAside: c.setAside}.processRows(ctx, rows)
}

// tooSlow reports whether a single row has used up the time of a call although the store is fast
// enough.
func (c consumer[R]) tooSlow(ctx context.Context, rows []R, err error) bool {
	return len(rows) == 1 && err != nil && !errors.As(err, new(*store.SetAsideError)) &&
		errors.Is(ctx.Err(), context.DeadlineExceeded) && c.canConsume(ctx)
}

// canConsume reports whether rows can be consumed now.
func (c consumer[R]) canConsume(ctx context.Context) bool {
	if errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqldb.ReadTimeout)
	defer cancel()
	return errors.Is(c.tryConsume(ctx), sqldb.ErrTrial)
}

// setAside delays an outbox row that failed and returns a *store.SetAsideError. A row with several
// runs is split in two, and it returns nil.
func (c consumer[R]) setAside(ctx context.Context, row R, because error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return because
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqldb.ReadTimeout)
	defer cancel()
	key, failures := row.keyAndFailures()
	if c.halveRow != nil {
		if halved, err := c.halveRow(ctx, row); halved || err != nil {
			return sqldb.Wrap(err, "halving the row of %s", key)
		}
	}
	wait := min(asideFor<<min(failures, 10), maxAside)
	err := c.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error { return c.delayRow(ctx, tx, row, wait) })
	if err != nil {
		return fmt.Errorf("setting %s aside: %w", key, errors.Join(err, because))
	}
	return &store.SetAsideError{Rows: []error{sqldb.Wrap(because, "%s, which is retried after %s", key, wait)}}
}
