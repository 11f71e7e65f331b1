// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"
)

// Demand counts the running and claimable runs of an environment. The scaler sizes the pool from
// it.
type Demand struct {
	// Running are the runs in progress. Waiting are the runs that a free slot would start: a
	// deployment is live, their start time has come, and neither the agent's limit nor a
	// concurrency key holds them back.
	Running, Waiting Runs
	// Oldest is the waiting time of the oldest of the waiting runs; 0 without any.
	Oldest time.Duration
}

// Runs is a number of runs.
type Runs struct {
	All int
	// Lower counts the runs of All that leave reserved slots free (see Pool.Kept): new, and not
	// sync.
	Lower int
}

// Open returns the runs that the pool should have slots for.
func (d Demand) Open() Runs {
	return Runs{All: d.Running.All + d.Waiting.All, Lower: d.Running.Lower + d.Waiting.Lower}
}

// Demands returns the demand of environments.
type Demands interface {
	// Demand returns the demand of an environment. It counts at most enough runs of each queue (the
	// runs of an agent in a class), which is more than the pool can have slots for, and fewer if
	// there are very many queues. If that is too few for a pool, the pool grows by these runs and
	// the next look counts more. So the cost is that of a claim and does not depend on the backlog.
	Demand(ctx context.Context, environment Key, enough int) (Demand, error)
}
