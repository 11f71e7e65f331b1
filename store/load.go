// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/google/uuid"
)

// ProjectLimits are how much a project may leave open and stored, of which 0 is any
// number, and ask.
type ProjectLimits struct {
	// BacklogRuns and BacklogInput are of each environment: open runs, and bytes of
	// their inputs.
	BacklogRuns, BacklogInput int64
	// Storage is in bytes, of what has ended.
	Storage int64
	// RequestsPerMinute are those to the REST API; 0 is as many as is usual.
	RequestsPerMinute int64
}

// Backlog is what of an environment is open.
type Backlog struct {
	// Runs have not ended; Input is how many bytes their connector runs came with.
	Runs, Input int64
}

// ProjectLoad is what a project has, and what it may have.
type ProjectLoad struct {
	Limits ProjectLimits
	// Stored is in bytes; what has just ended is counted a little later. Days that the project keeps no
	// longer do not count.
	Stored int64
	// Backlog has the environments in which something is open. It is empty where
	// the project has no limit of the backlog: counting it takes the longer the more is open.
	Backlog map[uuid.UUID]Backlog
}

// Loads measures projects.
type Loads interface {
	// ProjectLoad costs what the project has open. ErrNotFound when there is no such
	// project.
	ProjectLoad(ctx context.Context, project uuid.UUID) (ProjectLoad, error)
}
