// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"slices"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/concurrency"
	"github.com/agentplatform/agentplatform/store/crontick"
	"github.com/agentplatform/agentplatform/store/replayjob"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Settles reports whether an accepted event needs more than its rows; see Settle.
func Settles(e store.Event) bool {
	return EndsAtOnce(e) || e.Tick != nil || e.Step != nil || len(e.Files) > 0 || slices.ContainsFunc(e.Runs, concurrency.Contends)
}

// Settle advances the ticks and bulk replays of accepted events, ends the parts of events that end
// at once, and gives free slots to their runs, in the accepting transaction.
func (c *Core) Settle(ctx context.Context, tx *sqldb.Tx, events []store.Event, admissions []store.Admission) error {
	if err := crontick.Take(ctx, c.DB, tx, events); err != nil {
		return err
	}
	if err := replayjob.TakeSteps(ctx, tx, events); err != nil {
		return err
	}
	if err := c.endAtOnce(ctx, tx, events, admissions); err != nil {
		return err
	}
	return c.TakeSlots(ctx, tx, concurrency.ContendersOf(events, admissions))
}
