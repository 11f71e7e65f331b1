// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// heldWrites is a store whose writes of appends wait.
type heldWrites struct {
	begun  chan []store.JournalAppend
	finish chan struct{}
}

func newHeldWrites() heldWrites {
	return heldWrites{begun: make(chan []store.JournalAppend), finish: make(chan struct{})}
}

// write fails the appends of the run uuid.Max, and the store fails if the run uuid.Nil is among them.
func (w heldWrites) write(_ context.Context, _ uuid.UUID, appends []store.JournalAppend) []error {
	w.begun <- appends
	<-w.finish
	errs := make([]error, len(appends))
	for i, a := range appends {
		switch a.Lease.Run.ID {
		case uuid.Max:
			errs[i] = store.ErrFenced
		case uuid.Nil:
			return slices.Repeat([]error{errors.New("the store does not answer")}, len(appends))
		}
	}
	return errs
}

func appendOf(project, run uuid.UUID, bytes int) store.JournalAppend {
	return store.JournalAppend{
		Lease:   store.Lease{Run: store.Key{ProjectID: project, ID: run}},
		Entries: []store.JournalEntry{{Sequence: 1, Data: make([]byte, bytes)}},
	}
}

func TestAppendQueue_SharesStatementOfProject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		project, writes := uuid.New(), newHeldWrites()
		q, results := newAppendQueue(writes.write), make(chan error, 8)
		send := func(ctx context.Context, a store.JournalAppend) {
			go func() { results <- q.appendJournal(ctx, a) }()
			synctest.Wait()
		}
		send(t.Context(), appendOf(project, uuid.New(), 10))
		require.Len(t, <-writes.begun, 1, "an append does not wait for others")
		gone, leave := context.WithCancel(t.Context())
		send(t.Context(), appendOf(project, uuid.New(), 10))
		send(t.Context(), appendOf(project, uuid.Max, 10))
		send(gone, appendOf(project, uuid.New(), 10))
		leave()
		require.ErrorIs(t, <-results, context.Canceled)

		send(t.Context(), appendOf(uuid.New(), uuid.New(), 10))
		require.Len(t, <-writes.begun, 1, "another project does not wait")
		send(t.Context(), appendOf(project, uuid.New(), store.MaxInlineText+1))
		require.Len(t, <-writes.begun, 1, "an append with a large value shares no statement")
		for range 3 {
			writes.finish <- struct{}{}
			require.NoError(t, <-results)
		}
		require.Len(t, <-writes.begun, 2, "the appends that wait share a statement, without the cancelled one")
		writes.finish <- struct{}{}
		require.ErrorIs(t, errors.Join(<-results, <-results), store.ErrFenced)
		synctest.Wait()
		require.Empty(t, q.waiting, "no project is busy any more")
	})
}

func TestAppendQueue_SharesNoStatementAfterFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		project, writes := uuid.New(), newHeldWrites()
		q, results := newAppendQueue(writes.write), make(chan error, 8)
		send := func(run uuid.UUID) {
			go func() { results <- q.appendJournal(t.Context(), appendOf(project, run, 10)) }()
			synctest.Wait()
		}
		send(uuid.New())
		require.Len(t, <-writes.begun, 1)
		send(uuid.Nil)
		send(uuid.New())
		writes.finish <- struct{}{}
		require.NoError(t, <-results)
		require.Len(t, <-writes.begun, 2)
		writes.finish <- struct{}{}
		require.Error(t, <-results)
		require.Error(t, <-results)
		for range 2 { // each has a statement, at the same time
			send(uuid.New())
			require.Len(t, <-writes.begun, 1)
		}
		for range 2 {
			writes.finish <- struct{}{}
			require.NoError(t, <-results)
		}
	})
}

func TestIsFailure_IgnoresAnswersAndCapacity(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"success":                     {nil, false},
		"another claim came":          {fmt.Errorf("appending: %w", store.ErrFenced), false},
		"the gateway has no capacity": {errCalls, false},
		"the project has too many":    {errProjectCalls, false},
		"the store does not answer":   {fmt.Errorf("appending: %w", context.DeadlineExceeded), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, isFailure(c.err))
		})
	}
}

func TestAppendQueue_LimitsWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		project, writes := uuid.New(), newHeldWrites()
		q, results := newAppendQueue(writes.write), make(chan error, maxQueued)
		for range maxQueued / callShare {
			go func() { results <- q.appendJournal(t.Context(), appendOf(project, uuid.New(), 10)) }()
		}
		synctest.Wait()
		require.Equal(t, errProjectCalls, q.appendJournal(t.Context(), appendOf(project, uuid.New(), 10)))
		begun := len(<-writes.begun)
		for range maxQueued/callShare - begun {
			require.Equal(t, errCalls, <-results, "the store takes longer than an append waits")
		}
		writes.finish <- struct{}{}
		for range begun {
			require.NoError(t, <-results)
		}
	})
}

func TestAppendQueue_LimitsStatement(t *testing.T) {
	t.Parallel()
	project := uuid.New()
	for name, c := range map[string]struct{ appends, bytes, want int }{
		"number of appends": {maxAppends + 1, 1, maxAppends},
		"bytes":             {maxAppends, maxAppendBytes / 4, 3},
		"one large append":  {2, 2 * maxAppendBytes, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newAppendQueue(nil)
			for range c.appends {
				a := appendOf(project, uuid.New(), c.bytes)
				q.addWaiting(project, []*pendingAppend{{JournalAppend: a, size: a.Entries[0].Size()}})
			}
			batch := q.nextBatch(project)
			require.Len(t, batch, c.want)
		})
	}
}
