// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// Limits of the facade. Those of bodies are huma's: 1 MiB and 5 s.
const (
	// rateWindow is the stretch of time of which the plan's requestsPerMinute is the limit.
	rateWindow = time.Minute
	// requestTime is how long a request may take in all; Kubernetes or a store that
	// hangs is answered 503 then.
	requestTime = 30 * time.Second
	// keyCacheTime is how long a key that was found is not looked up again.
	keyCacheTime = 5 * time.Second
	// reviewCacheTime is how long Kubernetes' word about an owner holds.
	reviewCacheTime = 30 * time.Second
	// reviewsAtOnce bounds the questions asked for one answer.
	reviewsAtOnce = 8
	// cacheSize is the most entries of a cache.
	cacheSize = 10_000
	// readyTimeout is how long a create waits for the controllers, and readyInterval
	// how often it looks.
	readyTimeout, readyInterval = 2 * time.Second, 50 * time.Millisecond
	// undoTimeout bounds taking back what a failed create left.
	undoTimeout = 5 * time.Second
	// auditTimeout bounds writing to the audit log, also for a client that has gone.
	auditTimeout = 5 * time.Second
	// maxIdempotencyKey is the most characters of an Idempotency-Key.
	maxIdempotencyKey = 255
	// maxShownInput is the most bytes of an input that an answer repeats.
	maxShownInput = 1 << 20
)

// take counts a request of a project, and says in the headers of the answer, in the
// form of the IETF's draft, what is left.
func (s *Server) take(ctx context.Context, c *caller) error {
	header := trailOf(ctx).header
	limit := store.RateLimit{Requests: s.requestsOf(c.namespace), Window: rateWindow}
	header.Set("RateLimit-Policy", fmt.Sprintf(`"project";q=%d;w=%d`, limit.Requests, int(limit.Window.Seconds())))
	verdict, err := s.store.TakeRequest(ctx, c.projectID, limit)
	if err != nil {
		return fmt.Errorf("counting the request: %w", err)
	}
	reset := max(verdict.Reset, 0)
	header.Set("RateLimit", fmt.Sprintf(`"project";r=%d;t=%d`, verdict.Remaining, httpserver.WholeSeconds(reset)))
	if verdict.Allowed {
		return nil
	}
	p := problem(http.StatusTooManyRequests, httpserver.CodeRateLimited,
		fmt.Sprintf("the project has made %d requests in the last minute, as many as it may; wait and try again", limit.Requests))
	p.RetryAfter = max(reset, time.Second)
	return p
}

// requestsOf is how many requests the project of a namespace may make in a rateWindow:
// as its status shows, which the controllers alone write, else as is usual. It asks the
// informers alone, as every request does.
func (s *Server) requestsOf(namespace string) int {
	if project := s.index.knownProject(namespace); project != nil && project.Status.Limits.RequestsPerMinute != nil {
		return int(*project.Status.Limits.RequestsPerMinute)
	}
	return s.requestsPerMinute
}
