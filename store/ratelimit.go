// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// RateLimit is the number of requests that a project may make in any period of the window's length.
type RateLimit struct {
	// Requests is the default for a project without a limit in its ProjectLimits.
	Requests int
	Window   time.Duration
}

// RateVerdict is the result for a request.
type RateVerdict struct {
	// Limit is the number of requests that the project may make in a window.
	Limit int
	// Allowed means that the request counts and may continue. A rejected request does not count.
	Allowed bool
	// Remaining is the number of further requests that would be allowed now.
	Remaining int
	// Reset is the time until the oldest counted request leaves the window, which allows one more
	// request.
	Reset time.Duration
}

// RateLimiter counts requests over all processes that share the store, by the store's clock. It
// never waits for a disk, so a crash of the database loses the counts of the last window.
type RateLimiter interface {
	// TakeRequest counts a request of a project if its ProjectLimits, or else limit, allow it.
	TakeRequest(ctx context.Context, projectID uuid.UUID, limit RateLimit) (RateVerdict, error)
}

// sweepAbove is the number of windows above which expired ones are removed.
const sweepAbove = 1024

// RateWindows is a RateLimiter in the memory of a process, for a store that no other process
// shares. It has no ProjectLimits. The zero value is ready.
type RateWindows struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	mutex sync.Mutex
	// taken are the counted requests, oldest first.
	taken map[uuid.UUID][]time.Time
	swept time.Time
}

// TakeRequest implements RateLimiter; it never fails.
func (w *RateWindows) TakeRequest(_ context.Context, projectID uuid.UUID, limit RateLimit) (RateVerdict, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	now := time.Now()
	if w.Now != nil {
		now = w.Now()
	}
	if w.taken == nil {
		w.taken = map[uuid.UUID][]time.Time{}
	}
	w.removeIdle(now, limit.Window)
	counted := slices.DeleteFunc(w.taken[projectID], func(at time.Time) bool { return now.Sub(at) >= limit.Window })
	verdict := RateVerdict{Limit: limit.Requests, Allowed: len(counted) < limit.Requests}
	if verdict.Allowed {
		counted = append(counted, now)
	}
	w.taken[projectID] = counted
	verdict.Remaining = max(limit.Requests-len(counted), 0)
	if len(counted) > 0 {
		verdict.Reset = counted[0].Add(limit.Window).Sub(now)
	}
	return verdict, nil
}

// removeIdle removes projects without counted requests, at most once per window.
func (w *RateWindows) removeIdle(now time.Time, window time.Duration) {
	if len(w.taken) < sweepAbove || now.Sub(w.swept) < window {
		return
	}
	w.swept = now
	for project, taken := range w.taken {
		if len(taken) == 0 || now.Sub(taken[len(taken)-1]) >= window {
			delete(w.taken, project)
		}
	}
}
