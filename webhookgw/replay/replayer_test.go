// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
	"github.com/agentplatform/agentplatform/store/sqlite"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// replaying is a store with a connector and failed events.
type replaying struct {
	store.Store
	scene  *storebench.Scene
	failed []uuid.UUID
	// refuse can return an error instead of a step or a move.
	refuse atomic.Pointer[func(step bool) error]
}

// Accept implements Store.
func (r *replaying) Accept(ctx context.Context, events []store.Event) ([]store.Admission, error) {
	if refuse := r.refuse.Load(); refuse != nil {
		if err := (*refuse)(true); err != nil {
			return nil, err
		}
	}
	return r.Store.Accept(ctx, events)
}

// MoveReplay implements Store.
func (r *replaying) MoveReplay(ctx context.Context, step store.ReplayStep) error {
	if refuse := r.refuse.Load(); refuse != nil {
		if err := (*refuse)(false); err != nil {
			return err
		}
	}
	return r.Store.MoveReplay(ctx, step)
}

func newReplaying(t *testing.T, failed int) *replaying {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Options{Path: sqlitetest.Migrated(t), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	r := &replaying{Store: st, scene: storebench.NewScene(t, st, 1)}
	r.fail(t, failed)
	return r
}

// fail accepts events whose runs fail at once.
func (r *replaying) fail(t *testing.T, events int) {
	t.Helper()
	for range events {
		e := r.scene.Event(t)
		e.Runs[0].ErrorCode, e.Runs[0].Error = runerror.FilesRequired, "no file"
		admissions, err := r.Accept(t.Context(), []store.Event{e})
		require.NoError(t, err)
		require.NoError(t, admissions[0].Err)
		r.failed = append(r.failed, admissions[0].ConnectorRunID)
	}
}

// start creates a replay of the failed runs in a later millisecond, because a window ends before
// the creation of its replay.
func (r *replaying) start(t *testing.T, perMinute int64) store.Replay {
	t.Helper()
	failed, err := r.Now(t.Context())
	require.NoError(t, err)
	now := failed
	for now.UnixMilli() == failed.UnixMilli() {
		now, err = r.Now(t.Context())
		require.NoError(t, err)
	}
	started, verdict, err := r.StartReplay(t.Context(), store.NewReplay{
		Connector: store.Key{ProjectID: r.scene.Project, ID: r.scene.Connector}, ID: uuid.New(), PerMinute: perMinute,
		Filter: store.ReplayFilter{Statuses: []store.ConnectorRunStatus{store.ConnectorRunFailed}, Since: now.Add(-time.Hour), Until: now.Add(time.Hour)},
	})
	require.NoError(t, err)
	require.Equal(t, store.Accepted, verdict)
	return started
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// replayer returns a Replayer with a constant clock.
func (r *replaying) replayer() *Replayer {
	return New(Options{Store: r, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon }})
}

// now returns the current state of a replay, without waiting for its due time.
func (r *replaying) now(t *testing.T, of store.Replay) store.Replay {
	t.Helper()
	at, err := r.Replay(t.Context(), of.Key())
	require.NoError(t, err)
	now, err := r.Now(t.Context())
	require.NoError(t, err)
	at.TakenAt = now.UTC()
	return at
}

// advance runs one turn of a replay.
func (r *replaying) advance(t *testing.T, of store.Replay) store.Replay {
	t.Helper()
	require.NoError(t, r.replayer().advance(t.Context(), r.now(t, of)))
	return r.now(t, of)
}

// again counts the replays of each original.
func (r *replaying) again(t *testing.T) map[uuid.UUID]int {
	t.Helper()
	out := map[uuid.UUID]int{}
	for offset := 0; ; offset += 100 {
		runs, _, err := r.ListConnectorRuns(t.Context(), store.ConnectorRunQuery{
			Connector: store.Key{ProjectID: r.scene.Project, ID: r.scene.Connector}, Limit: 100, Offset: offset,
		})
		require.NoError(t, err)
		for _, run := range runs {
			if run.ReplayOf != nil {
				out[*run.ReplayOf]++
			}
		}
		if len(runs) < 100 {
			return out
		}
	}
}

// onceEach returns the counts for one replay of each original.
func (r *replaying) onceEach() map[uuid.UUID]int {
	out := map[uuid.UUID]int{}
	for _, id := range r.failed {
		out[id] = 1
	}
	return out
}

// TestReplayer_KeepsRate: a turn replays the number for one second, at least one, and the next turn
// is due at the rate.
func TestReplayer_KeepsRate(t *testing.T) {
	t.Parallel()
	for perMinute, want := range map[int64]struct {
		turns []int64
		wait  time.Duration
	}{
		1:    {[]int64{1, 2, 3, 4, 5}, time.Minute},
		120:  {[]int64{2, 4, 5}, time.Second},
		150:  {[]int64{2, 4, 5}, 800 * time.Millisecond},
		6000: {[]int64{5}, time.Second},
	} {
		t.Run(fmt.Sprint(perMinute), func(t *testing.T) {
			r := newReplaying(t, 5)
			at := r.start(t, perMinute)
			for _, replayed := range want.turns {
				taken := r.now(t, at)
				require.NoError(t, r.replayer().advance(t.Context(), taken))
				at = r.now(t, at)
				require.Equal(t, replayed, at.Replayed, perMinute)
				_, next, err := r.NextReplay(t.Context())
				require.NoError(t, err)
				if at.Status == store.ReplayRunning {
					require.Equal(t, taken.TakenAt.Add(want.wait), *next, perMinute)
				}
			}
			if at.Status == store.ReplayRunning { // its last turn was full
				at = r.advance(t, at)
			}
			require.Equal(t, store.ReplayCompleted, at.Status, perMinute)
			require.NotNil(t, at.EndedAt)
			require.Equal(t, r.onceEach(), r.again(t))
		})
	}
}

// TestReplayer_ReplicasReplayOnce: even if all replicas take the same turn.
func TestReplayer_ReplicasReplayOnce(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 40)
	at := r.start(t, 600)
	for at.Status == store.ReplayRunning {
		var replicas sync.WaitGroup
		errs, taken := make([]error, 3), r.now(t, at)
		for i := range errs {
			replicas.Go(func() { errs[i] = r.replayer().advance(t.Context(), taken) })
		}
		replicas.Wait()
		require.NoError(t, errors.Join(errs...))
		at = r.now(t, at)
	}
	require.Equal(t, store.ReplayCompleted, at.Status)
	require.EqualValues(t, 40, at.Replayed)
	require.Equal(t, r.onceEach(), r.again(t))
}

// TestReplayer_ContinuesAfterCrash: after a crash at any point of a turn.
func TestReplayer_ContinuesAfterCrash(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	for survives := range 6 {
		r := newReplaying(t, 4)
		at, left := r.start(t, 6000), survives
		crash := func(bool) error {
			if left--; left < 0 {
				return lost
			}
			return nil
		}
		r.refuse.Store(&crash)
		err := r.replayer().advance(t.Context(), r.now(t, at))
		if survives < 5 {
			require.ErrorIs(t, err, lost)
			require.EqualValues(t, survives, r.now(t, at).Replayed)
		}
		r.refuse.Store(nil)
		if at = r.now(t, at); at.Status == store.ReplayRunning {
			at = r.advance(t, at)
		}
		require.Equal(t, store.ReplayCompleted, at.Status)
		require.Equal(t, r.onceEach(), r.again(t))
	}
}

// TestReplayer_Waits: a replay waits while the project is full or the connector accepts nothing. It
// reports the reason and continues afterwards.
func TestReplayer_Waits(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 3)
	at := r.start(t, 6000)
	connector, err := r.Connector(t.Context(), at.Connector())
	require.NoError(t, err)
	for reason, of := range map[string]struct {
		wait time.Duration
		put  func(closed bool) error
	}{
		"connector_disabled": {connectorWait, func(closed bool) error {
			connector.Enabled = !closed
			return r.PutConnector(t.Context(), connector)
		}},
		"no_agent": {connectorWait, func(closed bool) error {
			if closed {
				return r.Remove(t.Context(), at.ProjectID, r.scene.Links[0].Ref)
			}
			return r.PutLink(t.Context(), r.scene.Links[0])
		}},
	} {
		t.Run(reason, func(t *testing.T) {
			require.NoError(t, of.put(true))
			taken := r.now(t, at)
			require.NoError(t, r.replayer().advance(t.Context(), taken))
			at := r.now(t, at)
			require.Equal(t, reason, at.Reason)
			require.NotEmpty(t, at.Detail)
			require.Equal(t, store.ReplayRunning, at.Status)
			_, next, err := r.NextReplay(t.Context())
			require.NoError(t, err)
			require.Equal(t, taken.TakenAt.Add(of.wait), *next)
			require.NoError(t, of.put(false))
		})
	}
	at = r.advance(t, at)
	require.Equal(t, store.ReplayCompleted, at.Status)
	require.Empty(t, at.Reason)
	require.Equal(t, r.onceEach(), r.again(t))
}

// limited is a store with a limit of open runs per environment.
type limited struct {
	*replaying
	runs int64
}

// ProjectLoad implements Store.
func (l *limited) ProjectLoad(ctx context.Context, project uuid.UUID) (store.ProjectLoad, error) {
	load, err := l.replaying.ProjectLoad(ctx, project)
	load.Limits.BacklogRuns = l.runs
	return load, err
}

// TestReplayer_KeepsBacklogLimit: a replay fills the free capacity, counts its own runs since the
// last measurement, and waits.
func TestReplayer_KeepsBacklogLimit(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 5)
	at := r.start(t, 6000)
	replayer := New(Options{Store: &limited{r, 3}, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon }})
	taken := r.now(t, at)
	require.NoError(t, replayer.advance(t.Context(), taken))
	at = r.now(t, at)
	require.EqualValues(t, 3, at.Replayed)
	require.Equal(t, "backlog_full", at.Reason)
	_, next, err := r.NextReplay(t.Context())
	require.NoError(t, err)
	require.Equal(t, taken.TakenAt.Add(capacityWait), *next)
	at = r.advance(t, at)
	require.Equal(t, store.ReplayCompleted, at.Status)
	require.Equal(t, r.onceEach(), r.again(t))
}

// TestReplayer_CountsRefused: originals that cannot be replayed are counted by reason, and the
// replay continues.
func TestReplayer_CountsRefused(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 1)
	skipped := r.scene.Event(t)
	skipped.Runs, skipped.Input, skipped.Skipped = nil, nil, "not now"
	_, err := r.Accept(t.Context(), []store.Event{skipped})
	require.NoError(t, err)
	at := r.start(t, 6000)
	require.NoError(t, r.CancelReplay(t.Context(), at.Key()))
	n := store.NewReplay{Connector: at.Connector(), ID: uuid.New(), Filter: at.Filter, PerMinute: 6000}
	n.Filter.Statuses = append(n.Filter.Statuses, store.ConnectorRunSkipped)
	at, _, err = r.StartReplay(t.Context(), n)
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	replayer := r.replayer()
	replayer.opts.Metrics = metrics.NewGateway(registry, nil)
	require.NoError(t, replayer.advance(t.Context(), r.now(t, at)))
	at = r.now(t, at)
	require.Equal(t, store.ReplayCompleted, at.Status)
	require.EqualValues(t, 1, at.Replayed)
	require.Equal(t, map[string]int64{"gone": 1}, at.Refused)
	for _, outcome := range []string{metrics.ReplayDone, metrics.ReplayRefused} {
		require.InEpsilon(t, 1, metrictest.Of(t, registry).Value(t, "agentplatform_replayed_total", "outcome", outcome), 0)
	}
}

// TestReplayer_CountsWrongMode: waiting does not turn a connector into an outbound one.
func TestReplayer_CountsWrongMode(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 1)
	at := r.now(t, r.start(t, 6000))
	now := replayTurn{store: r, metrics: metrics.NewGateway(nil, nil), at: at, written: at.Position}
	require.NoError(t, now.handleRefusal(t.Context(), store.ConnectorRun{ID: r.failed[0]}, replay.Refused{Reason: replay.NotOutbound}))
	require.Equal(t, map[string]int64{"not_outbound": 1}, r.now(t, at).Refused)
}

// TestReplayer_SkipsOtherStatuses: however many there are.
func TestReplayer_SkipsOtherStatuses(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 1)
	others := make([]store.Event, store.MaxReplayPage+1)
	for i := range others {
		others[i] = r.scene.Event(t)
		others[i].Runs, others[i].Input, others[i].Skipped = nil, nil, "not now"
	}
	_, err := r.Accept(t.Context(), others)
	require.NoError(t, err)
	r.fail(t, 1)
	at := r.advance(t, r.start(t, 6000))
	require.Equal(t, store.ReplayCompleted, at.Status)
	require.Equal(t, r.onceEach(), r.again(t))
}

// TestReplayer_Fails: if waiting does not help.
func TestReplayer_Fails(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 1)
	for reason, change := range map[string]func(*store.Replay) error{
		replayExpired: func(at *store.Replay) error {
			at.TakenAt = at.CreatedAt.Add(store.MaxOpen + time.Second)
			return nil
		},
		replayTooMany: func(at *store.Replay) error {
			at.Replayed = store.MaxReplayed
			return nil
		},
	} {
		t.Run(reason, func(t *testing.T) {
			taken := r.now(t, r.start(t, 600))
			require.NoError(t, change(&taken))
			require.NoError(t, r.replayer().advance(t.Context(), taken))
			at := r.now(t, taken)
			require.Equal(t, store.ReplayFailed, at.Status)
			require.Equal(t, reason, at.Reason)
			require.NotEmpty(t, at.Detail)
		})
	}
	at := r.start(t, 600)
	connector, err := r.Connector(t.Context(), at.Connector())
	require.NoError(t, err)
	connector.Retired = true
	require.NoError(t, r.PutConnector(t.Context(), connector))
	at = r.advance(t, at)
	require.Equal(t, store.ReplayFailed, at.Status)
	require.Equal(t, "connector_retired", at.Reason)
	require.Empty(t, r.again(t))
}

// TestReplayer_Cancelled: a cancelled replay replays nothing more.
func TestReplayer_Cancelled(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 3)
	at := r.start(t, 6000)
	taken := r.now(t, at)
	require.NoError(t, r.CancelReplay(t.Context(), at.Key()))
	require.NoError(t, r.replayer().advance(t.Context(), taken))
	require.Equal(t, store.ReplayCancelled, r.now(t, at).Status)
	require.Empty(t, r.again(t))
}

// TestReplayer_LookProcessesAllDue: a check processes all due replays and returns the time of the
// next one. Without a replay it is one read.
func TestReplayer_LookProcessesAllDue(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 3)
	wait, err := r.replayer().processDue(t.Context())
	require.NoError(t, err)
	require.Equal(t, pollInterval, wait)
	at := r.start(t, 1)
	wait, err = r.replayer().processDue(t.Context())
	require.NoError(t, err)
	require.Equal(t, pollInterval, wait, "the next one is due in a minute")
	require.EqualValues(t, 1, r.now(t, at).Replayed)
}
