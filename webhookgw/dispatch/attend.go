// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// attendEvery is how often all runners that wait are recorded as there, at once,
	// and their queues looked at in case a hint was lost.
	attendEvery = 20 * time.Second
	// attendTimeout bounds that.
	attendTimeout = 10 * time.Second
	// attendChunk is how many runners one statement names.
	attendChunk = 500
	// quietFor is how long a runner that was told there is nothing is told so again
	// without asking the store, while no hint says otherwise.
	quietFor = 5 * time.Minute
)

// attendance is the runners whose claims wait.
type attendance struct {
	mutex   sync.Mutex
	waiting map[store.RunnerKey]int
	// known counts how often nothing was known any more of what is queued.
	known uint64
	// quiet are those that were told there is nothing.
	quiet *cache.Cache[store.RunnerKey, quiet]
}

// quiet is what a runner said as it was told that there is nothing, and how many
// hints there had been.
type quiet struct {
	said  [sha256.Size]byte
	rung  uint64
	known uint64 // attendance's
}

func newAttendance() *attendance {
	return &attendance{waiting: map[store.RunnerKey]int{}, quiet: cache.New[store.RunnerKey, quiet](maxRecent, quietFor, nil)}
}

// wait counts a waiting claim until leave is called.
func (a *attendance) wait(runner store.RunnerKey) (leave func()) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.waiting[runner]++
	return func() {
		a.mutex.Lock()
		defer a.mutex.Unlock()
		if a.waiting[runner]--; a.waiting[runner] == 0 {
			delete(a.waiting, runner)
		}
	}
}

// all are the runners that wait.
func (a *attendance) all() []store.RunnerKey {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	runners := make([]store.RunnerKey, 0, len(a.waiting))
	for runner := range a.waiting {
		runners = append(runners, runner)
	}
	return runners
}

// said is what of a request decides, beside the store, what its answer is.
func said(req dispatchapi.ClaimRequest) [sha256.Size]byte {
	text, _ := json.Marshal([]any{req.Digests, req.Refused, req.Places}) // all of it can be marshalled
	return sha256.Sum256(text)
}

// told remembers that a runner was told there is nothing.
func (a *attendance) told(runner store.RunnerKey, req dispatchapi.ClaimRequest, rung uint64) {
	a.quiet.Put(runner, quiet{said(req), rung, a.knows()})
}

func (a *attendance) knows() uint64 {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.known
}

// doubt lets all ask the store again.
func (a *attendance) doubt() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.known++
}

// forget lets a runner's next request ask the store.
func (a *attendance) forget(runner store.RunnerKey) { a.quiet.Put(runner, quiet{}) }

// still says whether there is nothing for a runner yet: it holds nothing that could be
// lost, nothing was lost on its way to it, it says what it said before, and no hint has
// come since.
func (a *attendance) still(runner store.RunnerKey, req dispatchapi.ClaimRequest, rung uint64) bool {
	q, known := a.quiet.Get(runner)
	return known && len(req.Holding) == 0 && !req.Unanswered && q == quiet{said(req), rung, a.knows()}
}

// attend records the runners that wait at intervals, and wakes those for whom there
// is something, until ctx ends.
func (h *Handler) attend(ctx context.Context) {
	ticks := time.NewTicker(attendEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
		if err := h.attendOnce(ctx); err != nil && ctx.Err() == nil {
			h.opts.Logger.Error("recording the runners that wait", "error", err)
			// Whoever waits hears that the store is away, and goes where it is not.
			h.attendance.doubt()
			h.wakeups.wakeAll()
		}
	}
}

func (h *Handler) attendOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attendTimeout)
	defer cancel()
	runners := h.attendance.all()
	for len(runners) > 0 {
		n := min(len(runners), attendChunk)
		queued, err := h.opts.Store.Attend(ctx, runners[:n])
		if err != nil {
			return err
		}
		for _, environment := range queued {
			h.wakeups.wake(environment)
		}
		runners = runners[n:]
	}
	return nil
}
