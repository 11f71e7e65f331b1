// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// HistoryReadShare is the divisor of a project's part of the concurrent list queries of the store, so that one project
	// leaves slots for others. At most maxHistoryReads requests of a project run or wait at the same time, each for
	// historyReadPatience.
	HistoryReadShare    = 2
	maxHistoryReads     = 64
	historyReadPatience = 5 * time.Second
	// SearchTime limits a search from the arrival of its request.
	SearchTime = 2 * time.Second
	// historyReadRetry is the Retry-After of requests that waited in vain.
	historyReadRetry = historyReadPatience
)

// NewHistoryReads returns the budget of history reads for a store with so many concurrent list queries.
func NewHistoryReads(atOnce int, patience time.Duration) *quota.Budget {
	return quota.NewBudget(int64(max(atOnce, 1)), HistoryReadShare, maxHistoryReads, patience)
}

// searcher is the input of a call that may search.
type searcher interface{ Searches() bool }

// waitForHistoryRead waits until the project may read history, such as a list or statistics. A search
// waits no longer than its own time.
func (s *Service) waitForHistoryRead(ctx context.Context, c *Caller, in any) (end func(), err error) {
	if of, may := in.(searcher); may && of.Searches() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.SearchTimeLeft(ctx), store.ErrSearchBusy)
		defer cancel()
	}
	return s.WaitForHistoryRead(ctx, c)
}

// WaitForHistoryRead waits until the project may read history. The error is a problem with the status 429 or 503.
func (s *Service) WaitForHistoryRead(ctx context.Context, c *Caller) (end func(), err error) {
	turn, err := s.HistoryReads.Wait(ctx, c.ProjectID, 1)
	if err != nil {
		return nil, LimitProblem(err, "too many concurrent requests for lists and statistics; try again", historyReadRetry)
	}
	return turn.End, nil
}

// SearchTimeLeft returns the remaining time of a search, which starts when its request arrives.
func (s *Service) SearchTimeLeft(ctx context.Context) time.Duration {
	return trailOf(ctx).arrived.Add(SearchTime).Sub(s.Now())
}
