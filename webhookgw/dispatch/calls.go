// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/quota"
)

const (
	// maxCalls is how many calls of runners and builds ask the store at once, fewer than
	// it has connections for short statements: webhooks, ends and sweeps have the rest,
	// however much is called here. A project makes up to one part in callShare of them.
	maxCalls  = 12
	callShare = 2
	// callTime bounds a call, from when it is its turn: no longer does a runner wait.
	callTime = 10 * time.Second
	// claimTime bounds a claim, whatever becomes of its runner.
	claimTime = 20 * time.Second
)

var (
	errProjectCalls = later(http.StatusTooManyRequests, httpserver.CodeTooManyWaiting,
		"As many of this project's calls as may ask the store do; call again.")
	errCalls = later(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"As many calls as may ask the store do; call again.")
)

func newCalls() *quota.Budget { return quota.NewBudget(maxCalls, callShare, maxInLine, patience) }

// call asks the store something in the turn of a project. What it does waits for nobody
// but the store, least of all for a body.
func (h *Handler) call(ctx context.Context, project uuid.UUID, do func(ctx context.Context) error) error {
	turn, err := h.calls.Wait(ctx, project, 1)
	if err != nil {
		return quota.Refusal(err, errProjectCalls, errCalls)
	}
	defer turn.End()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return do(ctx)
}
