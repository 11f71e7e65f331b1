// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

// Limits of the facade. huma limits bodies to 1 MiB and 5 s.
const (
	// RateWindow is the window of the plan's RequestsPerMinute.
	RateWindow = time.Minute
	// MaxRequestTime limits a request. If Kubernetes or the store hangs, the response is 503.
	MaxRequestTime = 30 * time.Second
	// KeyCacheTime is how long a found key is not looked up again.
	KeyCacheTime = 5 * time.Second
	// ReviewCacheTime is how long an access review of Kubernetes is cached.
	ReviewCacheTime = 30 * time.Second
	// reviewsAtOnce limits the concurrent access reviews of one call.
	reviewsAtOnce = 8
	// cacheSize is the most entries of a cache.
	cacheSize = 10_000
	// readyTimeout is how long a create waits for the controllers, and readyInterval the poll interval.
	readyTimeout, readyInterval = 2 * time.Second, 50 * time.Millisecond
	// UndoTimeout limits the deletion of the objects of a failed request.
	UndoTimeout = 5 * time.Second
	// auditTimeout limits writes to the audit log, even if the client has disconnected.
	auditTimeout = 5 * time.Second
	// MaxIdempotencyKey is the most characters of an Idempotency-Key.
	MaxIdempotencyKey = 255
)

// takeRequest counts a request of a project and sets the RateLimit headers of the IETF draft. The store has the limit of
// the plan, because tenants may be able to write the status of their Project. Requests with status 403 or 405 count
// toward a separate window, so that a key with few permissions does not use up the requests of other keys. That window
// has the default limit, regardless of the plan.
func (s *Service) takeRequest(ctx context.Context, c *Caller, refused bool) error {
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

// LimitProblem returns the response if err says that the project (429) or all projects together (503) have reached a limit. It
// returns any other err as it is.
func LimitProblem(err error, detail string, retryAfter time.Duration) error {
	project := NewProblem(http.StatusTooManyRequests, httpserver.CodeRateLimited, detail)
	all := NewProblem(http.StatusServiceUnavailable, httpserver.CodeBusy, detail)
	project.RetryAfter, all.RetryAfter = retryAfter, retryAfter
	return quota.Refusal(err, project, all)
}
