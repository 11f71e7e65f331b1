// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// presenceInterval is the interval for recording all waiting runners in one batch, and for checking
	// their queues in case a hint was lost.
	presenceInterval = 20 * time.Second
	// presenceTimeout limits this batch.
	presenceTimeout = 10 * time.Second
	// presenceChunk is the number of runners per statement.
	presenceChunk = 500
	// emptyResultTTL is how long an empty claim result is repeated without a store query, unless a hint
	// reports work.
	emptyResultTTL = 5 * time.Minute
)

// idleRunners has the runners whose claims wait.
type idleRunners struct {
	mutex   sync.Mutex
	waiting map[store.RunnerKey]int
	// known counts the invalidations of all cached empty results.
	known uint64
	// emptyResults has the runners with an empty claim result.
	emptyResults *cache.Cache[store.RunnerKey, emptyResult]
}

// emptyResult is the request of a runner with an empty result, and the number of hints at that time.
type emptyResult struct {
	requestHash [sha256.Size]byte
	queuedHints uint64
	known       uint64 // of idleRunners
}

func newIdleRunners() *idleRunners {
	return &idleRunners{waiting: map[store.RunnerKey]int{}, emptyResults: cache.New[store.RunnerKey, emptyResult](maxRecent, emptyResultTTL, nil)}
}

// addWaiting counts a waiting claim until leave is called.
func (a *idleRunners) addWaiting(runner store.RunnerKey) (leave func()) {
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

// waitingRunners returns the waiting runners.
func (a *idleRunners) waitingRunners() []store.RunnerKey {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return slices.Collect(maps.Keys(a.waiting))
}

// requestHash returns a digest of the fields of a request that affect its result.
func requestHash(req dispatchapi.ClaimRequest) [sha256.Size]byte {
	text, _ := json.Marshal([]any{req.Digests, req.Refused, req.Slots}) // these types can always be marshalled
	return sha256.Sum256(text)
}

// rememberEmpty records that a runner got an empty result.
func (a *idleRunners) rememberEmpty(runner store.RunnerKey, req dispatchapi.ClaimRequest, rung uint64) {
	a.emptyResults.Put(runner, emptyResult{requestHash(req), rung, a.generation()})
}

func (a *idleRunners) generation() uint64 {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.known
}

// invalidateAll makes all runners query the store again.
func (a *idleRunners) invalidateAll() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.known++
}

// invalidate makes the next request of a runner query the store.
func (a *idleRunners) invalidate(runner store.RunnerKey) { a.emptyResults.Put(runner, emptyResult{}) }

// isStillEmpty reports whether the result for a runner is still empty: it holds no run that could be lost,
// its last response arrived, its request has not changed, and there was no hint since.
func (a *idleRunners) isStillEmpty(runner store.RunnerKey, req dispatchapi.ClaimRequest, rung uint64) bool {
	q, known := a.emptyResults.Get(runner)
	return known && len(req.Holding) == 0 && !req.Unanswered && q == emptyResult{requestHash(req), rung, a.generation()}
}

// recordWaitingRunners records the waiting runners at intervals and wakes the runners with work, until ctx ends.
func (h *Handler) recordWaitingRunners(ctx context.Context) {
	ticks := time.NewTicker(presenceInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
		if err := h.recordPresence(ctx); err != nil && ctx.Err() == nil {
			h.opts.Logger.Error("recording the waiting runners", "error", err)
			// Waiting runners learn that the store is unavailable, and connect to another replica.
			h.idleRunners.invalidateAll()
			h.wakeups.wakeAll()
		}
	}
}

func (h *Handler) recordPresence(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, presenceTimeout)
	defer cancel()
	runners := h.idleRunners.waitingRunners()
	for len(runners) > 0 {
		n := min(len(runners), presenceChunk)
		queued, err := h.opts.Store.Attend(ctx, runners[:n])
		if err != nil {
			return err
		}
		for _, environment := range queued {
			h.wakeups.notifyEnvironment(environment)
		}
		runners = runners[n:]
	}
	return nil
}
