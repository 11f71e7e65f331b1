// SPDX-License-Identifier: Apache-2.0

package schedule

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

func (f *fakeStore) TrimHistory(_ context.Context, limit int) (int, error) {
	n := min(limit/5, f.shorter)
	f.shorter -= n
	if f.took != nil {
		f.took()
	}
	return n, nil
}

func (f *fakeStore) ProjectHistoryOverdue(context.Context) (time.Duration, error) {
	return f.overdue, nil
}

// TestTrimmed_OverdueProjects: the rest is shorter the more days the most overdue project is late, to a limit.
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
				s.answers.Store(true)
				s.settled.Store(true)
				require.NoError(t, s.trimmed(t.Context()))
				require.GreaterOrEqual(t, 200*sweepLimit-fake.shorter, row.times*30*sweepLimit/5*9/10)
			})
		})
	}
}

// TestHistoryGoesSlowly: in a twentieth of the time, however much there is and however long it takes.
func TestHistoryGoesSlowly(t *testing.T) {
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
			require.Equal(t, sweepTurn, time.Since(begun))
			require.Equal(t, 20*times*took, time.Since(begun))
		}
	})
}

// TestFilesGoSlowly: five megabytes a second, however soon the store has dropped them, and three times as many
// where they are two days late.
func TestFilesGoSlowly(t *testing.T) {
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

// looksForLong has a partition that is so large that no other goes for long.
type looksForLong struct {
	fakeStore
	dropped, looked atomic.Int64
}

func (l *looksForLong) DropHistory(context.Context, time.Duration, int) (store.Dropped, error) {
	l.dropped.Add(1)
	return store.Dropped{Count: 1, Freed: 10e12}, nil
}

func (l *looksForLong) OldestHistory(context.Context) (time.Time, error) {
	l.looked.Add(1)
	return l.clock.Add(-store.Retention - 24*time.Hour), nil
}

// TestWhatIsOverdueIsToldDuringARest: which may be longer than a turn, and ends with the gateway.
func TestWhatIsOverdueIsToldDuringARest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		large := &looksForLong{fakeStore: fakeStore{clock: time.Now()}}
		ctx, stop := context.WithTimeout(t.Context(), grace+longestRest-time.Second)
		defer stop()
		begun := time.Now()
		require.NoError(t, New(Options{Store: large, Logger: slog.New(slog.DiscardHandler), Now: time.Now}).Run(ctx))
		require.Equal(t, grace+longestRest-time.Second, time.Since(begun))
		require.EqualValues(t, 1, large.dropped.Load())
		require.GreaterOrEqual(t, large.looked.Load(), int64(longestRest/expireInterval))
	})
}

// TestHistoryThatSomebodyReadsKeepsNothingElse: the rest goes in the same round, and it is said.
func TestHistoryThatSomebodyReadsKeepsNothingElse(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{past: 3 * sweepLimit, held: errors.New("somebody reads it"), clock: now}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	require.ErrorIs(t, s.forgetAnswered(t), fake.held)
	require.Zero(t, fake.past)
}

// forgetAnswered is a round of what is too old while the store answers.
func (s *Sweeper) forgetAnswered(t *testing.T) error {
	t.Helper()
	s.answers.Store(true)
	s.settled.Store(true)
	return s.forget(t)
}

// deletesForLong has so much that is too old that there is always more.
type deletesForLong struct {
	fakeStore
	dropped, trimmed, counted, expunged atomic.Int64
}

func (d *deletesForLong) DropHistory(_ context.Context, _ time.Duration, limit int) (store.Dropped, error) {
	d.dropped.Add(1)
	time.Sleep(time.Second)
	return store.Dropped{Count: limit}, nil
}

func (d *deletesForLong) TrimHistory(_ context.Context, limit int) (int, error) {
	d.trimmed.Add(1)
	time.Sleep(time.Second)
	return limit, nil
}

func (d *deletesForLong) SweepExpired(context.Context, int) (int, error) {
	d.expunged.Add(1)
	return 0, nil
}

func (d *deletesForLong) CountStored(context.Context, int) (int, error) {
	d.counted.Add(1)
	return 0, nil
}

// TestNothingWaitsForWhatIsTooOld: however much that is; and of what everybody has, and what projects keep
// no longer, neither waits for the other, and each has its twentieth.
func TestNothingWaitsForWhatIsTooOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const long = 10 * expireInterval
		deletes := &deletesForLong{fakeStore: fakeStore{clock: time.Now()}}
		ctx, stop := context.WithTimeout(t.Context(), long+time.Second)
		defer stop()
		require.NoError(t, New(Options{Store: deletes, Logger: slog.New(slog.DiscardHandler), Now: time.Now}).Run(ctx))
		require.GreaterOrEqual(t, deletes.counted.Load(), int64(long/sweepInterval))
		require.EqualValues(t, long/expireInterval, deletes.expunged.Load(), "from the grace on")
		for _, times := range []int64{deletes.dropped.Load(), deletes.trimmed.Load()} {
			require.InDelta(t, int64((long-grace)/(20*time.Second)), times, 3)
		}
	})
}

// TestWhatIsOverdueGoesFaster: the more, the more days late it is.
func TestWhatIsOverdueGoesFaster(t *testing.T) {
	t.Parallel()
	require.Equal(t, restFor*time.Second, Rest(time.Second, 0, 0))
	require.Equal(t, restFor*time.Second, Rest(time.Second, 0, 23*time.Hour))
	require.Equal(t, restFor*time.Second/5, Rest(time.Second, 0, 4*24*time.Hour))
	require.Equal(t, 200*time.Second, Rest(time.Second, 1e9, 0), "whichever is longer")
	require.Equal(t, 50*time.Second, Rest(time.Second, 1e9, 3*24*time.Hour))
	require.Equal(t, longestRest, Rest(0, 10e12, 0))
	require.Equal(t, longestRest/4, Rest(0, 10e12, 3*24*time.Hour))
	now := time.Now()
	fake := &fakeStore{past: 1, held: errors.New("somebody reads it"), clock: now}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	require.NoError(t, s.oldest(t.Context()))
	require.Positive(t, s.overdue.Load())
	fake.past = 0
	require.NoError(t, s.oldest(t.Context()))
	require.Zero(t, s.overdue.Load())
}
