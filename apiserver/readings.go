// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"time"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// Of the lists that the store reads at once a project has one part in readingShare: what it asks
	// for, however much that reads, leaves the others theirs. readingLine requests of a project are
	// at most under way or wait, for readingPatience.
	readingShare    = 2
	readingLine     = 64
	readingPatience = 5 * time.Second
	// readingRetry is what callers are told whose turn did not come.
	readingRetry = readingPatience
)

// newReadings is the line of what reads history in a store that reads so much of it at once.
func newReadings(atOnce int, patience time.Duration) *quota.Budget {
	return quota.NewBudget(int64(max(atOnce, 1)), readingShare, readingLine, patience)
}

// searcher is the input of a call that may search.
type searcher interface{ searches() bool }

// ofHistory is a handler that reads history, as lists and statistics do: in the turn of its project. A
// search waits for its turn no longer than its own time.
func ofHistory[I, T any](f func(*Server, context.Context, *caller, *I) (answer[T], error)) func(*Server, context.Context, *caller, *I) (answer[T], error) {
	return func(s *Server, ctx context.Context, c *caller, in *I) (answer[T], error) {
		waiting := ctx
		if of, may := any(in).(searcher); may && of.searches() {
			var cancel context.CancelFunc
			waiting, cancel = context.WithTimeoutCause(ctx, s.searchLeft(ctx), store.ErrSearchBusy)
			defer cancel()
		}
		turn, err := s.readings.Wait(waiting, c.projectID, 1)
		if err != nil {
			return answer[T]{}, quota.Refusal(err, errManyReadings(http.StatusTooManyRequests), errManyReadings(http.StatusServiceUnavailable))
		}
		defer turn.End()
		return f(s, ctx, c, in)
	}
}

func errManyReadings(status int) Problem {
	code := httpserver.CodeBusy
	if status == http.StatusTooManyRequests {
		code = httpserver.CodeRateLimited
	}
	p := problem(status, code, "as many lists and statistics as may are being read at the moment; try again")
	p.RetryAfter = readingRetry
	return p
}
