// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"math"
	"sync"

	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

// outputs reads the runs of answers, for whoever waits for the same run once. What
// is in memory of them is within a budget: who is beyond it waits before it is read.
type outputs struct {
	budget *quota.Budget

	mutex sync.Mutex
	byRun map[store.Key]*output
}

// output is a run that is being read, or that answers are written of.
type output struct {
	run store.Run
	err error

	key     store.Key
	done    chan struct{} // run or err is there
	stop    context.CancelFunc
	readers int
	granted *quota.Grant // nil until done
}

// reader reads a run.
type reader func(ctx context.Context) (store.Run, error)

func newOutputs(bytes int64) *outputs {
	return &outputs{budget: quota.NewBudget(bytes, projectShare, math.MaxInt, 0), byRun: map[store.Key]*output{}}
}

// atHand is a run that is in memory already, and small: it waits for no budget.
func atHand(run store.Run) *output {
	return &output{run: run, key: run.Key(), stop: func() {}, readers: 1}
}

// take returns a run, as it was read after the first of those came who have it now.
// The caller gives it back.
func (o *outputs) take(ctx context.Context, key store.Key, read reader) (*output, error) {
	at, err := o.join(key, read), error(nil)
	select {
	case <-at.done:
		err = at.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		o.give(at)
		return nil, err
	}
	return at, nil
}

func (o *outputs) join(key store.Key, read reader) *output {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	at := o.byRun[key]
	if at == nil {
		// Of no request: the one that came first may end first.
		ctx, stop := context.WithCancel(context.Background())
		at = &output{key: key, done: make(chan struct{}), stop: stop}
		o.byRun[key] = at
		go o.work(ctx, at, read)
	}
	at.readers++
	return at
}

// work reads a run, while somebody waits for it.
func (o *outputs) work(ctx context.Context, at *output, read reader) {
	granted, err := o.budget.Wait(ctx, at.key.ProjectID, store.MaxOutput)
	var run store.Run
	if err == nil {
		run, err = fetch(ctx, read)
		granted.Keep(int64(len(run.Output)))
	}
	o.mutex.Lock()
	defer o.mutex.Unlock()
	at.run, at.err, at.granted = run, err, granted
	if err != nil || !run.Status.Terminal() {
		o.forget(at) // it is to be read again
	}
	if at.readers == 0 {
		at.end()
	}
	close(at.done)
}

func fetch(ctx context.Context, read reader) (store.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	return read(ctx)
}

// give gives a run back.
func (o *outputs) give(at *output) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if at.readers--; at.readers > 0 {
		return
	}
	at.stop()
	o.forget(at)
	at.end()
}

// forget lets the next one read a run anew.
func (o *outputs) forget(at *output) {
	if o.byRun[at.key] == at {
		delete(o.byRun, at.key)
	}
}

// end gives back what a run takes of the budget. One that is being read does it
// itself.
func (at *output) end() {
	at.granted.End()
	at.granted = nil
}
