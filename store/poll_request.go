// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/google/uuid"
)

// MaxPollRequests is the maximum number of projects per request for polls.
const MaxPollRequests = 256

// PollRequest is a request to poll the repository of a project, because it may have changed.
type PollRequest struct {
	ProjectID uuid.UUID
	// Namespace is the namespace of the project's object.
	Namespace string
}

// PollRequests records requests to poll repositories. A project has at most one request, which is deleted
// with the project.
type PollRequests interface {
	// HavePollRequests reports for existing projects, at most MaxPollRequests, whether a poll is requested.
	HavePollRequests(ctx context.Context, projects []uuid.UUID) (asked map[uuid.UUID]bool, err error)
	// ProjectIDs returns a page of at most limit project IDs, in order, after the given one.
	ProjectIDs(ctx context.Context, after uuid.UUID, limit int) ([]uuid.UUID, error)
	// RequestPolls requests polls of the repositories of at most MaxPollRequests projects and sends a hint for
	// each new request. Unknown projects are ignored.
	RequestPolls(ctx context.Context, projects []uuid.UUID) error
}

// PollRequestReader takes requests for polls.
type PollRequestReader interface {
	// ListPollRequests returns a page of at most limit requests of all projects, in the order of project
	// IDs, after the given one.
	ListPollRequests(ctx context.Context, after uuid.UUID, limit int) ([]PollRequest, error)
	// DeletePollRequest deletes a request. The caller takes it before the poll, so a request during the poll
	// causes another one.
	DeletePollRequest(ctx context.Context, project uuid.UUID) error
}
