// SPDX-License-Identifier: Apache-2.0

package housekeeping

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

func (f *fakeStore) TrimHistory(_ context.Context, limit int) (store.Trimmed, error) {
	n := min(limit/5, f.shorter)
	f.shorter -= n
	if f.took != nil {
		f.took()
	}
	return store.Trimmed{Count: n, Overdue: f.overdue}, nil
}

func (f *fakeStore) ProjectHistoryOverdue(context.Context) (time.Duration, error) {
	return f.overdue, nil
}

// TestTrimmed_OverdueProjects: the pause is shorter if the project is more days late, up to a limit.
func TestTrimmed_OverdueProjects(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		overdue time.Duration
		times   int
	}{
		"less than a day": {23 * time.Hour, 1},
		"four days":       {4 * 24 * time.Hour, 4},
		"months":          {90 * 24 * time.Hour, 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const took = 100 * time.Millisecond
				fake := &fakeStore{shorter: 200 * sweepLimit, clock: time.Now(), overdue: row.overdue}
				fake.took = func() { time.Sleep(took) }
				s := settled(Options{Store: fake, Logger: slog.Default()}, time.Now())
				s.storeReachable.Store(true)
				s.stableForGrace.Store(true)
				require.NoError(t, s.trimHistory(t.Context()))
				require.GreaterOrEqual(t, 200*sweepLimit-fake.shorter, row.times*30*sweepLimit/5*9/10)
			})
		})
	}
}

// severalProjects trims projects in turn, which are late by different times.
type severalProjects struct {
	fakeStore
	late   []time.Duration
	served []time.Time
}

func (p *severalProjects) TrimHistory(_ context.Context, limit int) (store.Trimmed, error) {
	p.served = append(p.served, time.Now())
	time.Sleep(time.Second)
	return store.Trimmed{Count: limit, Overdue: p.late[(len(p.served)-1)%len(p.late)]}, nil
}

func (p *severalProjects) ProjectHistoryOverdue(context.Context) (time.Duration, error) {
	return 90 * 24 * time.Hour, nil
}

// TestTrimmed_PacesByProject: a project that is late shortens the pause after itself only.
func TestTrimmed_PacesByProject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &severalProjects{fakeStore: fakeStore{clock: time.Now()}, late: []time.Duration{4 * 24 * time.Hour, time.Hour}}
		s := settled(Options{Store: fake, Logger: slog.Default()}, time.Now())
		s.storeReachable.Store(true)
		s.stableForGrace.Store(true)
		require.NoError(t, s.trimHistory(t.Context()))
		require.Greater(t, len(fake.served), 2)
		require.Equal(t, time.Second+pauseFactor*time.Second/5, fake.served[1].Sub(fake.served[0]))
		require.Equal(t, time.Second+pauseFactor*time.Second, fake.served[2].Sub(fake.served[1]))
	})
}

// TestDropped_UsesTwentiethOfTime: deletion uses a twentieth of the time, however much there is and
// however long it takes.
func TestDropped_UsesTwentiethOfTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const took, times = 100 * time.Millisecond, 30
		fake := &fakeStore{shorter: 20 * sweepLimit, clock: time.Now()}
		fake.took = func() { time.Sleep(took) }
		s := settled(Options{Store: fake, Logger: slog.Default()}, time.Now())
		for _, left := range []int{20*sweepLimit - times*sweepLimit/5, 20*sweepLimit - 2*times*sweepLimit/5} {
			begun := time.Now()
			require.NoError(t, s.forgetAnswered(t))
			require.Equal(t, left, fake.shorter)
			require.Equal(t, turnTimeout, time.Since(begun))
			require.Equal(t, 20*times*took, time.Since(begun))
		}
	})
}

// TestDropped_LimitsBytesPerSecond: 5 MB a second, however fast the store drops them, and three
// times as many if they are two days late.
func TestDropped_LimitsBytesPerSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeStore{past: 2 * (sweepLimit - 1), freed: 100e6, clock: time.Now()}
		s := settled(Options{Store: fake, Logger: slog.Default()}, time.Now())
		begun := time.Now()
		require.NoError(t, s.forgetAnswered(t))
		require.Zero(t, fake.past)
		require.Equal(t, 40*time.Second, (3 * time.Since(begun)).Round(time.Millisecond))
	})
}

// looksForLong has a partition that is so large that the next deletion is far away.
type looksForLong struct {
	fakeStore
	dropped, looked atomic.Int64
}

func (l *looksForLong) DropHistory(context.Context, time.Duration, int) (store.Dropped, error) {
	l.dropped.Add(1)
	return store.Dropped{Count: 1, Freed: 10e12}, nil
}

func (l *looksForLong) OldestHistory(context.Context) (store.OldestDays, error) {
	l.looked.Add(1)
	return store.OldestDays{Deletable: l.clock.Add(-store.Retention - 24*time.Hour)}, nil
}

// TestDropped_ReportsOverdueDuringRest: the delay is reported during a pause that is longer than a
// turn. A stop ends the pause.
func TestDropped_ReportsOverdueDuringRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		large := &looksForLong{fakeStore: fakeStore{clock: time.Now()}}
		ctx, stop := context.WithTimeout(t.Context(), grace+maxPause-time.Second)
		defer stop()
		begun := time.Now()
		require.NoError(t, New(Options{Store: large, Logger: slog.New(slog.DiscardHandler), Now: time.Now}).Run(ctx))
		require.Equal(t, grace+maxPause-time.Second, time.Since(begun))
		require.EqualValues(t, 1, large.dropped.Load())
		require.GreaterOrEqual(t, large.looked.Load(), int64(maxPause/expireInterval))
	})
}

// TestDropped_ReadPartitionStopsNoOther: the other partitions are dropped in the same round, and
// the error is logged.
func TestDropped_ReadPartitionStopsNoOther(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{past: 3 * sweepLimit, held: errors.New("partition in use"), clock: now}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	require.ErrorIs(t, s.forgetAnswered(t), fake.held)
	require.Zero(t, fake.past)
}

// forgetAnswered runs a round of age-dependent work after a successful check of the store.
func (s *Sweeper) forgetAnswered(t *testing.T) error {
	t.Helper()
	s.storeReachable.Store(true)
	s.stableForGrace.Store(true)
	return s.forget(t)
}

// deletesForLong has an endless amount of expired history.
type deletesForLong struct {
	fakeStore
	dropped, trimmed, counted, expunged atomic.Int64
}

func (d *deletesForLong) DropHistory(_ context.Context, _ time.Duration, limit int) (store.Dropped, error) {
	d.dropped.Add(1)
	time.Sleep(time.Second)
	return store.Dropped{Count: limit}, nil
}

func (d *deletesForLong) TrimHistory(_ context.Context, limit int) (store.Trimmed, error) {
	d.trimmed.Add(1)
	time.Sleep(time.Second)
	return store.Trimmed{Count: limit}, nil
}

func (d *deletesForLong) SweepExpired(context.Context, int) (int, error) {
	d.expunged.Add(1)
	return 0, nil
}

func (d *deletesForLong) CountStored(context.Context, int) (int, error) {
	d.counted.Add(1)
	return 0, nil
}

// TestForAge_RunsIndependently: other work does not wait for deletions. The history of all projects
// and that of projects with a shorter retention do not wait for each other, and each uses a
// twentieth of the time.
func TestForAge_RunsIndependently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const long = 10 * expireInterval
		deletes := &deletesForLong{fakeStore: fakeStore{clock: time.Now()}}
		ctx, stop := context.WithTimeout(t.Context(), long+time.Second)
		defer stop()
		require.NoError(t, New(Options{Store: deletes, Logger: slog.New(slog.DiscardHandler), Now: time.Now}).Run(ctx))
		require.GreaterOrEqual(t, deletes.counted.Load(), int64(long/sweepInterval))
		require.EqualValues(t, long/expireInterval, deletes.expunged.Load(), "from the end of the grace period")
		for _, times := range []int64{deletes.dropped.Load(), deletes.trimmed.Load()} {
			require.InDelta(t, int64((long-grace)/(20*time.Second)), times, 3)
		}
	})
}

// TestRest_ShorterIfOverdue: the pause is shorter if history is more days late.
func TestRest_ShorterIfOverdue(t *testing.T) {
	t.Parallel()
	require.Equal(t, pauseFactor*time.Second, Rest(time.Second, 0, 0))
	require.Equal(t, pauseFactor*time.Second, Rest(time.Second, 0, 23*time.Hour))
	require.Equal(t, pauseFactor*time.Second/5, Rest(time.Second, 0, 4*24*time.Hour))
	require.Equal(t, 200*time.Second, Rest(time.Second, 1e9, 0), "the longer of the two")
	require.Equal(t, 50*time.Second, Rest(time.Second, 1e9, 3*24*time.Hour))
	require.Equal(t, maxPause, Rest(0, 10e12, 0))
	require.Equal(t, maxPause/4, Rest(0, 10e12, 3*24*time.Hour))
	now := time.Now()
	fake := &fakeStore{past: 1, held: errors.New("partition in use"), clock: now}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	require.NoError(t, s.reportOverdue(t.Context()))
	require.Positive(t, s.overdue.Load())
	fake.past = 0
	require.NoError(t, s.reportOverdue(t.Context()))
	require.Zero(t, s.overdue.Load())
}

// timesOut is a store that exceeds the time limit of a step in each deletion of history.
type timesOut struct {
	fakeStore
	dropped, trimmed atomic.Int64
}

func (d *timesOut) DropHistory(ctx context.Context, _ time.Duration, _ int) (store.Dropped, error) {
	d.dropped.Add(1)
	<-ctx.Done()
	return store.Dropped{}, ctx.Err()
}

func (d *timesOut) TrimHistory(ctx context.Context, _ int) (store.Trimmed, error) {
	d.trimmed.Add(1)
	<-ctx.Done()
	return store.Trimmed{}, ctx.Err()
}

// TestForAge_RestsAfterTimeout: a deletion that fails after its time limit is followed by a pause,
// as each other one, so that it does not make a slow store slower.
func TestForAge_RestsAfterTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const long = time.Hour
		slow := &timesOut{fakeStore: fakeStore{clock: time.Now()}}
		ctx, stop := context.WithTimeout(t.Context(), long)
		defer stop()
		require.NoError(t, New(Options{Store: slow, Logger: slog.New(slog.DiscardHandler), Now: time.Now}).Run(ctx))
		require.InDelta(t, int64(long/((1+pauseFactor)*stepTimeout)), slow.trimmed.Load(), 3)
		require.InDelta(t, int64(long/(dropTimeout+maxPause)), slow.dropped.Load(), 2)
	})
}
