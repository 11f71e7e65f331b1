// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// ending runs ends in a synctest bubble. Each transaction waits for a value of its answers.
type ending struct {
	*endCommitter
	t       *testing.T
	batches chan []store.Completion
	answers chan func([]store.Completion) ([]error, error)
}

func endingIn(t *testing.T) *ending {
	e := &ending{t: t, batches: make(chan []store.Completion, 100), answers: make(chan func([]store.Completion) ([]error, error))}
	ctx, cancel := context.WithCancel(context.Background())
	e.endCommitter = newEndCommitter(&fake{completed: func(batch []store.Completion) ([]error, error) {
		e.batches <- batch
		select {
		case answer := <-e.answers:
			return answer(batch)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}})
	stopped := make(chan struct{})
	go func() { e.runLoop(ctx); close(stopped) }()
	t.Cleanup(func() { cancel(); <-stopped })
	return e
}

// report ends n runs of a project with the given size.
func (e *ending) report(project string, n, bytes int, again bool) <-chan error {
	answered := make(chan error, n)
	for range n {
		go func() {
			answered <- e.complete(context.Background(), store.Completion{
				Lease: store.Lease{Run: store.Key{ProjectID: named(project), ID: uuid.New()}}, Output: strings.Repeat("x", bytes),
			}, again)
		}()
	}
	synctest.Wait()
	return answered
}

func stored(batch []store.Completion) ([]error, error) { return make([]error, len(batch)), nil }

func refused(batch []store.Completion) ([]error, error) {
	answers := make([]error, len(batch))
	for i := range answers {
		answers[i] = store.ErrFenced
	}
	return answers, nil
}

// of counts the completions of each project in a batch.
func of(batch []store.Completion) map[uuid.UUID]int {
	counted := map[uuid.UUID]int{}
	for _, c := range batch {
		counted[c.Run.ProjectID]++
	}
	return counted
}

// TestEnds_BatchIsRoundRobin: a project with many ended runs does not delay others.
func TestEnds_BatchIsRoundRobin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := endingIn(t)
		e.report("greedy", 1, 0, false)
		require.Len(t, <-e.batches, 1, "an idle store delays no run")
		e.report("greedy", 3*maxEnds, 0, false)
		e.report("a", 3, 0, false)
		answered := e.report("b", 1, 0, false)
		e.answers <- stored
		require.Equal(t, map[uuid.UUID]int{named("greedy"): maxEnds - 4, named("a"): 3, named("b"): 1}, of(<-e.batches))
		e.answers <- stored
		require.NoError(t, <-answered)
		for range 3 {
			e.answers <- stored
		}
		synctest.Wait()
		require.Zero(t, e.capacity.Taken())
	})
}

// TestEnds_LimitWaitingBytes: per project; other projects have free capacity.
func TestEnds_LimitWaitingBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := endingIn(t)
		most := maxWaitingEnds / projectShare / (store.MaxOutput + endOverhead)
		first := e.report("greedy", 1, store.MaxOutput, false)
		answered := e.report("greedy", most, store.MaxOutput, false)
		require.Equal(t, errProjectInFlight, <-answered)
		require.Empty(t, answered)
		other := e.report("modest", 1, store.MaxOutput, false)
		for _, size := range []int{1, 1, 3, 3} {
			require.Len(t, <-e.batches, size, "the maximum batch")
			e.answers <- stored
			synctest.Wait()
		}
		require.NoError(t, <-first)
		require.NoError(t, <-other)
		for range most - 1 {
			require.NoError(t, <-answered)
		}
		require.Zero(t, e.capacity.Taken())
	})
}

// TestEnds_LargeCompletionsAreSeparate: their blobs are written first, beside the common batch.
func TestEnds_LargeCompletionsAreSeparate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := endingIn(t)
		large := e.report("greedy", 1, store.MaxInlineText+1, false)
		<-e.batches // the store hangs
		small := e.report("modest", 1, store.MaxInlineText, false)
		require.Len(t, <-e.batches, 1)
		for range 2 {
			e.answers <- stored
		}
		require.NoError(t, <-large)
		require.NoError(t, <-small)
	})
}

// TestEnds_FailingProjectIsSeparate: only the project itself waits for completions that are stored
// one by one. After a while it is in the common batch again.
func TestEnds_FailingProjectIsSeparate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := endingIn(t)
		first := e.report("greedy", 1, 0, false)
		<-e.batches
		e.answers <- refused
		require.ErrorIs(t, <-first, store.ErrFenced)
		e.report("greedy", 1, 0, false)
		require.Equal(t, map[uuid.UUID]int{named("greedy"): 1}, of(<-e.batches))
		e.report("greedy", maxEnds+5, 0, false)
		e.report("a", 1, 0, true)
		require.Equal(t, map[uuid.UUID]int{named("a"): 1}, of(<-e.batches), "separate too, because it was reported before")
		e.report("modest", 1, 0, false)
		require.Equal(t, map[uuid.UUID]int{named("modest"): 1}, of(<-e.batches), "no run waits for the slow ones")
		synctest.Wait()
		require.Empty(t, e.batches, "a project has one separate batch at a time")
		for range 3 {
			e.answers <- stored
		}
		for _, n := range []int{maxEnds, 5} {
			require.Equal(t, map[uuid.UUID]int{named("greedy"): n}, of(<-e.batches))
			e.answers <- stored
		}
		time.Sleep(separateTime) // bubble time
		e.report("greedy", 1, 0, false)
		e.report("modest", 1, 0, false)
		require.Len(t, <-e.batches, 1)
		e.answers <- stored
		require.Equal(t, map[uuid.UUID]int{named("modest"): 1}, of(<-e.batches), "it is in the batch with greedy again")
	})
}

// TestEnds_FailedBatchIsRetriedByProject: only the failing project gets an error.
func TestEnds_FailedBatchIsRetriedByProject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := endingIn(t)
		e.report("modest", 1, 0, false)
		<-e.batches
		bad, good := e.report("greedy", 2, 0, false), e.report("a", 2, 0, false)
		e.answers <- stored
		require.Len(t, <-e.batches, 4)
		broken := errors.New("broken")
		judge := func(batch []store.Completion) ([]error, error) {
			if of(batch)[named("greedy")] > 0 {
				return nil, broken
			}
			return stored(batch)
		}
		e.answers <- judge
		synctest.Wait()
		require.Len(t, e.batches, 2, "concurrently")
		e.answers <- judge
		e.answers <- judge
		require.ErrorIs(t, <-bad, broken)
		require.ErrorIs(t, <-bad, broken)
		require.NoError(t, <-good)
		require.NoError(t, <-good)
		require.Zero(t, e.capacity.Taken())
	})
}

// TestEnds_StopFailsWaiting: the runners report to another gateway.
func TestEnds_StopFailsWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEndCommitter(&fake{})
		waiting := (&ending{endCommitter: e, t: t}).report("a", 2, 0, false)
		apart := (&ending{endCommitter: e, t: t}).report("a", 1, 0, true)
		e.failWaiting()
		require.ErrorIs(t, <-waiting, errStopped)
		require.ErrorIs(t, <-apart, errStopped)
		require.ErrorIs(t, e.complete(t.Context(), store.Completion{}, false), errStopped)
		require.Zero(t, e.capacity.Taken())
	})
}
