// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/google/uuid"
)

// MaxLooks is the maximum number of projects per request for polls.
const MaxLooks = 256

// Look is a request to poll the repository of a project, because it may have changed.
type Look struct {
	ProjectID uuid.UUID
	// Namespace is the namespace of the project's object.
	Namespace string
}

// Looks records requests to poll repositories. A project has at most one request, which is deleted
// with the project.
type Looks interface {
	// LookedFor reports for existing projects, at most MaxLooks, whether a poll is requested.
	LookedFor(ctx context.Context, projects []uuid.UUID) (asked map[uuid.UUID]bool, err error)
	// ProjectIDs returns a page of at most limit project IDs, in order, after the given one.
	ProjectIDs(ctx context.Context, after uuid.UUID, limit int) ([]uuid.UUID, error)
	// AskLooks requests polls of the repositories of at most MaxLooks projects and sends a hint for
	// each new request. Unknown projects are ignored.
	AskLooks(ctx context.Context, projects []uuid.UUID) error
}

// LookTaker takes requests for polls.
type LookTaker interface {
	// AskedLooks returns a page of at most limit requests of all projects, in the order of project
	// IDs, after the given one.
	AskedLooks(ctx context.Context, after uuid.UUID, limit int) ([]Look, error)
	// TakeLook deletes a request. The caller takes it before the poll, so a request during the poll
	// causes another one.
	TakeLook(ctx context.Context, project uuid.UUID) error
}
