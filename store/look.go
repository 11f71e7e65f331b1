// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/google/uuid"
)

// MaxLooks is for how many projects looks are asked for at a time.
const MaxLooks = 256

// Look is asked for: the repository of a project may have changed.
type Look struct {
	ProjectID uuid.UUID
	// Namespace is that of the project's object.
	Namespace string
}

// Looks are asked for by whoever says that a project's repository has changed. A project has
// one row, however often it is asked for, which goes with it.
type Looks interface {
	// LookedFor says of those of at most MaxLooks projects that there are whether a look is
	// asked for.
	LookedFor(ctx context.Context, projects []uuid.UUID) (asked map[uuid.UUID]bool, err error)
	// ProjectIDs returns a page of the ids of all projects, in their order, of at most limit
	// that come after one.
	ProjectIDs(ctx context.Context, after uuid.UUID, limit int) ([]uuid.UUID, error)
	// AskLooks asks for a look at the repositories of at most MaxLooks projects; each that was
	// not asked for is hinted. What is no project is left out.
	AskLooks(ctx context.Context, projects []uuid.UUID) error
}

// LookTaker looks.
type LookTaker interface {
	// AskedLooks returns a page of what is asked for of all projects, in the order of their
	// ids, of at most limit that come after one.
	AskedLooks(ctx context.Context, after uuid.UUID, limit int) ([]Look, error)
	// TakeLook forgets that a look is asked for. It comes before the look: what is asked for
	// from then on is another one.
	TakeLook(ctx context.Context, project uuid.UUID) error
}
