// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

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
	project, own := a.Lease.Run.ProjectID, &pendingAppend{JournalAppend: a, done: make(chan error, 1)}
	_, alone := q.suspect.Get(project)
	for _, entry := range a.Entries {
		own.size += entry.Size()
		alone = alone || len(entry.Data) > store.MaxInlineText // its blob is written first, and no other append waits for that
	}
	if alone {
		return q.write(ctx, project, []store.JournalAppend{a})[0]
	}
	if err := q.slots.Take(project, 1); err != nil {
		return quota.Refusal(err, errProjectCalls, errCalls)
	}
	defer q.slots.Give(project, 1)
	if q.addWaiting(own) {
		q.writers.Go(func() { q.writeWaiting(context.WithoutCancel(ctx), project) })
	}
	patience := time.NewTimer(queueTimeout)
	defer patience.Stop()
	for {
		select {
		case err := <-own.done:
			return err
		case <-patience.C:
			if q.removeWaiting(own) { // another gateway may have free capacity
				return errCalls
			}
		case <-ctx.Done():
			q.removeWaiting(own)
			return context.Cause(ctx)
		}
	}
}

// addWaiting adds an append. first means that none of its project is being written.
func (q *appendQueue) addWaiting(own *pendingAppend) (first bool) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	project := own.Lease.Run.ProjectID
	_, busy := q.waiting[project]
	q.waiting[project] = append(q.waiting[project], own)
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
