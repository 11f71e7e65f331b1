// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// Of the lists that the store reads at once a project has one part in ReadingShare: what it asks
	// for, however much that reads, leaves the others theirs. readingLine requests of a project are
	// at most under way or wait, for readingPatience.
	ReadingShare    = 2
	readingLine     = 64
	readingPatience = 5 * time.Second
	// SearchTime is how long a search takes, from the arrival of its request on.
	SearchTime = 2 * time.Second
	// readingRetry is what callers are told whose turn did not come.
	readingRetry = readingPatience
)

// NewReadings is the line of what reads history in a store that reads so much of it at once.
func NewReadings(atOnce int, patience time.Duration) *quota.Budget {
	return quota.NewBudget(int64(max(atOnce, 1)), ReadingShare, readingLine, patience)
}

// searcher is the input of a call that may search.
type searcher interface{ Searches() bool }

// waitForReading waits until the project may read history, such as a list or statistics. A search
// waits no longer than its own time.
func (s *Service) waitForReading(ctx context.Context, c *Caller, in any) (end func(), err error) {
	if of, may := in.(searcher); may && of.Searches() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.SearchTimeLeft(ctx), store.ErrSearchBusy)
		defer cancel()
	}
	turn, err := s.Readings.Wait(ctx, c.ProjectID, 1)
	if err != nil {
		return nil, quota.Refusal(err, errManyReadings(http.StatusTooManyRequests), errManyReadings(http.StatusServiceUnavailable))
	}
	return turn.End, nil
}

// SearchTimeLeft returns the remaining time of a search, which starts when its request arrives.
func (s *Service) SearchTimeLeft(ctx context.Context) time.Duration {
	return trailOf(ctx).arrived.Add(SearchTime).Sub(s.Now())
}

func errManyReadings(status int) Problem {
	code := httpserver.CodeBusy
	if status == http.StatusTooManyRequests {
		code = httpserver.CodeRateLimited
	}
	p := NewProblem(status, code, "too many concurrent requests for lists and statistics; try again")
	p.RetryAfter = readingRetry
	return p
}
