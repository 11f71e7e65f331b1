// SPDX-License-Identifier: Apache-2.0

package housekeeping

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

type fakeStore struct {
	down               error
	swept, expunged    int
	partitioned, ended int
	planned            int
	// unrolled is the number of ended runs without rollups, rollUps the number of rollup calls.
	unrolled, rollUps atomic.Int64
	// unindexed and indexings are the same for the search index.
	unindexed, indexings atomic.Int64
	moved                int
	stuck                error // error of endless work
	unended              error // error of runs that are open for too long
	old, late            int   // runs and deliveries that are open for too long
	// expired is the number of leases beyond three per sweep.
	expired int
	broken  error // error of sweeping leases
	// past is the amount of expired history, freed the bytes per deletion. Two loops of a Sweeper
	// use past: one deletes, the other reports the oldest day.
	pastMutex sync.Mutex
	past      int
	freed     int64
	held      error // error of a partition that stays
	clock     time.Time
	// openDays is the age of the oldest open day, in days.
	openDays int
	// shorter is the history that projects no longer keep, took the time of a deletion.
	shorter int
	// overdue is the delay of the most overdue project.
	overdue time.Duration
	took    func()
	// expunging is called when expired rows are swept, unless nil.
	expunging func()
}

// settled returns a Sweeper that saw the store answer for the whole grace period.
func settled(opts Options, now time.Time) *Sweeper {
	s := New(opts)
	s.reachable, s.lastCheck, s.clockReadAt, s.storeClock = now.Add(-grace), now, now, now
	s.clockInSync.Store(true)
	if fake, ok := opts.Store.(*fakeStore); ok && fake.clock.IsZero() {
		fake.clock = now
	}
	return s
}

// forget runs one round of the work that depends on age.
func (s *Sweeper) forget(t *testing.T) (err error) {
	t.Helper()
	for _, do := range []func(ctx context.Context) error{s.deleteExpired, s.dropHistory, s.trimHistory} {
		err = errors.Join(err, s.ifStoreSettled(do)(t.Context()))
	}
	return err
}

// round runs one sweep of leases and one round of the other work. moved is the number of runs that
// the sweep moved.
func (s *Sweeper) round(t *testing.T, fake *fakeStore) (moved int, err error) {
	t.Helper()
	before := fake.moved
	err = errors.Join(s.sweepExpiredLeases(t.Context()), s.runHousekeeping(t.Context()), s.forget(t))
	return fake.moved - before, err
}

// Now returns a constant time unless the test changes it.
func (f *fakeStore) Now(context.Context) (time.Time, error) { return f.clock, nil }

func (f *fakeStore) Ping(context.Context) error { return f.down }

func (f *fakeStore) SweepLeases(_ context.Context, limit int) (store.Swept, error) {
	f.swept++
	n := min(limit, f.expired+3)
	f.expired = max(f.expired-n, 0)
	f.moved += n
	return store.Swept{GivenBack: n - 2, Failed: 1, Cancelled: 1}, errors.Join(f.down, f.broken)
}

func (f *fakeStore) SweepExpired(context.Context, int) (int, error) {
	f.expunged++
	if f.expunging != nil {
		f.expunging()
	}
	return 0, nil
}

func (f *fakeStore) ExpireRuns(_ context.Context, age time.Duration, limit int) (int, error) {
	if age != store.MaxOpen {
		return 0, errors.New("not that long")
	}
	n := min(limit, f.old)
	f.old -= n
	return n, f.unended
}

func (f *fakeStore) ExpireDeliveries(_ context.Context, age time.Duration, limit int) (int, error) {
	if age != store.MaxOpen {
		return 0, errors.New("not that long")
	}
	n := min(limit, f.late)
	f.late -= n
	return n, nil
}

func (f *fakeStore) DropHistory(_ context.Context, age time.Duration, limit int) (store.Dropped, error) {
	if age != store.Retention {
		return store.Dropped{}, errors.New("not that long")
	}
	f.pastMutex.Lock()
	defer f.pastMutex.Unlock()
	n := min(limit-1, f.past)
	if f.past -= n; n == 0 {
		return store.Dropped{}, f.held
	}
	return store.Dropped{Count: n, Freed: f.freed}, f.held
}

func (f *fakeStore) OldestHistory(context.Context) (oldest store.OldestDays, err error) {
	f.pastMutex.Lock()
	defer f.pastMutex.Unlock()
	if f.past > 0 {
		oldest.Deletable = f.clock.Add(-store.Retention - 3*24*time.Hour)
	}
	if f.openDays > 0 {
		oldest.Open = f.clock.Add(-time.Duration(f.openDays) * 24 * time.Hour)
	}
	return oldest, nil
}

func (f *fakeStore) CountStored(_ context.Context, limit int) (int, error) {
	n := min(limit, f.ended)
	f.ended -= n
	return n, f.stuck
}

func (f *fakeStore) RollUp(_ context.Context, limit int) (int, error) {
	n := min(limit, int(f.unrolled.Load()))
	f.rollUps.Add(1)
	f.unrolled.Add(-int64(n))
	return n, f.stuck
}

func (f *fakeStore) Replan(context.Context) error {
	f.planned++
	return nil
}

func (f *fakeStore) EnsurePartitions(_ context.Context, ahead int) (int, error) {
	f.partitioned++
	if f.stuck != nil {
		return 2, f.stuck
	}
	return ahead + 1, nil
}

func TestSweeper_WaitsForGrace(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fake := &fakeStore{clock: now}
	s := New(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }})
	once := func(after time.Duration) int {
		now, fake.clock = now.Add(after), fake.clock.Add(after)
		moved, err := s.round(t, fake)
		if fake.down == nil {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, fake.down)
		}
		return moved
	}
	moved := func(lookAfter ...time.Duration) (moved int) {
		for _, after := range lookAfter {
			moved += once(after)
		}
		return moved
	}
	lease := []time.Duration{10 * time.Second, 10 * time.Second, 9 * time.Second}
	require.Zero(t, once(0), "the store was reached only recently")
	require.Zero(t, moved(lease...))
	require.Equal(t, 3, once(time.Second))

	fake.down = errors.New("away")
	require.Zero(t, once(time.Second))
	fake.down = nil
	require.Zero(t, once(time.Hour), "runners have not had time to renew their leases")
	require.Zero(t, moved(lease...))
	require.Equal(t, 3, once(time.Second))

	require.Zero(t, once(40*time.Second), "the process was paused, so runners could not renew")
	require.Zero(t, moved(lease...))
	require.Equal(t, 3, once(time.Second))
	require.Equal(t, 3, fake.swept)
	require.Equal(t, 3, fake.expunged, "deletions wait for the same time")
}

// TestSweeper_DeletesExpiredRowsEachMinute: from the end of the grace period on.
func TestSweeper_DeletesExpiredRowsEachMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeStore{clock: time.Now()}
		ctx, stop := context.WithTimeout(t.Context(), 3*expireInterval+time.Second)
		defer stop()
		require.NoError(t, New(Options{Store: fake, Logger: slog.New(slog.DiscardHandler)}).Run(ctx))
		require.Equal(t, 3, fake.expunged)
	})
}

// TestSweeper_EndsRunsOpenForTooLong: each round ends all of them.
func TestSweeper_EndsRunsOpenForTooLong(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{old: 3 * sweepLimit}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	_, err := s.round(t, fake)
	require.NoError(t, err)
	require.Zero(t, fake.old)
}

// TestSweeper_DropsHistory: all expired history, and the delay is reported.
func TestSweeper_DropsHistory(t *testing.T) {
	t.Parallel()
	now, registry := time.Unix(0, 0), prometheus.NewRegistry()
	fake := &fakeStore{past: 3 * sweepLimit, clock: now}
	s := settled(Options{Store: fake, Logger: slog.Default(), Metrics: metrics.NewGateway(registry, nil), Now: func() time.Time { return now }}, now)
	require.NoError(t, s.reportOverdue(t.Context()))
	overdue := func() float64 { return metrictest.Of(t, registry).Value(t, "agentplatform_history_overdue_seconds") }
	require.InEpsilon(t, (2 * 24 * time.Hour).Seconds(), overdue(), 0)
	for range 2 { // reported in another loop
		_, err := s.round(t, fake)
		require.NoError(t, err)
	}
	require.Zero(t, fake.past)
	require.Zero(t, overdue())
	require.InEpsilon(t, 3*sweepLimit, metrictest.Of(t, registry).Value(t, "agentplatform_history_dropped_total"), 0)
}

// TestSweeper_ReportsOpenDaysBeyondRetention: an open day is not deleted, so it has a gauge of its own.
func TestSweeper_ReportsOpenDaysBeyondRetention(t *testing.T) {
	t.Parallel()
	now, registry := time.Unix(0, 0), prometheus.NewRegistry()
	fake := &fakeStore{clock: now}
	s := settled(Options{Store: fake, Logger: slog.Default(), Metrics: metrics.NewGateway(registry, nil), Retention: 90 * 24 * time.Hour}, now)
	for name, row := range map[string]struct {
		days int
		want time.Duration
	}{
		"no open day":       {0, 0},
		"within retention":  {90, 0},
		"just old enough":   {91, 0},
		"three days beyond": {94, 3 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			fake.openDays = row.days
			require.NoError(t, s.reportOverdue(t.Context()))
			all := metrictest.Of(t, registry)
			require.InDelta(t, row.want.Seconds(), all.Value(t, "agentplatform_open_history_overdue_seconds"), 0)
			require.Zero(t, all.Value(t, "agentplatform_history_overdue_seconds"))
		})
	}
}

// TestSweeper_DropsHistoryOnceItHasExpiredRuns: ending a run needs its history. Runs that are set
// aside because they cannot end do not keep history.
func TestSweeper_DropsHistoryOnceItHasExpiredRuns(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{past: 3, clock: now, unended: errors.New("away")}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	require.NoError(t, s.sweepExpiredLeases(t.Context()))
	require.ErrorIs(t, s.forget(t), fake.unended)
	require.Equal(t, 3, fake.past)
	fake.unended = &store.SetAsideError{Rows: []error{errors.New("one that cannot end")}}
	require.Error(t, s.forget(t))
	require.Zero(t, fake.past)
}

// TestOpenFor_IsShorterThanRetention: the history of open runs is never deleted.
func TestOpenFor_IsShorterThanRetention(t *testing.T) {
	t.Parallel()
	require.Equal(t, store.MaxOpen, store.OpenFor(store.Retention))
	require.Equal(t, 24*time.Hour, store.OpenFor(store.MinRetention))
}

// TestSweeper_ManyLeasesInOneSweep: a sweep continues while each statement is full.
func TestSweeper_ManyLeasesInOneSweep(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{expired: 4 * sweepLimit}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	moved, err := s.round(t, fake)
	require.NoError(t, err)
	require.Equal(t, 4*sweepLimit+3, moved)
	require.Equal(t, 5, fake.swept)
}

// TestSweeper_CountsLostLeases: by the outcome of their runs.
func TestSweeper_CountsLostLeases(t *testing.T) {
	t.Parallel()
	st, err := sqlite.Open(t.Context(), sqlite.Options{Path: sqlitetest.Migrated(t), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	scene := storebench.NewScene(t, st, 2)
	_, err = st.Accept(t.Context(), []store.Event{scene.Event(t)})
	require.NoError(t, err)
	result, err := st.Claim(t.Context(), store.Claim{
		Environment: store.Key{ProjectID: scene.Project, ID: scene.Environment}, RunnerID: "lost", Limit: 2, Lease: -time.Second,
	})
	require.NoError(t, err)
	claimed := result.Runs
	require.Len(t, claimed, 2)
	require.NoError(t, st.AppendJournal(t.Context(), store.Lease{Run: claimed[0].Run.Key(), Token: claimed[0].Token}, []store.JournalEntry{
		{Sequence: 1, Kind: store.JournalToolStarted, Data: []byte(`{}`), Unsafe: true},
	}))

	registry := prometheus.NewRegistry()
	s := settled(Options{Store: st, Logger: slog.Default(), Metrics: metrics.NewGateway(registry, nil)}, time.Now())
	require.NoError(t, s.sweepExpiredLeases(t.Context()))
	require.NoError(t, s.runHousekeeping(t.Context()))
	require.Equal(t, map[string]float64{
		`agentplatform_lost_leases_total{outcome="given_back"}`: 1,
		`agentplatform_lost_leases_total{outcome="failed"}`:     1,
		`agentplatform_ended_runs_total{status="failed"}`:       1,
		`agentplatform_store_reachable`:                         1,
		`agentplatform_partitions_ahead`:                        partitionsAhead + 1,
	}, metrictest.Of(t, registry).Moved())

	s.opts.Store = &fakeStore{down: errors.New("away")}
	require.Error(t, s.sweepExpiredLeases(t.Context()))
	require.Zero(t, metrictest.Of(t, registry).Value(t, "agentplatform_store_reachable"))
}

// TestSweeper_ConsumesOutbox: all rows, at once, even while leases are not swept. Partitions are
// checked in the first round and every hour.
func TestSweeper_ConsumesOutbox(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{ended: 3*sweepLimit + 1}
	s := New(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }})
	for round := range partitionEvery + 1 {
		_, err := s.round(t, fake)
		require.NoError(t, err)
		require.Zero(t, fake.ended)
		require.Equal(t, 1+round/partitionEvery, fake.partitioned)
		now = now.Add(sweepInterval)
	}
}

// TestSweeper_StepTimeout: each step has a time limit.
func TestSweeper_StepTimeout(t *testing.T) {
	t.Parallel()
	s := New(Options{Store: hanging{&fakeStore{}}, Logger: slog.Default(), WithTimeout: func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
		require.Equal(t, stepTimeout, after)
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, cancel
	}})
	require.ErrorIs(t, s.sweepExpiredLeases(t.Context()), context.Canceled)
}

// hanging blocks each call until its context ends.
type hanging struct{ *fakeStore }

func (hanging) Ping(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestSweeper_SweepsLeasesDespiteOtherErrors: errors of partitions and of the outbox are logged and
// retried, and leases are swept anyway.
func TestSweeper_SweepsLeasesDespiteOtherErrors(t *testing.T) {
	t.Parallel()
	now, registry := time.Unix(0, 0), prometheus.NewRegistry()
	fake := &fakeStore{stuck: errors.New("permission denied")}
	s := settled(Options{Store: fake, Logger: slog.Default(), Metrics: metrics.NewGateway(registry, nil), Now: func() time.Time { return now }}, now)
	for round := range 2 {
		moved, err := s.round(t, fake)
		require.ErrorIs(t, err, fake.stuck)
		require.Equal(t, 3, moved)
		require.Equal(t, round+1, fake.partitioned, "at once again")
	}
	require.InEpsilon(t, 2, metrictest.Of(t, registry).Value(t, "agentplatform_partitions_ahead"), 0, "the existing partitions are reported")
}

// TestSweeper_FailingStepStopsNoOther: it does not restart the grace period either, because the
// store was reachable.
func TestSweeper_FailingStepStopsNoOther(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{broken: errors.New("one run cannot end"), stuck: errors.New("permission denied"), old: sweepLimit}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	for round := range 3 {
		moved, err := s.round(t, fake)
		require.ErrorIs(t, err, fake.broken)
		require.ErrorIs(t, err, fake.stuck)
		require.Equal(t, 3, moved, "other leases end without another grace period")
		require.Equal(t, round+1, fake.swept)
		now = now.Add(sweepInterval)
	}
	require.Equal(t, 3, fake.expunged)
	require.Zero(t, fake.old)
}

// TestSweeper_LongFailureIsOutage: if the store fails for half of the grace period, runners may
// have been unable to renew their leases.
func TestSweeper_LongFailureIsOutage(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{broken: context.DeadlineExceeded}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	require.Error(t, s.sweepExpiredLeases(t.Context()))
	fake.broken = nil
	now = now.Add(grace/2 + time.Second)
	require.NoError(t, s.sweepExpiredLeases(t.Context()))
	require.Equal(t, 1, fake.swept)
}

// TestSweeper_LeasesDoNotWait: for any other work, however long it takes.
func TestSweeper_LeasesDoNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &slowStore{fakeStore: fakeStore{clock: time.Now()}}
		ctx, stop := context.WithTimeout(t.Context(), grace+time.Minute+time.Second)
		defer stop()
		require.NoError(t, New(Options{Store: slow, Logger: slog.New(slog.DiscardHandler)}).Run(ctx))
		require.Equal(t, int(time.Minute/sweepInterval)+1, slow.swept)
		require.Positive(t, slow.expunged)
	})
}

// TestSweeper_EndlessWorkTakesTurns: endless work continues in its next turn.
func TestSweeper_EndlessWorkTakesTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &slowStore{fakeStore: fakeStore{clock: time.Now(), late: 10 * sweepLimit}}
		ctx, stop := context.WithTimeout(t.Context(), expireInterval+turnTimeout+2*stepTimeout)
		defer stop()
		require.NoError(t, New(Options{Store: slow, Logger: slog.New(slog.DiscardHandler)}).Run(ctx))
		require.Zero(t, slow.late)
		require.Greater(t, slow.expunged, 1)
	})
}

// slowStore is slow, and has an endless number of expired rows.
type slowStore struct{ fakeStore }

func (s *slowStore) SweepExpired(ctx context.Context, limit int) (int, error) {
	s.expunged++
	select {
	case <-time.After(stepTimeout - time.Second):
	case <-ctx.Done():
	}
	return limit, ctx.Err()
}
