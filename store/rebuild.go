// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// RollupHour is an hour that was counted again.
type RollupHour struct {
	Project uuid.UUID
	Begin   time.Time
	// Runs is the number of runs or connector runs in the hour.
	Runs int64
}

// Rebuilder rebuilds rollups.
type Rebuilder interface {
	// RebuildRollups counts all hours again from their rows, and then the days and months that
	// include them. Hours whose rows may be deleted stay unchanged. Each hour has a transaction of
	// its own, and an interrupted rebuild starts again from the beginning. Runs may end meanwhile.
	RebuildRollups(ctx context.Context, counted func(RollupHour)) error
}
