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

// committer lets requests that wait at the same moment share a transaction:
// one goroutine takes all that wait, stores them, and answers each. When the
// store is idle a request does not wait for others; when it is busy, one fsync
// serves many. What waits is bounded, in number and bytes, for all and for each
// project, and projects take turns: neither a store that hangs nor a project that
// sends a lot is everybody's matter.
type committer struct {
	ingest  store.Ingest
	runners *handoff.Runners
	metrics *metrics.Gateway
	now     func() time.Time
	arrived chan struct{} // holds one: something waits
	// events and bytes are counted until their answer, also of what is being stored.
	events, bytes *quota.Places

	mutex   sync.Mutex
	waiting quota.Turns[*pending]
	stopped bool
}

var errStopped = errors.New("the gateway is stopping")

func newCommitter(ingest store.Ingest, runners *handoff.Runners, counted *metrics.Gateway, now func() time.Time) *committer {
	return &committer{
		ingest: ingest, runners: runners, metrics: counted, now: now, arrived: make(chan struct{}, 1),
		events: quota.NewPlaces(maxWaiting, projectShare), bytes: quota.NewPlaces(maxWaitingBytes, projectShare), waiting: quota.NewTurns[*pending](),
	}
}

// commit stores an event. A Problem means that there is no room for it; another
// error that the outcome is unknown, or that nothing was stored: the request must
// not be answered with success.
func (c *committer) commit(ctx context.Context, event store.Event) (store.Admission, error) {
	p := &pending{ctx: ctx, since: c.now(), event: event, answer: make(chan answer, 1)}
	if err := c.enter(p); err != nil {
		return store.Admission{}, err
	}
	select {
	case a := <-p.answer:
		if a.err == nil {
			a.err = a.admission.Err
		}
		return a.admission, a.err
	case <-ctx.Done(): // the batch goes on without its requester
		return store.Admission{}, context.Cause(ctx)
	}
}

// enter lets an event wait, where there is room.
func (c *committer) enter(p *pending) error {
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
		c.settle(p, answer{err: errStopped})
		return nil
	}
	c.waiting.Push(project, p)
	select {
	case c.arrived <- struct{}{}:
	default: // it is known already
	}
	return nil
}

// settle answers an event and gives its place to another.
func (c *committer) settle(p *pending, a answer) {
	c.events.Give(p.event.ProjectID, 1)
	c.bytes.Give(p.event.ProjectID, int64(len(p.event.Input)))
	c.metrics.CommitAnswered()
	p.answer <- a
}

// run commits batches until ctx ends, and then fails what still waits.
func (c *committer) run(ctx context.Context) {
	for {
		select {
		case <-c.arrived:
			for ctx.Err() == nil && c.runOnce(ctx) {
			}
		case <-ctx.Done():
			c.stop()
			return
		}
	}
}

// runOnce commits a batch of what waits, and says whether there was one.
func (c *committer) runOnce(ctx context.Context) bool {
	c.mutex.Lock()
	batch, gone := collect(&c.waiting, c.now())
	c.mutex.Unlock()
	for _, p := range gone {
		c.settle(p, answer{err: context.Cause(p.ctx)})
	}
	if len(batch) > 0 {
		c.store(ctx, batch)
	}
	return len(batch) > 0
}

func (c *committer) stop() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.stopped = true
	for _, p := range c.waiting.All() {
		c.settle(p, answer{err: errStopped})
	}
}

func (c *committer) store(ctx context.Context, batch []*entry) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	events := make([]store.Event, len(batch))
	for i, e := range batch {
		events[i] = e.event
	}
	runners := c.hold(events)
	begin := time.Now()
	admissions, err := c.ingest.Accept(ctx, events)
	runners.give(admissions)
	c.metrics.Committed(len(batch), time.Since(begin), err)
	if err == nil && len(admissions) != len(batch) {
		err = fmt.Errorf("store answered %d of %d events", len(admissions), len(batch))
	}
	if len(admissions) != len(batch) { // else those count that were decided before an error
		admissions = slices.Repeat([]store.Admission{{Err: err}}, len(batch))
	}
	for i, e := range batch {
		c.settle(e.pending, answer{admission: admissions[i]})
		c.settleOthers(e, admissions[i], err)
	}
}

// settleOthers answers the events under the same key as the first. Where it says
// nothing of them they wait for the next batch, in which the next one is the
// first; with the store's error none of them fares better.
func (c *committer) settleOthers(e *entry, told store.Admission, err error) {
	for _, p := range slices.Backward(e.others) {
		admission, ok := follows(e.event, told, p.event)
		switch {
		case ok:
			c.settle(p, answer{admission: admission})
		case err != nil && told.Err != nil:
			c.settle(p, answer{err: err})
		default:
			c.mutex.Lock()
			c.waiting.PutBack(p.event.ProjectID, p)
			c.mutex.Unlock()
		}
	}
}
