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

// Memory that requests of runners and builds may ask for, in bytes.
const (
	// projectShare is the part of each kind that one project has, for tokens are read
	// by tenants.
	projectShare = 4
	// smallRequest is the size up to which requests are not counted: one a connection
	// is little, and a heartbeat should not fail for want of room for other things.
	smallRequest = 16 << 10
	// maxInFlight is what larger requests hold at once. Nobody waits for it: who sends
	// them comes again.
	maxInFlight = 96 << 20
	// maxClaimBytes is what answers to claims hold at once, until their runners have
	// read them; maxStreamBytes what inputs, journals and bundles under way do.
	maxClaimBytes  = 48 << 20
	maxStreamBytes = 48 << 20
	// maxInLine is how many requests of a project wait for one of these, patience for
	// how long: less than their runner waits for an answer.
	maxInLine = 512
	patience  = 5 * time.Second
)

// later is a problem that goes by without anybody's doing.
func later(status int, code httpserver.Code, detail string) httpserver.Problem {
	p := httpserver.NewProblem(status, code, detail)
	p.RetryAfter = time.Second
	return p
}

var (
	errProjectInFlight = later(http.StatusTooManyRequests, httpserver.CodeTooManyWaiting,
		"Requests of this project hold as much memory as they may; call again.")
	errInFlight = later(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"The gateway holds as many requests as it has memory for; call again.")
	errProjectAnswers = later(http.StatusTooManyRequests, httpserver.CodeTooManyWaiting,
		"Answers to this project's runners hold as much memory as they may; call again.")
	errAnswers = later(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"The gateway's answers hold as much memory as there is; call again.")
)

func newBudget(all int64) *quota.Budget {
	return quota.NewBudget(all, projectShare, maxInLine, patience)
}

// wait has memory of a budget for an answer; a Problem when there is none in time.
func wait(ctx context.Context, of *quota.Budget, project uuid.UUID, n int64) (*quota.Grant, error) {
	grant, err := of.Wait(ctx, project, n)
	return grant, quota.Refusal(err, errProjectAnswers, errAnswers)
}

// hold counts a request of a project until release is called. One that streams its
// body is not held.
func (h *Handler) hold(project uuid.UUID, r *http.Request) (release func(), err error) {
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
