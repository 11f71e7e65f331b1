// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// outboxRow is a row of an outbox.
type outboxRow interface {
	// keyAndFailures returns the key, and how often the row has failed.
	keyAndFailures() (key store.Key, failures int)
}

// consumer consumes rows of an outbox.
type consumer[R outboxRow] struct {
	*Core
	// consumeAll consumes all rows or none.
	consumeAll func(ctx context.Context, rows []R) error
	// tryConsume does the same work for a project that does not exist, and ends with errTrial.
	tryConsume func(ctx context.Context) error
	// delayRow delays a row.
	delayRow func(ctx context.Context, tx *Tx, row R, wait time.Duration) error
	// halveRow splits a row with several runs in two; false if the row has one run. It is nil if every
	// row has one.
	halveRow func(ctx context.Context, row R) (bool, error)
}

// consumeRows consumes rows and sets the failing ones aside. Rows are ordered by project, so retries
// mostly affect one project.
func (c consumer[R]) consumeRows(ctx context.Context, rows []R) error {
	return isolation[R]{processAll: c.consumeAll, isDataError: c.isDataError, canProceed: c.canConsume, setAside: c.setAside}.processRows(ctx, rows)
}

// isolation processes rows so that a failing row blocks no other row.
type isolation[R any] struct {
	// processAll processes all rows or none.
	processAll func(ctx context.Context, rows []R) error
	// isDataError reports whether the data of the rows caused the error.
	isDataError func(err error) bool
	// canProceed reports whether other rows could be processed now.
	canProceed func(ctx context.Context) bool
	// setAside sets a failing row aside and returns a *store.SetAsideError. It returns nil if the row
	// was handled otherwise, and another error if it cannot be set aside.
	setAside func(ctx context.Context, row R, because error) error
}

// processRows processes rows. If that fails, it halves them to find the failing rows, and sets these
// aside.
//
// A row that fails alone is set aside if its data is at fault. With any other error it is set aside
// only if it fails again after a successful trial. So a general failure of the store sets no row
// aside. It is returned unchanged.
func (i isolation[R]) processRows(ctx context.Context, rows []R) error {
	return i.isolateAfter(ctx, rows, i.processAll(ctx, rows))
}

// isolateAfter is apart for rows that have just failed with err.
func (i isolation[R]) isolateAfter(ctx context.Context, rows []R, err error) error {
	if err == nil || errors.Is(err, errConsumedElsewhere) {
		return err
	}
	alone := len(rows) == 1
	if !i.isDataError(err) {
		if ctx.Err() != nil || !i.canProceed(ctx) {
			return err
		}
		if alone {
			if err = i.processAll(ctx, rows); err == nil || errors.Is(err, errConsumedElsewhere) || ctx.Err() != nil {
				return err
			}
		}
	}
	if alone {
		return i.setAside(ctx, rows[0], err)
	}
	return i.processHalves(ctx, rows)
}

func (i isolation[R]) processHalves(ctx context.Context, rows []R) error {
	var aside []error
	for half := range slices.Chunk(rows, (len(rows)+1)/2) {
		err := i.processRows(ctx, half)
		var found *store.SetAsideError
		switch {
		case errors.As(err, &found):
			aside = append(aside, found.Rows...)
		case errors.Is(err, errConsumedElsewhere): // another process has consumed this half
		case err != nil && len(aside) > 0: // not a *store.SetAsideError, because some other rows were not processed
			return fmt.Errorf("%w; set aside before: %s", err, (&store.SetAsideError{Rows: aside}).Error())
		case err != nil:
			return err
		}
	}
	if len(aside) == 0 {
		return nil
	}
	return &store.SetAsideError{Rows: aside}
}

// isDataError reports whether the data of the rows caused the error.
func (c *Core) isDataError(err error) bool {
	return c.badData(err) || errors.Is(err, errUnreadable)
}

// tooSlow reports whether a single row has used up the time of a call although the store is fast
// enough.
func (c consumer[R]) tooSlow(ctx context.Context, rows []R, err error) bool {
	return len(rows) == 1 && err != nil && !errors.As(err, new(*store.SetAsideError)) &&
		errors.Is(ctx.Err(), context.DeadlineExceeded) && c.canConsume(ctx)
}

// errConsumedElsewhere means that other processes have consumed all of the rows.
var errConsumedElsewhere = errors.New("other processes have done the work")

// errTrial rolls back a trial.
var errTrial = errors.New("for trial")

// canConsume reports whether rows can be consumed now.
func (c consumer[R]) canConsume(ctx context.Context) bool {
	if errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	return errors.Is(c.tryConsume(ctx), errTrial)
}

// setAside delays an outbox row that failed and returns a *store.SetAsideError. A row with several
// runs is split in two, and it returns nil.
func (c consumer[R]) setAside(ctx context.Context, row R, because error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return because
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	key, failures := row.keyAndFailures()
	if c.halveRow != nil {
		if halved, err := c.halveRow(ctx, row); halved || err != nil {
			return wrap(err, "halving the row of %s", key)
		}
	}
	wait := min(asideFor<<min(failures, 10), maxAside)
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error { return c.delayRow(ctx, tx, row, wait) })
	if err != nil {
		return fmt.Errorf("setting %s aside: %w", key, errors.Join(err, because))
	}
	return &store.SetAsideError{Rows: []error{wrap(because, "%s, which is retried after %s", key, wait)}}
}
