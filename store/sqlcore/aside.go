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

// waiting is a row of an outbox.
type waiting interface {
	// row is its key, and how often it could not be consumed.
	row() (key store.Key, failures int)
}

// consumer consumes rows of an outbox.
type consumer[R waiting] struct {
	*Core
	// all consumes rows: all of them, or none.
	all func(ctx context.Context, rows []R) error
	// trial does the like for something that nobody has, and ends with errTrial.
	trial func(ctx context.Context) error
	// wait lets a row wait for so long.
	wait func(ctx context.Context, tx *Tx, row R, wait time.Duration) error
	// halve lets a row that is about many be two; false where it is about one. It is nil where
	// each is.
	halve func(ctx context.Context, row R) (bool, error)
}

// apart consumes rows; those that fail alone are set aside. The rows are in the order of their projects, so
// that it is mostly those of one which are tried again.
func (c consumer[R]) apart(ctx context.Context, rows []R) error {
	return isolation[R]{all: c.all, atFault: c.atFault, can: c.can, aside: c.setAside}.apart(ctx, rows)
}

// isolation does something with rows so that a row that fails keeps no other from it.
type isolation[R any] struct {
	// all does it with rows: all of them, or none.
	all func(ctx context.Context, rows []R) error
	// atFault says whether an error is about what the rows have in them.
	atFault func(err error) bool
	// can says whether the like can be done at this moment with other rows.
	can func(ctx context.Context) bool
	// aside sets a row aside that fails alone, and returns that as a *store.SetAsideError; nil if the row is
	// dealt with otherwise, another error if it cannot be set aside.
	aside func(ctx context.Context, row R, because error) error
}

// apart does it with rows; if it fails for some of these, in halves, by which they are found, and set aside.
//
// A row is set aside that fails alone, if its data is at fault, or else, whatever the error is,
// if it fails again once the like was done for trial. So none is set aside for what the store
// cannot do at that time for any row; that is returned as it is.
func (i isolation[R]) apart(ctx context.Context, rows []R) error {
	return i.after(ctx, rows, i.all(ctx, rows))
}

// after is apart for rows with which it was tried a moment ago.
func (i isolation[R]) after(ctx context.Context, rows []R, err error) error {
	if err == nil || errors.Is(err, errOthers) {
		return err
	}
	alone := len(rows) == 1
	if !i.atFault(err) {
		if ctx.Err() != nil || !i.can(ctx) {
			return err
		}
		if alone {
			if err = i.all(ctx, rows); err == nil || errors.Is(err, errOthers) || ctx.Err() != nil {
				return err
			}
		}
	}
	if alone {
		return i.aside(ctx, rows[0], err)
	}
	return i.halves(ctx, rows)
}

func (i isolation[R]) halves(ctx context.Context, rows []R) error {
	var aside []error
	for half := range slices.Chunk(rows, (len(rows)+1)/2) {
		err := i.apart(ctx, half)
		var found *store.SetAsideError
		switch {
		case errors.As(err, &found):
			aside = append(aside, found.Rows...)
		case errors.Is(err, errOthers): // of this half
		case err != nil && len(aside) > 0: // which is no *store.SetAsideError: not all others were done
			return fmt.Errorf("%w; before that were set aside: %s", err, (&store.SetAsideError{Rows: aside}).Error())
		case err != nil:
			return err
		}
	}
	if len(aside) == 0 {
		return nil
	}
	return &store.SetAsideError{Rows: aside}
}

// atFault says whether it is what rows have in them that has failed.
func (c *Core) atFault(err error) bool {
	return c.badData(err) || errors.Is(err, errUnreadable)
}

// tooSlow says that a row has used up the time of a call alone, and that it is not the store
// which is slow.
func (c consumer[R]) tooSlow(ctx context.Context, rows []R, err error) bool {
	return len(rows) == 1 && err != nil && !errors.As(err, new(*store.SetAsideError)) &&
		errors.Is(ctx.Err(), context.DeadlineExceeded) && c.can(ctx)
}

// errOthers says that others have consumed all of the rows meanwhile.
var errOthers = errors.New("others have done it")

// errTrial ends a transaction of which nothing is to be kept.
var errTrial = errors.New("for trial")

// can says whether rows can be consumed at this moment.
func (c consumer[R]) can(ctx context.Context) bool {
	if errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	return errors.Is(c.trial(ctx), errTrial)
}

// setAside lets a row of the outbox wait that could not be consumed, and returns that as a
// *store.SetAsideError; one that is about many becomes two, and nil is returned.
func (c consumer[R]) setAside(ctx context.Context, row R, because error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return because // which is why
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	key, failures := row.row()
	if c.halve != nil {
		if halved, err := c.halve(ctx, row); halved || err != nil {
			return wrap(err, "halving the row of %s", key)
		}
	}
	wait := min(asideFor<<min(failures, 10), maxAside)
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error { return c.wait(ctx, tx, row, wait) })
	if err != nil {
		return fmt.Errorf("setting %s aside: %w", key, errors.Join(err, because))
	}
	return &store.SetAsideError{Rows: []error{wrap(because, "%s, which waits %s for its next turn", key, wait)}}
}
