// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

// accepting is a store with a configured result for each batch. It keeps the batches.
type accepting struct {
	store.Ingest
	accept  func(events []store.Event) ([]store.Admission, error)
	batches [][]store.Event
}

func (a *accepting) Accept(_ context.Context, events []store.Event) ([]store.Admission, error) {
	a.batches = append(a.batches, events)
	return a.accept(events)
}

// acceptAll accepts events like a store without idempotency keys.
func acceptAll(events []store.Event) ([]store.Admission, error) {
	out := make([]store.Admission, len(events))
	for i, e := range events {
		out[i] = store.Admission{ConnectorRunID: e.ConnectorRunID}
	}
	return out, nil
}

// waiting returns a committer with a constant clock that does not run yet.
func waiting(accept func([]store.Event) ([]store.Admission, error)) (*committer, *accepting, *time.Time) {
	now, st := time.Unix(1000, 0), &accepting{accept: accept}
	return newCommitter(st, nil, metrics.NewGateway(nil, nil), func() time.Time { return now }), st, &now
}

// put queues an event and returns it.
func (c *committer) put(t *testing.T, ctx context.Context, e store.Event) *pendingEvent {
	t.Helper()
	p := &pendingEvent{ctx: ctx, since: c.now(), event: e, answer: make(chan commitAnswer, 1)}
	require.NoError(t, c.enqueueEvent(p))
	return p
}

// idle checks that no event is at the committer.
func (c *committer) idle(t *testing.T) {
	t.Helper()
	require.Empty(t, slices.Collect(c.waiting.Projects()))
	require.Zero(t, c.events.Taken())
	require.Zero(t, c.bytes.Taken())
}

func event(project uuid.UUID) store.Event {
	return store.Event{ConnectorRunID: uuid.New(), ProjectID: project, Runs: make([]store.EventRun, 1)}
}

// TestCommitter_LimitsBatch: by the cost of its transaction, for all projects together.
func TestCommitter_LimitsBatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event store.Event
		want  int
	}{
		"small events":               {store.Event{Runs: make([]store.EventRun, 1)}, maxBatchEvents},
		"events with many runs":      {store.Event{Runs: make([]store.EventRun, 100)}, 11},
		"events with large inputs":   {store.Event{Runs: make([]store.EventRun, 1), Input: make([]byte, 1<<20)}, 4},
		"one event above the limits": {store.Event{Runs: make([]store.EventRun, 2*maxBatchRuns)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			queue := quota.NewFairQueue[*pendingEvent]()
			for range maxBatchEvents + 1 {
				queue.Push(c.event.ProjectID, &pendingEvent{ctx: t.Context(), event: c.event})
			}
			batch, _ := collect(&queue, time.Time{})
			require.Len(t, batch, c.want)
		})
	}
}

// TestCommitter_RoundRobin: a busy project does not delay the others.
func TestCommitter_RoundRobin(t *testing.T) {
	t.Parallel()
	busy, calm, queue := uuid.New(), uuid.New(), quota.NewFairQueue[*pendingEvent]()
	for range 3 * maxBatchEvents {
		queue.Push(busy, &pendingEvent{ctx: t.Context(), event: event(busy)})
	}
	queue.Push(calm, &pendingEvent{ctx: t.Context(), event: event(calm)})
	queue.Push(calm, &pendingEvent{ctx: t.Context(), event: event(calm)})
	batch, _ := collect(&queue, time.Time{})
	require.Len(t, batch, maxBatchEvents)
	var order []uuid.UUID
	for _, e := range batch[:5] {
		order = append(order, e.event.ProjectID)
	}
	require.Equal(t, []uuid.UUID{busy, calm, busy, calm, busy}, order)
	for rest := 3*maxBatchEvents + 2 - maxBatchEvents; rest > 0; rest -= len(batch) {
		batch, _ = collect(&queue, time.Time{})
	}
	require.Empty(t, slices.Collect(queue.Projects()))
}

// TestCommitter_LimitsWaiting: while a batch hangs, a project gets errors beyond its share, and all
// projects beyond the total. Both end with the batch.
func TestCommitter_LimitsWaiting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		input int
		share int
	}{
		"in number": {0, maxWaiting / projectShare},
		"in bytes":  {store.MaxInlineInput, maxWaitingBytes / projectShare / store.MaxInlineInput},
	} {
		t.Run(name, func(t *testing.T) {
			k, _, _ := waiting(acceptAll)
			input := make([]byte, c.input)
			offer := func(project uuid.UUID) error {
				e := event(project)
				e.Input = input
				return k.enqueueEvent(&pendingEvent{ctx: t.Context(), since: k.now(), event: e, answer: make(chan commitAnswer, 1)})
			}
			first := uuid.New()
			for _, project := range []uuid.UUID{first, uuid.New(), uuid.New()} {
				for range c.share {
					require.NoError(t, offer(project))
				}
				refused(t, offer(project), http.StatusTooManyRequests, httpserver.CodeTooManyWaiting)
			}
			var err error
			for err == nil { // the last quarter
				err = offer(uuid.New())
			}
			refused(t, err, http.StatusServiceUnavailable, httpserver.CodeBusy)
			require.True(t, k.runOnce(t.Context()))
			require.NoError(t, offer(uuid.New()))
			for range 2 { // more than the slots that are reserved for other projects
				require.True(t, k.runOnce(t.Context()))
			}
			require.NoError(t, offer(first))
			for k.runOnce(t.Context()) {
			}
			k.idle(t)
		})
	}
}

// refused checks that an error is a Problem with a Retry-After.
func refused(t *testing.T, err error, status int, code httpserver.Code) {
	t.Helper()
	var p httpserver.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, status, p.Status)
	require.Equal(t, code, p.Code)
	require.Positive(t, p.RetryAfter)
}

// TestCommitter_DropsAbandonedRequests: the caller has retried by then. A request with a waiting
// caller is committed, and so is a new one.
func TestCommitter_DropsAbandonedRequests(t *testing.T) {
	t.Parallel()
	hungUp := errors.New("hung up")
	gone := func() context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(hungUp)
		return ctx
	}
	k, st, now := waiting(acceptAll)
	project := uuid.New()
	left := k.put(t, gone(), event(project))
	stayed := k.put(t, t.Context(), event(project))
	*now = now.Add(time.Millisecond)
	late := k.put(t, gone(), event(project))
	*now = now.Add(maxCommitWait)
	require.True(t, k.runOnce(t.Context()))
	require.ErrorIs(t, (<-left.answer).err, hungUp)
	require.NoError(t, (<-stayed.answer).err)
	require.NoError(t, (<-late.answer).err)
	require.Len(t, st.batches, 1)
	require.Len(t, st.batches[0], 2)
	k.idle(t)

	alone := k.put(t, gone(), event(project))
	*now = now.Add(2 * maxCommitWait)
	require.False(t, k.runOnce(t.Context()))
	require.ErrorIs(t, (<-alone.answer).err, hungUp)
	require.Len(t, st.batches, 1, "no transaction without a caller")
	k.idle(t)
}

// TestCommitter_KeepsResultsBeforeError: the outcome of the others is unknown.
func TestCommitter_KeepsResultsBeforeError(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	for name, c := range map[string]struct {
		accept func(events []store.Event) ([]store.Admission, error)
		want   [2]error
	}{
		"result for one event": {func(events []store.Event) ([]store.Admission, error) {
			return []store.Admission{{ConnectorRunID: events[0].ConnectorRunID}, {Err: away}}, away
		}, [2]error{nil, away}},
		"no result": {func([]store.Event) ([]store.Admission, error) { return nil, away }, [2]error{away, away}},
	} {
		t.Run(name, func(t *testing.T) {
			k, _, _ := waiting(c.accept)
			first, second := k.put(t, t.Context(), event(uuid.New())), k.put(t, t.Context(), event(uuid.New()))
			require.True(t, k.runOnce(t.Context()))
			for i, p := range []*pendingEvent{first, second} {
				a := <-p.answer
				require.NoError(t, a.err)
				require.ErrorIs(t, a.admission.Err, c.want[i])
				if c.want[i] == nil {
					require.Equal(t, p.event.ConnectorRunID, a.admission.ConnectorRunID)
				}
			}
			k.idle(t)
		})
	}
	k, _, _ := waiting(func([]store.Event) ([]store.Admission, error) { return []store.Admission{{}}, nil })
	k.put(t, t.Context(), event(uuid.New()))
	p := k.put(t, t.Context(), event(uuid.New()))
	require.True(t, k.runOnce(t.Context()))
	require.ErrorContains(t, (<-p.answer).admission.Err, "answered 1 of 2")
}

// TestCommitter_StopFailsWaiting: waiting and new events.
func TestCommitter_StopFailsWaiting(t *testing.T) {
	t.Parallel()
	k, _, _ := waiting(acceptAll)
	before := k.put(t, t.Context(), event(uuid.New()))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	<-k.arrived
	k.runLoop(ctx)
	require.ErrorIs(t, (<-before.answer).err, errStopped)
	_, err := k.commitEvent(t.Context(), event(uuid.New()))
	require.ErrorIs(t, err, errStopped)
	k.idle(t)
}
