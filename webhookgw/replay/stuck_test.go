// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/store"
)

// unreadable is a store that cannot read the input of an event.
type unreadable struct {
	*replaying
	event uuid.UUID
	fail  func(context.Context) error
}

// EventInput implements Store.
func (u unreadable) EventInput(ctx context.Context, key store.Key) (store.EventInput, error) {
	if key.ID == u.event {
		return store.EventInput{}, u.fail(ctx)
	}
	return u.replaying.EventInput(ctx, key)
}

// unreadable returns a Replayer that cannot read the first failed event.
func (r *replaying) unreadable(fail func(context.Context) error) *Replayer {
	return New(Options{
		Store: unreadable{r, r.failed[0], fail}, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon },
	})
}

func spoilt(context.Context) error { return errors.New("the blob is spoilt") }

// tries makes n failing tries.
func (r *replaying) tries(t *testing.T, replayer *Replayer, at store.Replay, n int) store.Replay {
	t.Helper()
	for range n {
		require.ErrorContains(t, replayer.advance(t.Context(), r.now(t, at)), "spoilt")
	}
	return r.now(t, at)
}

// TestReplayer_RecordsStuckOriginal: the replay shows the connector run and the error, and
// continues when the error is over.
func TestReplayer_RecordsStuckOriginal(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 2)
	at := r.start(t, 6000)
	replayer := r.unreadable(spoilt)
	for try := 1; try < stuckTries; try++ {
		taken := r.now(t, at)
		require.ErrorContains(t, replayer.advance(t.Context(), taken), "spoilt")
		at = r.now(t, at)
		require.Equal(t, store.ReplayRunning, at.Status)
		require.Equal(t, "unreadable", at.Reason)
		require.Contains(t, at.Detail, r.failed[0].String())
		require.Contains(t, at.Detail, fmt.Sprintf("%d of %d failed", try, stuckTries))
		require.NotContains(t, at.Detail, "spoilt", "internal errors are only logged")
		require.Equal(t, try, at.Tries)
		_, next, err := r.NextReplay(t.Context())
		require.NoError(t, err)
		require.Equal(t, taken.TakenAt.Add(min(stuckWait<<(try-1), maxStuckWait)), *next)
	}
	at = r.advance(t, at)
	require.Equal(t, store.ReplayCompleted, at.Status)
	require.Empty(t, at.Reason)
	require.Zero(t, at.Tries)
	require.Equal(t, r.onceEach(), r.again(t))
}

// TestReplayer_SkipsUnreadableOriginal: after a number of tries by any process, the original counts
// as refused and the others are replayed.
func TestReplayer_SkipsUnreadableOriginal(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 3)
	at := r.tries(t, r.unreadable(spoilt), r.start(t, 6000), stuckTries-1)
	require.Zero(t, at.Done())
	registry := prometheus.NewRegistry()
	replayer := r.unreadable(spoilt)
	replayer.opts.Metrics = metrics.NewGateway(registry, nil)
	at = r.tries(t, replayer, at, 1)
	require.Equal(t, map[string]int64{"unreadable": 1}, at.Refused)
	require.Equal(t, r.failed[0], at.Position)
	require.Empty(t, at.Reason)
	require.Zero(t, at.Tries, "the next original has its own tries")
	require.InEpsilon(t, 1, metrictest.Of(t, registry).Value(t, "agentplatform_replayed_total", "outcome", metrics.ReplayRefused), 0)
	at = r.advance(t, at)
	require.Equal(t, store.ReplayCompleted, at.Status)
	require.EqualValues(t, 2, at.Replayed)
	require.EqualValues(t, 3, at.Done())
	want := r.onceEach()
	delete(want, r.failed[0])
	require.Equal(t, want, r.again(t))
}

// late is a context whose deadline passes when the channel is closed.
type late struct {
	context.Context //nolint:containedctx // it implements the interface
	passed          chan struct{}
}

func (l late) Done() <-chan struct{} { return l.passed }

func (l late) Err() error {
	select {
	case <-l.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestReplayer_TimeoutIsStuck: a timeout counts as a try. A try that a stop interrupts does not.
func TestReplayer_TimeoutIsStuck(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 2)
	at := r.start(t, 6000)
	ctx := late{t.Context(), make(chan struct{})}
	hangs := func(asking context.Context) error {
		close(ctx.passed)
		<-asking.Done()
		return asking.Err()
	}
	require.ErrorIs(t, r.unreadable(hangs).advance(ctx, r.now(t, at)), context.DeadlineExceeded)
	at = r.now(t, at)
	require.Equal(t, "unreadable", at.Reason)
	require.Equal(t, 1, at.Tries)

	stopping, stop := context.WithCancel(t.Context())
	stopped := func(context.Context) error { stop(); return spoilt(stopping) }
	require.ErrorContains(t, r.unreadable(stopped).advance(stopping, r.now(t, at)), "spoilt")
	require.Equal(t, 1, r.now(t, at).Tries)
}
