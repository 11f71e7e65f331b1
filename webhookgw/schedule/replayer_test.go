// SPDX-License-Identifier: Apache-2.0

package schedule

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
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
	"github.com/agentplatform/agentplatform/store/sqlite"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// replaying is a store with a connector and events that have failed.
type replaying struct {
	store.Store
	scene  *storebench.Scene
	failed []uuid.UUID
	// refuse answers steps and moves in place of the store where it is an error.
	refuse atomic.Pointer[func(step bool) error]
}

// Accept implements ReplayStore.
func (r *replaying) Accept(ctx context.Context, events []store.Event) ([]store.Admission, error) {
	if refuse := r.refuse.Load(); refuse != nil {
		if err := (*refuse)(true); err != nil {
			return nil, err
		}
	}
	return r.Store.Accept(ctx, events)
}

// MoveReplay implements ReplayStore.
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

// fail accepts events that fail at once.
func (r *replaying) fail(t *testing.T, events int) {
	t.Helper()
	for range events {
		e := r.scene.Event(t)
		e.Runs[0].ErrorCode, e.Runs[0].Error = store.RunErrorFilesRequired, "no file"
		admissions, err := r.Accept(t.Context(), []store.Event{e})
		require.NoError(t, err)
		require.NoError(t, admissions[0].Err)
		r.failed = append(r.failed, admissions[0].ConnectorRunID)
	}
}

// start makes a replay of what has failed, in a later millisecond: a window ends before that in
// which the replay is made.
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

// replayer works on a store; its clock stands still.
func (r *replaying) replayer() *Replayer {
	return NewReplayer(ReplayerOptions{Store: r, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return midnight }})
}

// now is a replay as it is, taken at once.
func (r *replaying) now(t *testing.T, of store.Replay) store.Replay {
	t.Helper()
	at, err := r.Replay(t.Context(), of.Key())
	require.NoError(t, err)
	now, err := r.Now(t.Context())
	require.NoError(t, err)
	at.TakenAt = now.UTC()
	return at
}

// advance gives a replay a turn.
func (r *replaying) advance(t *testing.T, of store.Replay) store.Replay {
	t.Helper()
	require.NoError(t, r.replayer().advance(t.Context(), r.now(t, of)))
	return r.now(t, of)
}

// again counts how often each original has happened again.
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

// onceEach is what all that failed count when they have happened again once.
func (r *replaying) onceEach() map[uuid.UUID]int {
	out := map[uuid.UUID]int{}
	for _, id := range r.failed {
		out[id] = 1
	}
	return out
}

// TestAReplayGoesOnAtItsRate: a turn replays what a second may have, or one, and the next
// turn is due when the rate allows it.
func TestAReplayGoesOnAtItsRate(t *testing.T) {
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
			if at.Status == store.ReplayRunning { // its turn was full with the last one
				at = r.advance(t, at)
			}
			require.Equal(t, store.ReplayCompleted, at.Status, perMinute)
			require.NotNil(t, at.EndedAt)
			require.Equal(t, r.onceEach(), r.again(t))
		})
	}
}

// TestReplicasReplayEachOriginalOnce: also where all of them take the same turn.
func TestReplicasReplayEachOriginalOnce(t *testing.T) {
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

// TestAReplayGoesOnAfterACrash: wherever in a turn its gateway was lost.
func TestAReplayGoesOnAfterACrash(t *testing.T) {
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

// TestAReplayWaits: while the project has no room, or the connector takes nothing; it says
// why, and goes on when that is over.
func TestAReplayWaits(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 3)
	at := r.start(t, 6000)
	connector, err := r.Connector(t.Context(), at.Connector())
	require.NoError(t, err)
	for reason, of := range map[string]struct {
		wait time.Duration
		put  func(closed bool) error
	}{
		"connector_disabled": {openWait, func(closed bool) error {
			connector.Enabled = !closed
			return r.PutConnector(t.Context(), connector)
		}},
		"no_agent": {openWait, func(closed bool) error {
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

// limited is a store whose projects may have so many open runs in an environment.
type limited struct {
	*replaying
	runs int64
}

// ProjectLoad implements ReplayStore.
func (l *limited) ProjectLoad(ctx context.Context, project uuid.UUID) (store.ProjectLoad, error) {
	load, err := l.replaying.ProjectLoad(ctx, project)
	load.Limits.BacklogRuns = l.runs
	return load, err
}

// TestAReplayKeepsToTheBacklog: it fills what is free, with what it has replayed since the
// project was measured, and waits.
func TestAReplayKeepsToTheBacklog(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 5)
	at := r.start(t, 6000)
	replayer := NewReplayer(ReplayerOptions{Store: &limited{r, 3}, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return midnight }})
	taken := r.now(t, at)
	require.NoError(t, replayer.advance(t.Context(), taken))
	at = r.now(t, at)
	require.EqualValues(t, 3, at.Replayed)
	require.Equal(t, "backlog_full", at.Reason)
	_, next, err := r.NextReplay(t.Context())
	require.NoError(t, err)
	require.Equal(t, taken.TakenAt.Add(roomWait), *next)
	at = r.advance(t, at)
	require.Equal(t, store.ReplayCompleted, at.Status)
	require.Equal(t, r.onceEach(), r.again(t))
}

// TestWhatCannotBeReplayedIsCounted: by its reason, and the replay goes on.
func TestWhatCannotBeReplayedIsCounted(t *testing.T) {
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
	replayer.opts.Metrics = metrics.NewGateway(registry)
	require.NoError(t, replayer.advance(t.Context(), r.now(t, at)))
	at = r.now(t, at)
	require.Equal(t, store.ReplayCompleted, at.Status)
	require.EqualValues(t, 1, at.Replayed)
	require.Equal(t, map[string]int64{"gone": 1}, at.Refused)
	for _, outcome := range []string{metrics.ReplayDone, metrics.ReplayRefused} {
		require.InEpsilon(t, 1, metrictest.Of(t, registry).Value(t, "agentplatform_replayed_total", "outcome", outcome), 0)
	}
}

// TestWhatItsConnectorNeverSendsIsCounted: no waiting makes an outbound connector of another one.
func TestWhatItsConnectorNeverSendsIsCounted(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 1)
	at := r.now(t, r.start(t, 6000))
	now := turn{store: r, metrics: metrics.NewGateway(nil), at: at, written: at.Position}
	require.NoError(t, now.refused(t.Context(), store.ConnectorRun{ID: r.failed[0]}, replay.Refused{Reason: replay.NotOutbound}))
	require.Equal(t, map[string]int64{"not_outbound": 1}, r.now(t, at).Refused)
}

// TestAReplayPassesOverWhatItDoesNotReplay: however much that is.
func TestAReplayPassesOverWhatItDoesNotReplay(t *testing.T) {
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

// TestAReplayFails: where no waiting helps.
func TestAReplayFails(t *testing.T) {
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

// TestACancelledReplayReplaysNothing: from the moment on that it is.
func TestACancelledReplayReplaysNothing(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 3)
	at := r.start(t, 6000)
	taken := r.now(t, at)
	require.NoError(t, r.CancelReplay(t.Context(), at.Key()))
	require.NoError(t, r.replayer().advance(t.Context(), taken))
	require.Equal(t, store.ReplayCancelled, r.now(t, at).Status)
	require.Empty(t, r.again(t))
}

// TestALookTakesAllOnThatIsDue: and says when the next one is; without any it is one read.
func TestALookTakesAllOnThatIsDue(t *testing.T) {
	t.Parallel()
	r := newReplaying(t, 3)
	wait, err := r.replayer().look(t.Context())
	require.NoError(t, err)
	require.Equal(t, lookEvery, wait)
	at := r.start(t, 1)
	wait, err = r.replayer().look(t.Context())
	require.NoError(t, err)
	require.Equal(t, lookEvery, wait, "the next one is a minute away")
	require.EqualValues(t, 1, r.now(t, at).Replayed)
}
