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

// accepting is a store that does what it is told with each batch, which is kept.
type accepting struct {
	store.Ingest
	accept  func(events []store.Event) ([]store.Admission, error)
	batches [][]store.Event
}

func (a *accepting) Accept(_ context.Context, events []store.Event) ([]store.Admission, error) {
	a.batches = append(a.batches, events)
	return a.accept(events)
}

// acceptAll accepts events as a store does that knows no key.
func acceptAll(events []store.Event) ([]store.Admission, error) {
	out := make([]store.Admission, len(events))
	for i, e := range events {
		out[i] = store.Admission{ConnectorRunID: e.ConnectorRunID}
	}
	return out, nil
}

// waiting is a committer with a clock that stands, at which nobody works yet.
func waiting(accept func([]store.Event) ([]store.Admission, error)) (*committer, *accepting, *time.Time) {
	now, st := time.Unix(1000, 0), &accepting{accept: accept}
	return newCommitter(st, nil, metrics.NewGateway(nil), func() time.Time { return now }), st, &now
}

// put lets an event wait and returns where its answer comes.
func (c *committer) put(t *testing.T, ctx context.Context, e store.Event) *pending {
	t.Helper()
	p := &pending{ctx: ctx, since: c.now(), event: e, answer: make(chan answer, 1)}
	require.NoError(t, c.enter(p))
	return p
}

// idle says that nothing is at the committer.
func (c *committer) idle(t *testing.T) {
	t.Helper()
	require.Empty(t, slices.Collect(c.waiting.Projects()))
	require.Zero(t, c.events.Taken())
	require.Zero(t, c.bytes.Taken())
}

func event(project uuid.UUID) store.Event {
	return store.Event{ConnectorRunID: uuid.New(), ProjectID: project, Runs: make([]store.EventRun, 1)}
}

// TestABatchIsBounded: by what its transaction costs, whoever fills it.
func TestABatchIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event store.Event
		want  int
	}{
		"small events":      {store.Event{Runs: make([]store.EventRun, 1)}, maxBatchEvents},
		"of many runs":      {store.Event{Runs: make([]store.EventRun, 100)}, 11},
		"of large inputs":   {store.Event{Runs: make([]store.EventRun, 1), Input: make([]byte, 1<<20)}, 4},
		"one beyond bounds": {store.Event{Runs: make([]store.EventRun, 2*maxBatchRuns)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			queue := quota.NewTurns[*pending]()
			for range maxBatchEvents + 1 {
				queue.Push(c.event.ProjectID, &pending{ctx: t.Context(), event: c.event})
			}
			batch, _ := collect(&queue, time.Time{})
			require.Len(t, batch, c.want)
		})
	}
}

// TestProjectsTakeTurns: one that sends a lot does not keep the others waiting.
func TestProjectsTakeTurns(t *testing.T) {
	t.Parallel()
	busy, calm, queue := uuid.New(), uuid.New(), quota.NewTurns[*pending]()
	for range 3 * maxBatchEvents {
		queue.Push(busy, &pending{ctx: t.Context(), event: event(busy)})
	}
	queue.Push(calm, &pending{ctx: t.Context(), event: event(calm)})
	queue.Push(calm, &pending{ctx: t.Context(), event: event(calm)})
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

// TestWhatWaitsIsBounded: while a batch does not come back a project is refused what
// is beyond its share and everybody what is beyond all, and both only until then.
func TestWhatWaitsIsBounded(t *testing.T) {
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
				return k.enter(&pending{ctx: t.Context(), since: k.now(), event: e, answer: make(chan answer, 1)})
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
			for range 2 { // more than what is kept for those who have none
				require.True(t, k.runOnce(t.Context()))
			}
			require.NoError(t, offer(first))
			for k.runOnce(t.Context()) {
			}
			k.idle(t)
		})
	}
}

// refused says that an error is such a problem, which tells when to come again.
func refused(t *testing.T, err error, status int, code httpserver.Code) {
	t.Helper()
	var p httpserver.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, status, p.Status)
	require.Equal(t, code, p.Code)
	require.Positive(t, p.RetryAfter)
}

// TestWhoWaitedLongAndWentIsNotCommitted: its caller has sent it again by then. One
// who waited as long and is there is, and so is one who has just come.
func TestWhoWaitedLongAndWentIsNotCommitted(t *testing.T) {
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
	*now = now.Add(patience)
	require.True(t, k.runOnce(t.Context()))
	require.ErrorIs(t, (<-left.answer).err, hungUp)
	require.NoError(t, (<-stayed.answer).err)
	require.NoError(t, (<-late.answer).err)
	require.Len(t, st.batches, 1)
	require.Len(t, st.batches[0], 2)
	k.idle(t)

	alone := k.put(t, gone(), event(project))
	*now = now.Add(2 * patience)
	require.False(t, k.runOnce(t.Context()))
	require.ErrorIs(t, (<-alone.answer).err, hungUp)
	require.Len(t, st.batches, 1, "nothing is asked for nobody")
	k.idle(t)
}

// TestWhatWasDecidedBeforeAnErrorCounts: of the others nothing is known.
func TestWhatWasDecidedBeforeAnErrorCounts(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	for name, c := range map[string]struct {
		accept func(events []store.Event) ([]store.Admission, error)
		want   [2]error
	}{
		"some are decided": {func(events []store.Event) ([]store.Admission, error) {
			return []store.Admission{{ConnectorRunID: events[0].ConnectorRunID}, {Err: away}}, away
		}, [2]error{nil, away}},
		"none is": {func([]store.Event) ([]store.Admission, error) { return nil, away }, [2]error{away, away}},
	} {
		t.Run(name, func(t *testing.T) {
			k, _, _ := waiting(c.accept)
			first, second := k.put(t, t.Context(), event(uuid.New())), k.put(t, t.Context(), event(uuid.New()))
			require.True(t, k.runOnce(t.Context()))
			for i, p := range []*pending{first, second} {
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

// TestAStopEndsTheWaiting: of what waits, and of what comes then.
func TestAStopEndsTheWaiting(t *testing.T) {
	t.Parallel()
	k, _, _ := waiting(acceptAll)
	before := k.put(t, t.Context(), event(uuid.New()))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	<-k.arrived
	k.run(ctx)
	require.ErrorIs(t, (<-before.answer).err, errStopped)
	_, err := k.commit(t.Context(), event(uuid.New()))
	require.ErrorIs(t, err, errStopped)
	k.idle(t)
}
