// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// Limits of the facade. The limits of bodies are huma's: 1 MiB and 5 s.
const (
	// RateWindow is the stretch of time of which the plan's RequestsPerMinute is the limit.
	RateWindow = time.Minute
	// MaxRequestTime is how long a request may take in all; Kubernetes or a store that
	// hangs is answered 503 then.
	MaxRequestTime = 30 * time.Second
	// KeyCacheTime is how long a key that was found is not looked up again.
	KeyCacheTime = 5 * time.Second
	// ReviewCacheTime is how long Kubernetes' word about an owner holds.
	ReviewCacheTime = 30 * time.Second
	// reviewsAtOnce bounds the questions asked for one answer.
	reviewsAtOnce = 8
	// cacheSize is the most entries of a cache.
	cacheSize = 10_000
	// readyTimeout is how long a create waits for the controllers, and readyInterval
	// how often it looks.
	readyTimeout, readyInterval = 2 * time.Second, 50 * time.Millisecond
	// UndoTimeout bounds taking back what a failed create left.
	UndoTimeout = 5 * time.Second
	// auditTimeout bounds writing to the audit log, also for a client that has gone.
	auditTimeout = 5 * time.Second
	// MaxIdempotencyKey is the most characters of an Idempotency-Key.
	MaxIdempotencyKey = 255
)

// take counts a request of a project, and says in the headers of the answer, in the
// form of the IETF's draft, what is left. How many it may make, the store knows from
// the controllers; no status is asked, which tenants may be able to write. A request that the door
// answers 403 or 405 counts in a window of its own, so that a key that may do little does not
// use up the requests of all others. That window has the usual size, whatever the plan says.
func (s *Service) take(ctx context.Context, c *Caller, refused bool) error {
	header := trailOf(ctx).header
	of, policy, detail := c.ProjectID, "project", "the project has reached its limit of %d requests per minute; wait and try again"
	if refused {
		of, policy = uuid.NewSHA1(c.ProjectID, []byte("forbidden")), "forbidden"
		detail = "the project has reached its limit of %d requests per minute with status 403 or 405; give the key the permissions that it needs"
	}
	verdict, err := s.Store.TakeRequest(ctx, of, store.RateLimit{Requests: s.RequestsPerMinute, Window: RateWindow})
	if err != nil {
		return fmt.Errorf("counting the request: %w", err)
	}
	header.Set("RateLimit-Policy", fmt.Sprintf(`"%s";q=%d;w=%d`, policy, verdict.Limit, int(RateWindow.Seconds())))
	reset := max(verdict.Reset, 0)
	header.Set("RateLimit", fmt.Sprintf(`"%s";r=%d;t=%d`, policy, verdict.Remaining, httpserver.WholeSeconds(reset)))
	if verdict.Allowed {
		return nil
	}
	p := NewProblem(http.StatusTooManyRequests, httpserver.CodeRateLimited, fmt.Sprintf(detail, verdict.Limit))
	p.RetryAfter = max(reset, time.Second)
	return p
}
