// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// RateLimit is how many requests of a project are let through in any stretch of
// time of the window's length.
type RateLimit struct {
	// Requests is the figure of a project whose ProjectLimits have none.
	Requests int
	Window   time.Duration
}

// RateVerdict is what became of a request.
type RateVerdict struct {
	// Limit is how many requests the project may make in a window.
	Limit int
	// Allowed says that the request counts and may go on; one that is refused
	// does not count.
	Allowed bool
	// Remaining is how many more are let through at this moment.
	Remaining int
	// Reset is when the oldest request that counts leaves the window, and so one
	// more is let through than now.
	Reset time.Duration
}

// RateLimiter counts requests, over all processes that share the store, by the
// store's clock. It never waits for a disk: what a crash of the database loses is
// the count of the last window.
type RateLimiter interface {
	// TakeRequest counts a request of a project where its ProjectLimits allow it, else
	// the limit.
	TakeRequest(ctx context.Context, projectID uuid.UUID, limit RateLimit) (RateVerdict, error)
}

// sweepAbove is how many projects' windows are kept before those that are over
// are looked for.
const sweepAbove = 1024

// RateWindows is a RateLimiter in the memory of a process, for a store that no
// other process shares, which knows no ProjectLimits. The zero value is ready.
type RateWindows struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	mutex sync.Mutex
	// taken are the requests that count, oldest first.
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
	w.sweep(now, limit.Window)
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

// sweep forgets projects of which nothing counts any more, at most once a window.
func (w *RateWindows) sweep(now time.Time, window time.Duration) {
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
