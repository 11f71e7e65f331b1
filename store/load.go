// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/google/uuid"
)

// ProjectLimits are the limits of a project. 0 means no limit, except for RequestsPerMinute.
type ProjectLimits struct {
	// BacklogRuns and BacklogInput limit the open runs, and the bytes of their inputs, of each
	// environment.
	BacklogRuns, BacklogInput int64
	// Storage limits the bytes of history.
	Storage int64
	// RequestsPerMinute limits the requests to the REST API; 0 means the default.
	RequestsPerMinute int64
}

// Backlog counts the open runs of an environment.
type Backlog struct {
	// Runs is the number of open runs. Input is the number of input bytes of their connector runs.
	Runs, Input int64
}

// ProjectLoad is the usage of a project with its limits.
type ProjectLoad struct {
	Limits ProjectLimits
	// Stored is in bytes. Runs that have just ended are counted a little later. Days beyond the
	// project's retention do not count.
	Stored int64
	// Backlog has the environments with open runs. It is empty if the project has no backlog limit,
	// because the cost of counting grows with the backlog.
	Backlog map[uuid.UUID]Backlog
}

// Loads measures the usage of projects.
type Loads interface {
	// ProjectLoad returns the usage of a project. Its cost grows with the project's backlog. It
	// returns ErrNotFound if there is no such project.
	ProjectLoad(ctx context.Context, project uuid.UUID) (ProjectLoad, error)
}
