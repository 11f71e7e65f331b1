// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"
)

// MaxDemandCount is how many queued runs of a line (an agent's in a class) a Demand counts:
// a pool for which that is too few grows by these, and then counts on.
const MaxDemandCount = 1000

// Demand is what the open runs of an environment ask of its pool of runners.
type Demand struct {
	// Running are the runs under way, Waiting those that a free place would take: a
	// deployment is live, and neither the agent's limit nor a concurrency key is in the way.
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
	// Demands costs what of these environments is open, up to MaxDemandCount of a line. It
	// has those of which something is.
	Demands(ctx context.Context, environments []Key) (map[Key]Demand, error)
}
