// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/store"
)

// committer lets requests that wait at the same moment share a transaction:
// one goroutine takes all that wait, stores them, and answers each. When the
// store is idle a request does not wait for others; when it is busy, one fsync
// serves many.
type committer struct {
	ingest  store.Ingest
	metrics *metrics.Gateway
	queue   chan *pending
}

type pending struct {
	event  store.Event
	answer chan answer // holds one
}

type answer struct {
	admission store.Admission
	err       error
}

var errStopped = errors.New("the gateway is stopping")

func newCommitter(ingest store.Ingest, counted *metrics.Gateway) *committer {
	return &committer{ingest: ingest, metrics: counted, queue: make(chan *pending, maxBatchEvents)}
}

// commit stores an event. An error means that the outcome is unknown, or that
// nothing was stored: the request must not be answered with success.
func (c *committer) commit(ctx context.Context, event store.Event) (store.Admission, error) {
	p := &pending{event: event, answer: make(chan answer, 1)}
	select {
	case c.queue <- p:
	case <-ctx.Done():
		return store.Admission{}, context.Cause(ctx)
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

// run commits batches until ctx ends, and then fails what still waits.
func (c *committer) run(ctx context.Context) {
	for {
		select {
		case first := <-c.queue:
			c.store(ctx, c.collect(first))
		case <-ctx.Done():
			for {
				select {
				case p := <-c.queue:
					p.answer <- answer{err: errStopped}
				default:
					return
				}
			}
		}
	}
}

// collect takes what waits already, within the bounds of a batch.
func (c *committer) collect(first *pending) []*pending {
	batch, size, runs := []*pending{first}, len(first.event.Input), len(first.event.Runs)
	for len(batch) < maxBatchEvents && size < maxBatchBytes && runs < maxBatchRuns {
		select {
		case p := <-c.queue:
			batch = append(batch, p)
			size += len(p.event.Input)
			runs += len(p.event.Runs)
		default:
			return batch
		}
	}
	return batch
}

func (c *committer) store(ctx context.Context, batch []*pending) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	events := make([]store.Event, len(batch))
	for i, p := range batch {
		events[i] = p.event
	}
	begin := time.Now()
	admissions, err := c.ingest.Accept(ctx, events)
	if err == nil && len(admissions) != len(batch) {
		err = fmt.Errorf("store answered %d of %d events", len(admissions), len(batch))
	}
	c.metrics.Committed(len(batch), time.Since(begin), err)
	for i, p := range batch {
		if err != nil {
			p.answer <- answer{err: err}
			continue
		}
		p.answer <- answer{admission: admissions[i]}
	}
}
