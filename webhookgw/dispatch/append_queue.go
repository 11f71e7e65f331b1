// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxAppends and maxAppendBytes limit the appends that share a statement. The first one always fits.
	maxAppends     = 128
	maxAppendBytes = 4 << 20
)

// appendQueue writes to journals. Appends of a project that arrive while others of it are being written share the next statement.
// If the store is idle, an append does not wait for others.
type appendQueue struct {
	// write writes appends of a project in its turn.
	write func(ctx context.Context, project uuid.UUID, appends []store.JournalAppend) []error

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
	return &appendQueue{write: write, waiting: map[uuid.UUID][]*pendingAppend{}}
}

// appendJournal appends to a journal. If ctx ends, the entries may be written nevertheless, and a retry gets the result.
func (q *appendQueue) appendJournal(ctx context.Context, a store.JournalAppend) error {
	own := &pendingAppend{JournalAppend: a, done: make(chan error, 1)}
	for _, entry := range a.Entries {
		own.size += entry.Size()
		if len(entry.Data) > store.MaxInlineText { // its blob is written first, and no other append waits for that
			return q.write(ctx, a.Lease.Run.ProjectID, []store.JournalAppend{a})[0]
		}
	}
	if q.addWaiting(own) {
		go q.writeWaiting(context.WithoutCancel(ctx), a.Lease.Run.ProjectID)
	}
	select {
	case err := <-own.done:
		return err
	case <-ctx.Done():
		q.removeWaiting(own)
		return context.Cause(ctx)
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
func (q *appendQueue) removeWaiting(own *pendingAppend) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	project := own.Lease.Run.ProjectID
	if waiting, busy := q.waiting[project]; busy {
		q.waiting[project] = slices.DeleteFunc(waiting, func(other *pendingAppend) bool { return other == own })
	}
}

// writeWaiting writes batches until no append of the project waits.
func (q *appendQueue) writeWaiting(ctx context.Context, project uuid.UUID) {
	for batch := q.nextBatch(project); len(batch) > 0; batch = q.nextBatch(project) {
		appends := make([]store.JournalAppend, len(batch))
		for i, own := range batch {
			appends[i] = own.JournalAppend
		}
		for i, err := range q.write(ctx, project, appends) {
			batch[i].done <- err
		}
	}
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
