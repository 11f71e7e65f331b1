// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// ratePromises are about store.RateLimiter.
var ratePromises = []promise{
	{"a burst is allowed up to the limit", burstStopsAtTheLimit},
	{"concurrent requests share one limit", sharedByAllWhoAsk},
	{"a project's own limit replaces the default with the next request", ownLimit},
	{"an old window does not count", windowEnds},
}

var perHour = store.RateLimit{Requests: 5, Window: time.Hour}

func (w *world) takeRate(project uuid.UUID, limit store.RateLimit) store.RateVerdict {
	verdict, err := w.s.TakeRequest(w.ctx, project, limit)
	w.NoError(err)
	return verdict
}

func burstStopsAtTheLimit(w *world) {
	for i := range perHour.Requests {
		verdict := w.takeRate(w.project.ID, perHour)
		w.True(verdict.Allowed)
		w.Equal(perHour.Requests-i-1, verdict.Remaining)
		w.Positive(verdict.Reset)
		w.LessOrEqual(verdict.Reset, perHour.Window)
	}
	for range 3 {
		verdict := w.takeRate(w.project.ID, perHour)
		w.False(verdict.Allowed)
		w.Zero(verdict.Remaining)
		w.Positive(verdict.Reset)
		w.LessOrEqual(verdict.Reset, perHour.Window)
	}
	w.True(w.takeRate(uuid.New(), perHour).Allowed, "another project has its own count")
	lowered := store.RateLimit{Requests: 2, Window: time.Hour}
	w.False(w.takeRate(w.project.ID, lowered).Allowed)
	raised := store.RateLimit{Requests: 6, Window: time.Hour}
	w.Equal(store.RateVerdict{Limit: 6, Allowed: true}, w.without(w.takeRate(w.project.ID, raised)))
}

// without drops the time, which is the database's.
func (w *world) without(v store.RateVerdict) store.RateVerdict {
	v.Reset = 0
	return v
}

func sharedByAllWhoAsk(w *world) {
	var (
		group   sync.WaitGroup
		allowed atomic.Int64
	)
	for range 10 {
		group.Go(func() {
			for range 10 {
				if verdict, err := w.s.TakeRequest(w.ctx, w.project.ID, perHour); err == nil && verdict.Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	group.Wait()
	w.EqualValues(perHour.Requests, allowed.Load())
}

func ownLimit(w *world) {
	put := func(requests int64) {
		w.project.Limits.RequestsPerMinute = requests
		w.NoError(w.s.PutProject(w.ctx, w.project))
	}
	for _, step := range []struct {
		own  int64
		want store.RateVerdict
	}{
		{0, store.RateVerdict{Limit: 5, Allowed: true, Remaining: 4}},
		{2, store.RateVerdict{Limit: 2, Allowed: true}},
		{2, store.RateVerdict{Limit: 2}},
		{9, store.RateVerdict{Limit: 9, Allowed: true, Remaining: 6}},
		{1, store.RateVerdict{Limit: 1}},
		{0, store.RateVerdict{Limit: 5, Allowed: true, Remaining: 1}},
	} {
		put(step.own)
		w.Equal(step.want, w.without(w.takeRate(w.project.ID, perHour)))
	}
	put(1)
	w.Equal(store.RateVerdict{Limit: 5, Allowed: true, Remaining: 4}, w.without(w.takeRate(uuid.New(), perHour)), "for an unknown project")
	w.NoError(w.s.Remove(w.ctx, w.project.ID, w.project.Ref))
	w.Equal(store.RateVerdict{Limit: 5, Allowed: true}, w.without(w.takeRate(w.project.ID, perHour)), "nor for a deleted project")
}

func windowEnds(w *world) {
	short := store.RateLimit{Requests: 1, Window: time.Millisecond}
	w.True(w.takeRate(w.project.ID, short).Allowed)
	w.Eventually(func() bool { return w.takeRate(w.project.ID, short).Allowed }, 10*time.Second, time.Millisecond)
}
