// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// postApart makes deliveries of rows; where some of these cannot be posted, in halves, by which
// they are found, and set aside. The rows are in the order of their projects, so that it is
// mostly those of one which are tried again.
//
// A row is set aside that fails alone, if its data is at fault, or else, whatever the error is,
// if it fails again once a delivery was made for trial. So none is set aside for what the store
// cannot do at that time for any row; that is returned as it is.
func (c *Core) postApart(ctx context.Context, waiting []posted) error {
	err := c.postAll(ctx, waiting)
	if err == nil {
		return nil
	}
	alone := len(waiting) == 1
	if !c.atFault(err) {
		if ctx.Err() != nil || !c.canPost(ctx) {
			return err
		}
		if alone {
			if err = c.postAll(ctx, waiting); err == nil || ctx.Err() != nil {
				return err
			}
		}
	}
	if alone {
		return c.setAside(ctx, waiting[0], err)
	}
	return c.postHalves(ctx, waiting)
}

func (c *Core) postHalves(ctx context.Context, waiting []posted) error {
	var aside []error
	for half := range slices.Chunk(waiting, (len(waiting)+1)/2) {
		err := c.postApart(ctx, half)
		var found *store.SetAsideError
		switch {
		case errors.As(err, &found):
			aside = append(aside, found.Rows...)
		case err != nil && len(aside) > 0: // which is no *store.SetAsideError: not all others were posted
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
func (c *Core) tooSlow(ctx context.Context, waiting []posted, err error) bool {
	return len(waiting) == 1 && err != nil && !errors.As(err, new(*store.SetAsideError)) &&
		errors.Is(ctx.Err(), context.DeadlineExceeded) && c.canPost(ctx)
}

// errTrial ends a transaction of which nothing is to be kept.
var errTrial = errors.New("for trial")

// canPost says whether deliveries can be made at this moment: it makes some, one of each kind
// that takes another table, of a project that nobody has, and keeps nothing of them.
func (c *Core) canPost(ctx context.Context) bool {
	if errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	id, err := uuid.NewV7()
	if err != nil {
		return false
	}
	run := store.Key{ProjectID: uuid.New(), ID: id}
	result := target{kind: store.DeliverResult, run: run, environment: id, link: id, connector: id}
	skipped, payload := result, result
	skipped.closed, payload.kind, payload.payload = closedDisabled, store.DeliverPayload, json.RawMessage(`{}`)
	if _, err := c.targets(ctx, []store.Key{run}, nil); err != nil {
		return false
	}
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		if err := c.takeEnded(ctx, tx, []store.Key{run}, map[store.Key]int64{}); err != nil {
			return err
		}
		if err := c.forgetSends(ctx, tx, []store.Key{run}); err != nil {
			return err
		}
		if err := c.post(ctx, tx, []target{result, skipped, payload}); err != nil {
			return err
		}
		return errTrial
	})
	return errors.Is(err, errTrial)
}

// setAside lets a row of the outbox wait that could not be consumed, and returns that as a
// *store.SetAsideError.
func (c *Core) setAside(ctx context.Context, p posted, because error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return because // which is why
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	wait := min(asideFor<<min(p.failures, 10), maxAside)
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		_, err := tx.exec(ctx, `UPDATE outbox SET failures = failures + 1, posted_at = now_us() + $3
			WHERE project_id = $1 AND consumer = $4 AND ended_id = $2 AND posted_at <= now_us()`,
			p.ProjectID, p.ID, wait.Microseconds(), p.consumer())
		return err
	})
	if err != nil {
		return fmt.Errorf("setting %s aside: %w", p.Key, errors.Join(err, because))
	}
	return &store.SetAsideError{Rows: []error{wrap(because, "%s, which waits %s for its next turn", p.Key, wait)}}
}
