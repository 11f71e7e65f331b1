// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/handoff"
)

// committer stores requests that wait at the same time in one transaction. One goroutine takes all
// waiting events, stores them and answers each. If the store is idle, a request does not wait for
// others. If it is busy, one fsync serves many. The number and the bytes of waiting events are
// limited, in total and per project, and projects take turns round-robin. So a hanging store uses
// limited memory, and a busy project delays only itself.
type committer struct {
	ingest  store.Ingest
	runners *handoff.Runners
	metrics *metrics.Gateway
	now     func() time.Time
	arrived chan struct{} // capacity 1: something waits
	// events and bytes count each event until its response, including events that are being stored.
	events, bytes *quota.SlotSet

	mutex   sync.Mutex
	waiting quota.FairQueue[*pendingEvent]
	stopped bool
}

var errStopped = errors.New("the gateway is stopping")

func newCommitter(ingest store.Ingest, runners *handoff.Runners, counted *metrics.Gateway, now func() time.Time) *committer {
	return &committer{
		ingest: ingest, runners: runners, metrics: counted, now: now, arrived: make(chan struct{}, 1),
		events: quota.NewSlotSet(maxWaiting, projectShare), bytes: quota.NewSlotSet(maxWaitingBytes, projectShare), waiting: quota.NewFairQueue[*pendingEvent](),
	}
}

// commitEvent stores an event. A Problem means that there is no capacity. Another error means that
// nothing was stored or the outcome is unknown, so the caller must not get a success.
func (c *committer) commitEvent(ctx context.Context, event store.Event) (store.Admission, error) {
	p := &pendingEvent{ctx: ctx, since: c.now(), event: event, answer: make(chan commitAnswer, 1)}
	if err := c.enqueueEvent(p); err != nil {
		return store.Admission{}, err
	}
	select {
	case a := <-p.answer:
		if a.err == nil {
			a.err = a.admission.Err
		}
		return a.admission, a.err
	case <-ctx.Done(): // the batch continues without this request
		return store.Admission{}, context.Cause(ctx)
	}
}

// enqueueEvent queues an event if there is capacity.
func (c *committer) enqueueEvent(p *pendingEvent) error {
	project, size := p.event.ProjectID, int64(len(p.event.Input))
	if err := quota.Refusal(c.events.Take(project, 1), errManyWait, errAllWait); err != nil {
		return err
	}
	if err := quota.Refusal(c.bytes.Take(project, size), errManyWait, errAllWait); err != nil {
		c.events.Give(project, 1)
		return err
	}
	c.metrics.CommitWaits()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.stopped {
		c.answerEvent(p, commitAnswer{err: errStopped})
		return nil
	}
	c.waiting.Push(project, p)
	select {
	case c.arrived <- struct{}{}:
	default: // already notified
	}
	return nil
}

// answerEvent sends the result of an event and frees its capacity.
func (c *committer) answerEvent(p *pendingEvent, a commitAnswer) {
	c.events.Give(p.event.ProjectID, 1)
	c.bytes.Give(p.event.ProjectID, int64(len(p.event.Input)))
	c.metrics.CommitAnswered()
	p.answer <- a
}

// runLoop commits batches until ctx ends. Then it fails the waiting events.
func (c *committer) runLoop(ctx context.Context) {
	for {
		select {
		case <-c.arrived:
			for ctx.Err() == nil && c.runOnce(ctx) {
			}
		case <-ctx.Done():
			c.failWaiting()
			return
		}
	}
}

// runOnce commits one batch of waiting events. It reports whether there was one.
func (c *committer) runOnce(ctx context.Context) bool {
	c.mutex.Lock()
	batch, gone := collect(&c.waiting, c.now())
	c.mutex.Unlock()
	for _, p := range gone {
		c.answerEvent(p, commitAnswer{err: context.Cause(p.ctx)})
	}
	if len(batch) > 0 {
		c.storeBatch(ctx, batch)
	}
	return len(batch) > 0
}

func (c *committer) failWaiting() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.stopped = true
	for _, p := range c.waiting.All() {
		c.answerEvent(p, commitAnswer{err: errStopped})
	}
}

func (c *committer) storeBatch(ctx context.Context, batch []*batchEntry) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	events := make([]store.Event, len(batch))
	for i, e := range batch {
		events[i] = e.event
	}
	runners := c.holdRunners(events)
	begin := time.Now()
	admissions, err := c.ingest.Accept(ctx, events)
	runners.releaseRunners(admissions)
	c.metrics.Committed(len(batch), time.Since(begin), err)
	if err == nil && len(admissions) != len(batch) {
		err = fmt.Errorf("store answered %d of %d events", len(admissions), len(batch))
	}
	if len(admissions) != len(batch) { // otherwise the admissions before the error are valid
		admissions = slices.Repeat([]store.Admission{{Err: err}}, len(batch))
	}
	for i, e := range batch {
		c.answerEvent(e.pendingEvent, commitAnswer{admission: admissions[i]})
		c.settleOthers(e, admissions[i], err)
	}
}

// settleOthers sends the results of the events with the same key as the first one. If the first
// result does not decide about them, they wait for the next batch, where the next event is the
// first. With an error of the store all of them fail.
func (c *committer) settleOthers(e *batchEntry, told store.Admission, err error) {
	for _, p := range slices.Backward(e.others) {
		admission, ok := resultOfSameKey(e.event, told, p.event)
		switch {
		case ok:
			c.answerEvent(p, commitAnswer{admission: admission})
		case err != nil && told.Err != nil:
			c.answerEvent(p, commitAnswer{err: err})
		default:
			c.mutex.Lock()
			c.waiting.PutBack(p.event.ProjectID, p)
			c.mutex.Unlock()
		}
	}
}
