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
)

func (f *fakeStore) TrimHistory(_ context.Context, limit int) (int, error) {
	n := min(limit/5, f.shorter)
	f.shorter -= n
	if f.took != nil {
		f.took()
	}
	return n, nil
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
		require.Equal(t, stepTimeout, Rest(time.Hour))
	})
}

// TestHistoryThatSomebodyReadsKeepsNothingElse: the rest goes in the same round, and it is said.
func TestHistoryThatSomebodyReadsKeepsNothingElse(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{past: 3 * sweepLimit, held: errors.New("somebody reads it"), clock: now}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	s.settled.Store(true)
	require.ErrorIs(t, s.forgetAnswered(t), fake.held)
	require.Zero(t, fake.past)
}

// forgetAnswered is a round of what is too old while the store answers.
func (s *Sweeper) forgetAnswered(t *testing.T) error {
	t.Helper()
	s.answers.Store(true)
	return s.forget(t.Context())
}

// deletesForLong has so much that is too old that there is always more.
type deletesForLong struct {
	fakeStore
	deleted, counted atomic.Int64
}

func (d *deletesForLong) DropHistory(_ context.Context, _ time.Duration, limit int) (int, error) {
	d.deleted.Add(1)
	time.Sleep(time.Second)
	return limit, nil
}

func (d *deletesForLong) CountStored(context.Context, int) (int, error) {
	d.counted.Add(1)
	return 0, nil
}

// TestNothingWaitsForWhatIsTooOld: however much that is.
func TestNothingWaitsForWhatIsTooOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const long = grace + sweepTurn
		deletes := &deletesForLong{fakeStore: fakeStore{clock: time.Now()}}
		ctx, stop := context.WithTimeout(t.Context(), long)
		defer stop()
		require.NoError(t, New(Options{Store: deletes, Logger: slog.New(slog.DiscardHandler)}).Run(ctx))
		require.Positive(t, deletes.deleted.Load())
		require.GreaterOrEqual(t, deletes.counted.Load(), int64(long/sweepInterval))
	})
}
