// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"
)

// Demand is what the open runs of an environment ask of its pool of runners.
type Demand struct {
	// Running are the runs under way, Waiting those that a free place would take: a
	// deployment is live, their time has come, and neither the agent's limit nor a
	// concurrency key is in the way.
	Running, Waiting Runs
	// Oldest is how long the first of those that wait does; 0 without any.
	Oldest time.Duration
}

// Runs are a number of runs.
type Runs struct {
	All int
	// Lower are those of All that leave a part of the pool free, as Pool.Kept says: fresh,
	// and not sync.
	Lower int
}

// Open are the runs that the pool is to have places for.
func (d Demand) Open() Runs {
	return Runs{All: d.Running.All + d.Waiting.All, Lower: d.Running.Lower + d.Waiting.Lower}
}

// Demands tells what environments ask of their pools.
type Demands interface {
	// Demand is what is open of an environment: of each line (an agent's runs in a class) as many
	// as are enough to decide by, which is more than the pool can have places for, and fewer
	// where there are very many lines. A pool for which that is too few grows by these, and then
	// counts on. So it costs what a claim does, and not what is queued.
	Demand(ctx context.Context, environment Key, enough int) (Demand, error)
}
