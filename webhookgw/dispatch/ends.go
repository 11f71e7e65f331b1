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
	// maxEnds and maxEndBytes bound the completions that share a transaction; the
	// first one counts whatever its size.
	maxEnds     = 128
	maxEndBytes = 4 << 20
	// maxWaitingEnds is how many bytes of completions wait, or are being stored; a
	// project has a share. Each counts for endOverhead beside its data.
	maxWaitingEnds = 32 << 20
	endOverhead    = 1 << 10
	// maxApart is how many projects' completions are stored apart at once, apartFor
	// how long those of a project are.
	maxApart = 4
	apartFor = time.Minute
	// endTimeout bounds a transaction.
	endTimeout = 20 * time.Second
)

var errStopped = errors.New("the gateway is stopping")

// ends lets runs that end at the same moment share a transaction: when the store is
// idle none waits for others; when it is busy, one fsync serves many. Projects take
// turns in it.
//
// A completion that cannot be stored with the others is stored by itself, which all of
// its batch wait for. So a project of which that was so shares its transactions with
// nobody for a while, and neither do completions of a batch that failed, of a run whose
// end was reported before, or with texts that are stored as blobs first: these are stored
// beside the common batch.
type ends struct {
	store   store.Dispatch
	room    *quota.Places
	arrived chan struct{} // holds one: there may be something to begin
	suspect *cache.Cache[uuid.UUID, struct{}]

	mutex           sync.Mutex
	together, apart lines
	busy            bool               // with a batch of all projects
	busyApart       map[uuid.UUID]bool // with a batch of a project
	stopped         bool
}

// end is a completion that waits for its answer.
type end struct {
	completion store.Completion
	size       int64
	release    func()
	answer     chan error // holds one
}

// settle answers, and makes room.
func (e *end) settle(err error) {
	e.release()
	e.answer <- err
}

func newEnds(dispatch store.Dispatch) *ends {
	return &ends{
		store: dispatch, room: quota.NewPlaces(maxWaitingEnds, projectShare), arrived: make(chan struct{}, 1),
		suspect:  cache.New[uuid.UUID, struct{}](maxRecent, apartFor, nil),
		together: newLines(), apart: newLines(), busyApart: map[uuid.UUID]bool{},
	}
}

// complete ends a run; again says that its end was reported before. A Problem means
// that there is no room.
func (e *ends) complete(ctx context.Context, c store.Completion, again bool) error {
	own := &end{completion: c, size: sizeOf(c), answer: make(chan error, 1)}
	if err := e.room.Take(c.Run.ProjectID, own.size); err != nil {
		return quota.Refusal(err, errProjectInFlight, errInFlight)
	}
	own.release = func() { e.room.Give(c.Run.ProjectID, own.size) }
	e.enter(own, again)
	select {
	case err := <-own.answer:
		return err
	case <-ctx.Done(): // the run ends all the same; a repetition is told so
		return context.Cause(ctx)
	}
}

func (e *ends) enter(own *end, again bool) {
	_, suspect := e.suspect.Get(own.completion.Run.ProjectID)
	e.mutex.Lock()
	defer e.mutex.Unlock()
	switch {
	case e.stopped:
		own.settle(errStopped)
		return
	case suspect || again || isLarge(own.completion):
		e.apart.push(own)
	default:
		e.together.push(own)
	}
	e.ring()
}

func (e *ends) ring() {
	select {
	case e.arrived <- struct{}{}:
	default: // it is known already
	}
}

// isLarge says whether blobs are written for a completion before its transaction.
func isLarge(c store.Completion) bool {
	return len(c.Output) > store.MaxInlineText ||
		slices.ContainsFunc(c.Journal, func(e store.JournalEntry) bool { return len(e.Data) > store.MaxInlineText })
}

func sizeOf(c store.Completion) int64 {
	n := int64(endOverhead + len(c.Output) + len(c.Error))
	for _, entry := range c.Journal {
		n += entry.Size()
	}
	return n
}

// run ends runs until ctx ends, and then fails what still waits.
func (e *ends) run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-e.arrived:
			for batch := e.begin(); batch != nil; batch = e.begin() {
				group.Go(func() { e.end(ctx, batch) })
			}
		case <-ctx.Done():
			e.stop()
			return
		}
	}
}

func (e *ends) stop() {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.stopped = true
	for _, own := range append(e.together.All(), e.apart.All()...) {
		own.settle(errStopped)
	}
}

// batch is what is stored at once.
type batch struct {
	ends  []*end
	apart bool // they are of one project
}

func (b *batch) project() uuid.UUID { return b.ends[0].completion.Run.ProjectID }

// mixed says whether there are several projects in a batch.
func (b *batch) mixed() bool {
	for _, own := range b.ends {
		if own.completion.Run.ProjectID != b.project() {
			return true
		}
	}
	return false
}

// begin takes a batch that may be stored beside those that are being stored; nil
// without one.
func (e *ends) begin() *batch {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if !e.busy {
		if taken := e.together.collect(); len(taken) > 0 {
			e.busy = true
			return &batch{ends: taken}
		}
	}
	for project := range e.apart.Projects() {
		if len(e.busyApart) < maxApart && !e.busyApart[project] {
			e.busyApart[project] = true
			return &batch{ends: e.apart.collectOf(project), apart: true}
		}
	}
	return nil
}

// end stores a batch and answers it.
func (e *ends) end(ctx context.Context, b *batch) {
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
	if b.apart {
		delete(e.busyApart, b.project())
	} else {
		e.busy = false
	}
	e.ring()
	for i, own := range b.ends {
		switch {
		case err != nil && b.mixed() && !e.stopped: // one of them may be at fault: each project for itself
			e.apart.push(own)
		default:
			failed := err
			if failed == nil {
				failed = answers[i]
			}
			if failed != nil {
				e.suspect.Put(own.completion.Run.ProjectID, struct{}{})
			}
			own.settle(failed)
		}
	}
}
