// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxEnds and maxEndBytes bound the completions that share a transaction.
	maxEnds     = 128
	maxEndBytes = 4 << 20
	// endTimeout bounds such a transaction.
	endTimeout = 20 * time.Second
)

var errStopped = errors.New("the gateway is stopping")

// ends lets runs that end at the same moment share a transaction: when the store is
// idle none waits for others; when it is busy, one fsync serves many.
type ends struct {
	store store.Dispatch
	queue chan end
}

type end struct {
	completion store.Completion
	answer     chan error // holds one
}

func newEnds(dispatch store.Dispatch) *ends {
	return &ends{store: dispatch, queue: make(chan end, maxEnds)}
}

// complete ends a run.
func (e *ends) complete(ctx context.Context, c store.Completion) error {
	own := end{completion: c, answer: make(chan error, 1)}
	select {
	case e.queue <- own:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-own.answer:
		return err
	case <-ctx.Done(): // the run ends all the same; a repetition is told so
		return context.Cause(ctx)
	}
}

// run ends runs until ctx ends, and then fails what still waits.
func (e *ends) run(ctx context.Context) {
	for {
		select {
		case first := <-e.queue:
			for next := &first; next != nil; {
				var batch []end
				batch, next = e.collect(*next)
				e.end(ctx, batch)
			}
		case <-ctx.Done():
			e.fail()
			return
		}
	}
}

func (e *ends) fail() {
	for {
		select {
		case own := <-e.queue:
			own.answer <- errStopped
		default:
			return
		}
	}
}

// collect takes what waits already, within the bounds of a batch; next is one that
// did not fit.
func (e *ends) collect(first end) (batch []end, next *end) {
	batch, size := []end{first}, sizeOf(first.completion)
	for len(batch) < maxEnds {
		select {
		case own := <-e.queue:
			if size += sizeOf(own.completion); size > maxEndBytes {
				return batch, &own
			}
			batch = append(batch, own)
		default:
			return batch, nil
		}
	}
	return batch, nil
}

func sizeOf(c store.Completion) int {
	n := len(c.Output) + len(c.Error)
	for _, e := range c.Journal {
		n += len(e.Data)
	}
	return n
}

func (e *ends) end(ctx context.Context, batch []end) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	completions := make([]store.Completion, len(batch))
	for i, own := range batch {
		completions[i] = own.completion
	}
	answers, err := e.store.Complete(ctx, completions)
	for i, own := range batch {
		if err != nil {
			own.answer <- err
			continue
		}
		own.answer <- answers[i]
	}
}
