// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"math"
	"sync"

	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

// outputCache reads the runs of responses, once for all callers that wait for the same run. A budget
// limits their memory. Runs beyond it wait before they are read.
type outputCache struct {
	budget *quota.Budget

	mutex sync.Mutex
	byRun map[store.Key]*cachedOutput
}

// cachedOutput is a run that is being read or written to responses.
type cachedOutput struct {
	run store.Run
	err error

	key     store.Key
	done    chan struct{} // run or err is set
	stop    context.CancelFunc
	readers int
	granted *quota.Grant // nil until done
}

// runReader reads a run.
type runReader func(ctx context.Context) (store.Run, error)

func newOutputCache(bytes int64) *outputCache {
	return &outputCache{budget: quota.NewBudget(bytes, projectShare, math.MaxInt, 0), byRun: map[store.Key]*cachedOutput{}}
}

// loadedOutput returns a small run that is already in memory and needs no budget.
func loadedOutput(run store.Run) *cachedOutput {
	return &cachedOutput{run: run, key: run.Key(), stop: func() {}, readers: 1}
}

// acquireOutput returns a run that was read after its first waiting caller arrived. The caller releases it.
func (o *outputCache) acquireOutput(ctx context.Context, key store.Key, read runReader) (*cachedOutput, error) {
	at, err := o.joinRead(key, read), error(nil)
	select {
	case <-at.done:
		err = at.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		o.releaseOutput(at)
		return nil, err
	}
	return at, nil
}

func (o *outputCache) joinRead(key store.Key, read runReader) *cachedOutput {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	at := o.byRun[key]
	if at == nil {
		// Independent of a request, because the first request may end first.
		ctx, stop := context.WithCancel(context.Background())
		at = &cachedOutput{key: key, done: make(chan struct{}), stop: stop}
		o.byRun[key] = at
		go o.readOutput(ctx, at, read)
	}
	at.readers++
	return at
}

// readOutput reads a run while a caller waits for it.
func (o *outputCache) readOutput(ctx context.Context, at *cachedOutput, read runReader) {
	granted, err := o.budget.Wait(ctx, at.key.ProjectID, store.MaxOutput)
	var run store.Run
	if err == nil {
		run, err = fetchRun(ctx, read)
		granted.Keep(int64(len(run.Output)))
	}
	o.mutex.Lock()
	defer o.mutex.Unlock()
	at.run, at.err, at.granted = run, err, granted
	if err != nil || !run.Status.Terminal() {
		o.forgetOutput(at) // the next caller reads it again
	}
	if at.readers == 0 {
		at.releaseMemory()
	}
	close(at.done)
}

func fetchRun(ctx context.Context, read runReader) (store.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	return read(ctx)
}

// releaseOutput releases a run.
func (o *outputCache) releaseOutput(at *cachedOutput) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if at.readers--; at.readers > 0 {
		return
	}
	at.stop()
	o.forgetOutput(at)
	at.releaseMemory()
}

// forgetOutput makes the next caller read the run again.
func (o *outputCache) forgetOutput(at *cachedOutput) {
	if o.byRun[at.key] == at {
		delete(o.byRun, at.key)
	}
}

// releaseMemory returns the memory of a run to the budget. A run that is being read does it itself.
func (at *cachedOutput) releaseMemory() {
	at.granted.End()
	at.granted = nil
}
