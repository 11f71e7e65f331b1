// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/quota"
)

// Memory limits for requests of runners and builds, in bytes.
const (
	// projectShare is the part of each limit that a project gets, because tenants can read tokens.
	projectShare = 4
	// smallRequest is the size up to which requests do not count. One per connection is little, and
	// a heartbeat should not fail for lack of memory.
	smallRequest = 16 << 10
	// maxInFlight limits the memory of larger requests. They do not wait: the sender retries.
	maxInFlight = 96 << 20
	// maxClaimBytes limits claim responses until their runners have read them. maxStreamBytes
	// limits inputs, journals and bundles in transfer, maxSaveBytes files that runs save.
	maxClaimBytes  = 48 << 20
	maxStreamBytes = 48 << 20
	maxSaveBytes   = 24 << 20
	// maxQueued limits the waiting requests of a project. queueTimeout is how long they wait, which is
	// shorter than the runner's timeout.
	maxQueued    = 512
	queueTimeout = 5 * time.Second
)

// temporaryProblem returns an error response for a temporary condition.
func temporaryProblem(status int, code httpserver.Code, detail string) httpserver.Problem {
	p := httpserver.NewProblem(status, code, detail)
	p.RetryAfter = time.Second
	return p
}

var (
	errProjectInFlight = temporaryProblem(http.StatusTooManyRequests, httpserver.CodeTooManyWaiting,
		"Requests of this project use their whole share of memory. Retry later.")
	errInFlight = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"Requests use all of the gateway's memory for them. Retry later.")
	errProjectAnswers = temporaryProblem(http.StatusTooManyRequests, httpserver.CodeTooManyWaiting,
		"Responses to this project's runners use their whole share of memory. Retry later.")
	errAnswers = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"Responses use all of the gateway's memory for them. Retry later.")
)

func newBudget(all int64) *quota.Budget {
	return quota.NewBudget(all, projectShare, maxQueued, queueTimeout)
}

// waitForMemory reserves memory of a budget for a response. It returns a Problem if there is none in time.
func waitForMemory(ctx context.Context, of *quota.Budget, project uuid.UUID, n int64) (*quota.Grant, error) {
	grant, err := of.Wait(ctx, project, n)
	return grant, quota.Refusal(err, errProjectAnswers, errAnswers)
}

// holdRequest counts the memory of a project's request until release is called. Requests with a streamed
// body do not count.
func (h *Handler) holdRequest(project uuid.UUID, r *http.Request) (release func(), err error) {
	size := r.ContentLength
	if size < 0 {
		size = dispatchapi.MaxRequest
	}
	if size <= smallRequest || r.Method != http.MethodPost {
		return func() {}, nil
	}
	size = min(size, dispatchapi.MaxRequest)
	if err := h.inFlight.Take(project, size); err != nil {
		return nil, quota.Refusal(err, errProjectInFlight, errInFlight)
	}
	return func() { h.inFlight.Give(project, size) }, nil
}
