// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// RollupHour is an hour that was counted anew.
type RollupHour struct {
	Project uuid.UUID
	Begin   time.Time
	// Runs are the runs or the connector runs that it has.
	Runs int64
}

// Rebuilder counts anew what Statistics tells.
type Rebuilder interface {
	// RebuildRollups counts all hours anew, row by row, of which history has all rows, and by them
	// the days and months that they are part of. Hours of which rows may be gone stay as they are.
	// Each takes a transaction of its own: where it is broken off, it is begun again. Runs may end
	// meanwhile.
	RebuildRollups(ctx context.Context, counted func(RollupHour)) error
}
