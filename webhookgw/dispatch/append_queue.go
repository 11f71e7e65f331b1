// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxAppends and maxAppendBytes limit the appends that share a statement. The first one always fits. An append that does not
	// continue its journal takes a transaction of its own after the statement.
	maxAppends     = 32
	maxAppendBytes = 4 << 20
)

// appendQueue writes to journals. Appends of a project that arrive while others of it are being written share the next statement.
// If the store is idle, an append does not wait for others. After a failed statement, the appends of its project share none for
// separateTime, because one of them may be the cause.
type appendQueue struct {
	// write writes appends of a project in its turn.
	write func(ctx context.Context, project uuid.UUID, appends []store.JournalAppend) []error
	// slots limits the appends that wait.
	slots   *quota.SlotSet
	suspect *cache.Cache[uuid.UUID, struct{}]
	writers sync.WaitGroup

	mutex sync.Mutex
	// waiting has the appends that wait. A project is in it while appends of it are being written.
	waiting map[uuid.UUID][]*pendingAppend
}

// pendingAppend is an append that waits for its result.
type pendingAppend struct {
	store.JournalAppend
	size int64
	done chan error // capacity 1
}

func newAppendQueue(write func(ctx context.Context, project uuid.UUID, appends []store.JournalAppend) []error) *appendQueue {
	return &appendQueue{
		write: write, slots: quota.NewSlotSet(maxQueued, callShare), suspect: cache.New[uuid.UUID, struct{}](maxRecent, separateTime, nil),
		waiting: map[uuid.UUID][]*pendingAppend{},
	}
}

// appendJournal appends to a journal. If ctx ends, the entries may be written nevertheless, and a retry gets the result. It returns
// a Problem if there is no capacity.
func (q *appendQueue) appendJournal(ctx context.Context, a store.JournalAppend) error {
	return q.appendJournals(ctx, a.Lease.Run.ProjectID, []store.JournalAppend{a})[0]
}

// appendJournals is appendJournal for several appends of a project. Each has its own result.
func (q *appendQueue) appendJournals(ctx context.Context, project uuid.UUID, appends []store.JournalAppend) []error {
	errs, pending := make([]error, len(appends)), make([]*pendingAppend, len(appends))
	var waiting []*pendingAppend
	for i, a := range appends {
		own := &pendingAppend{JournalAppend: a, done: make(chan error, 1)}
		if q.isSuspect(project) || own.measure() {
			continue
		}
		if err := q.slots.Take(project, 1); err != nil {
			errs[i] = quota.Refusal(err, errProjectCalls, errCalls)
			continue
		}
		defer q.slots.Give(project, 1)
		pending[i], waiting = own, append(waiting, own)
	}
	if q.addWaiting(project, waiting) {
		q.writers.Go(func() { q.writeWaiting(context.WithoutCancel(ctx), project) })
	}
	patience, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	for i, own := range pending {
		switch {
		case own != nil:
			errs[i] = q.awaitResult(ctx, patience.Done(), own)
		case errs[i] == nil:
			errs[i] = q.write(ctx, project, appends[i:i+1])[0]
		}
	}
	return errs
}

// isSuspect reports whether the appends of a project share no statement.
func (q *appendQueue) isSuspect(project uuid.UUID) bool {
	_, suspect := q.suspect.Get(project)
	return suspect
}

// measure computes the size. isLarge means that a blob is written before the entries, and no other append waits for that.
func (a *pendingAppend) measure() (isLarge bool) {
	for _, entry := range a.Entries {
		a.size += entry.Size()
		isLarge = isLarge || len(entry.Data) > store.MaxInlineText
	}
	return isLarge
}

// awaitResult returns the result of an append, or an error if the append is not being written when patience or ctx ends.
func (q *appendQueue) awaitResult(ctx context.Context, patience <-chan struct{}, own *pendingAppend) error {
	for {
		select {
		case err := <-own.done:
			return err
		case <-ctx.Done():
			q.removeWaiting(own)
			return context.Cause(ctx)
		case <-patience:
			if ctx.Err() == nil && q.removeWaiting(own) { // another gateway may have free capacity
				return errCalls
			}
			patience = nil
		}
	}
}

// addWaiting adds appends of a project. first means that none of it is being written.
func (q *appendQueue) addWaiting(project uuid.UUID, appends []*pendingAppend) (first bool) {
	if len(appends) == 0 {
		return false
	}
	q.mutex.Lock()
	defer q.mutex.Unlock()
	_, busy := q.waiting[project]
	q.waiting[project] = append(q.waiting[project], appends...)
	return !busy
}

// removeWaiting removes an append, unless it is being written.
func (q *appendQueue) removeWaiting(own *pendingAppend) (removed bool) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	project := own.Lease.Run.ProjectID
	at := slices.Index(q.waiting[project], own)
	if at >= 0 {
		q.waiting[project] = slices.Delete(q.waiting[project], at, at+1)
	}
	return at >= 0
}

// writeWaiting writes batches until no append of the project waits.
func (q *appendQueue) writeWaiting(ctx context.Context, project uuid.UUID) {
	for batch := q.nextBatch(project); len(batch) > 0; batch = q.nextBatch(project) {
		appends := make([]store.JournalAppend, len(batch))
		for i, own := range batch {
			appends[i] = own.JournalAppend
		}
		errs := q.write(ctx, project, appends)
		if len(batch) > 1 && slices.ContainsFunc(errs, isFailure) {
			q.suspect.Put(project, struct{}{})
		}
		for i, own := range batch {
			own.done <- errs[i]
		}
	}
}

// isFailure reports whether the store failed to write an append, which can be the fault of another one. The other errors are answers
// about the append itself, or mean that the gateway had no capacity for the statement.
func isFailure(err error) bool {
	var problem httpserver.Problem
	return err != nil && !errors.As(err, &problem) && !slices.ContainsFunc([]error{
		store.ErrFenced, store.ErrConflict, store.ErrNotFound, store.ErrTooLarge, store.ErrInvalid,
	}, func(answer error) bool { return errors.Is(err, answer) })
}

// nextBatch returns the next batch of a project, oldest first. If there is none, the project is no longer busy.
func (q *appendQueue) nextBatch(project uuid.UUID) []*pendingAppend {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	waiting, n, size := q.waiting[project], 0, int64(0)
	for n < min(len(waiting), maxAppends) && (n == 0 || size+waiting[n].size <= maxAppendBytes) {
		size += waiting[n].size
		n++
	}
	if n == 0 {
		delete(q.waiting, project)
		return nil
	}
	batch := slices.Clone(waiting[:n])
	q.waiting[project] = slices.Delete(waiting, 0, n)
	return batch
}
