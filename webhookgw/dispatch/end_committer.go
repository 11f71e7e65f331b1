// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxEnds and maxEndBytes limit the completions that share a transaction. The first one always
	// fits.
	maxEnds     = 128
	maxEndBytes = 4 << 20
	// maxWaitingEnds limits the bytes of completions that wait or are being stored. A project gets
	// a share. Each completion counts endOverhead in addition to its data.
	maxWaitingEnds = 32 << 20
	endOverhead    = 1 << 10
	// maxSeparate limits the projects whose completions are stored separately at the same time.
	// separateTime is how long a project stays separate.
	maxSeparate  = 4
	separateTime = time.Minute
	// endTimeout limits a transaction.
	endTimeout = 20 * time.Second
)

var errStopped = errors.New("the gateway is stopping")

// endCommitter stores runs that end at the same time in one transaction. If the store is idle, a run does
// not wait for other runs. If the store is busy, one fsync serves many runs. Projects take turns round-robin.
//
// If a batch fails, its completions are stored one by one, and the whole batch waits. These
// completions are therefore stored beside the common batch:
//
//   - completions of a project with a failed completion, for separateTime
//   - completions of a failed batch
//   - completions of a run that was already reported as ended
//   - completions with texts that are first stored as blobs
type endCommitter struct {
	store    store.Dispatch
	capacity *quota.SlotSet
	arrived  chan struct{} // capacity 1: a batch may be ready
	suspect  *cache.Cache[uuid.UUID, struct{}]

	mutex            sync.Mutex
	common, separate endQueues
	busy             bool               // with a batch of all projects
	busySeparate     map[uuid.UUID]bool // with a batch of one project
	stopped          bool
}

// pendingEnd is a completion that waits for its result.
type pendingEnd struct {
	completion store.Completion
	size       int64
	release    func()
	answer     chan error // capacity 1
}

// answerCaller sends the result and frees the memory.
func (e *pendingEnd) answerCaller(err error) {
	e.release()
	e.answer <- err
}

func newEndCommitter(dispatch store.Dispatch) *endCommitter {
	return &endCommitter{
		store: dispatch, capacity: quota.NewSlotSet(maxWaitingEnds, projectShare), arrived: make(chan struct{}, 1),
		suspect: cache.New[uuid.UUID, struct{}](maxRecent, separateTime, nil),
		common:  newEndQueues(), separate: newEndQueues(), busySeparate: map[uuid.UUID]bool{},
	}
}

// complete ends a run. again means that the end of the run was reported before. It returns a Problem if there
// is no capacity.
func (e *endCommitter) complete(ctx context.Context, c store.Completion, again bool) error {
	own := &pendingEnd{completion: c, size: completionSize(c), answer: make(chan error, 1)}
	if err := e.capacity.Take(c.Run.ProjectID, own.size); err != nil {
		return quota.Refusal(err, errProjectInFlight, errInFlight)
	}
	own.release = func() { e.capacity.Give(c.Run.ProjectID, own.size) }
	e.enqueueEnd(own, again)
	select {
	case err := <-own.answer:
		return err
	case <-ctx.Done(): // the run ends anyway, and a retry gets the result
		return context.Cause(ctx)
	}
}

func (e *endCommitter) enqueueEnd(own *pendingEnd, again bool) {
	_, suspect := e.suspect.Get(own.completion.Run.ProjectID)
	e.mutex.Lock()
	defer e.mutex.Unlock()
	switch {
	case e.stopped:
		own.answerCaller(errStopped)
		return
	case suspect || again || isLarge(own.completion):
		e.separate.pushEnd(own)
	default:
		e.common.pushEnd(own)
	}
	e.notifyLoop()
}

func (e *endCommitter) notifyLoop() {
	select {
	case e.arrived <- struct{}{}:
	default: // already notified
	}
}

// isLarge reports whether a completion writes blobs before its transaction.
func isLarge(c store.Completion) bool {
	return len(c.Output) > store.MaxInlineText ||
		slices.ContainsFunc(c.Journal, func(e store.JournalEntry) bool { return len(e.Data) > store.MaxInlineText })
}

func completionSize(c store.Completion) int64 {
	n := int64(endOverhead + len(c.Output) + len(c.Error))
	for _, entry := range c.Journal {
		n += entry.Size()
	}
	return n
}

// runLoop stores completions until ctx ends. Then it fails the waiting ones.
func (e *endCommitter) runLoop(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-e.arrived:
			for batch := e.nextBatch(); batch != nil; batch = e.nextBatch() {
				group.Go(func() { e.storeBatch(ctx, batch) })
			}
		case <-ctx.Done():
			e.failWaiting()
			return
		}
	}
}

func (e *endCommitter) failWaiting() {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.stopped = true
	for _, own := range append(e.common.All(), e.separate.All()...) {
		own.answerCaller(errStopped)
	}
}

// endBatch is a set of completions for one transaction.
type endBatch struct {
	ends     []*pendingEnd
	separate bool // all of one project
}

func (b *endBatch) project() uuid.UUID { return b.ends[0].completion.Run.ProjectID }

// hasSeveralProjects reports whether a batch has completions of several projects.
func (b *endBatch) hasSeveralProjects() bool {
	return slices.ContainsFunc(b.ends, func(own *pendingEnd) bool { return own.completion.Run.ProjectID != b.project() })
}

// nextBatch returns a batch that can be stored beside the running ones, or nil.
func (e *endCommitter) nextBatch() *endBatch {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if !e.busy {
		if taken := e.common.collect(); len(taken) > 0 {
			e.busy = true
			return &endBatch{ends: taken}
		}
	}
	for project := range e.separate.Projects() {
		if len(e.busySeparate) < maxSeparate && !e.busySeparate[project] {
			e.busySeparate[project] = true
			return &endBatch{ends: e.separate.collectOf(project), separate: true}
		}
	}
	return nil
}

// storeBatch stores a batch and sends the results.
func (e *endCommitter) storeBatch(ctx context.Context, b *endBatch) {
	within, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	completions := make([]store.Completion, len(b.ends))
	for i, own := range b.ends {
		completions[i] = own.completion
	}
	answers, err := e.store.Complete(within, completions)
	if err == nil && len(answers) != len(b.ends) {
		err = fmt.Errorf("store answered %d of %d completions", len(answers), len(b.ends))
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if b.separate {
		delete(e.busySeparate, b.project())
	} else {
		e.busy = false
	}
	e.notifyLoop()
	for i, own := range b.ends {
		switch {
		case err != nil && b.hasSeveralProjects() && !e.stopped: // one of them may be the cause, so each project is stored separately
			e.separate.pushEnd(own)
		default:
			failed := err
			if failed == nil {
				failed = answers[i]
			}
			if failed != nil {
				e.suspect.Put(own.completion.Run.ProjectID, struct{}{})
			}
			own.answerCaller(failed)
		}
	}
}

// endQueues is the queue of completions, round-robin over projects.
type endQueues struct{ quota.FairQueue[*pendingEnd] }

func newEndQueues() endQueues { return endQueues{quota.NewFairQueue[*pendingEnd]()} }

func (l *endQueues) pushEnd(e *pendingEnd) { l.Push(e.completion.Run.ProjectID, e) }

// collect returns a batch of all projects in turn, within the limits of a batch.
func (l *endQueues) collect() []*pendingEnd {
	return l.fillBatch(l.Next)
}

// collectOf returns a batch of one project.
func (l *endQueues) collectOf(project uuid.UUID) []*pendingEnd {
	return l.fillBatch(func() (uuid.UUID, *pendingEnd, bool) {
		first, ok := l.First(project)
		return project, first, ok
	})
}

func (l *endQueues) fillBatch(next func() (uuid.UUID, *pendingEnd, bool)) (batch []*pendingEnd) {
	var size int64
	for len(batch) < maxEnds {
		project, e, ok := next()
		if !ok || len(batch) > 0 && size+e.size > maxEndBytes {
			break
		}
		size += e.size
		batch = append(batch, l.Pop(project))
	}
	return batch
}
