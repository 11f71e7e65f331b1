// SPDX-License-Identifier: Apache-2.0

package housekeeping

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
)

// TestClock_JumpAheadEndsNoLease: the database's clock can jump ahead after a failover. All runners
// then have the duration of a lease to renew. A clock that is set back or is slightly fast changes
// nothing.
func TestClock_JumpAheadEndsNoLease(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fake := &fakeStore{clock: now}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	once := func(after, leap time.Duration) bool {
		now, fake.clock = now.Add(after), fake.clock.Add(after+leap)
		swept := fake.swept
		require.NoError(t, s.sweepExpiredLeases(t.Context()))
		return fake.swept > swept
	}
	require.True(t, once(sweepInterval, 0))
	require.True(t, once(sweepInterval, maxClockJump), "a lease that is renewed has more left")
	require.True(t, once(sweepInterval, -10*time.Minute))
	require.False(t, once(sweepInterval, 10*time.Minute))
	for range grace/sweepInterval - 1 {
		require.False(t, once(sweepInterval, 0))
	}
	require.True(t, once(sweepInterval, 0))
	require.False(t, once(sweepInterval, maxClockJump+1), "again")
}

// TestClock_WrongClockDeletesNothing: with a clock of the store that is months ahead, nothing is
// deleted because of its age until both clocks agree. This includes a gateway that has started
// since. Leases end anyway.
func TestClock_WrongClockDeletesNothing(t *testing.T) {
	t.Parallel()
	for _, apart := range []time.Duration{maxClockDifference + time.Second, 90 * 24 * time.Hour, -maxClockDifference - time.Second} {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		fake := &fakeStore{clock: now.Add(apart), past: 3, shorter: 3, old: 3, late: 3, ended: 3}
		registry := prometheus.NewRegistry()
		s := New(Options{Store: fake, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }, Metrics: metrics.NewGateway(registry, nil)})
		round := func() {
			for range grace/sweepInterval + 1 {
				_, err := s.round(t, fake)
				require.NoError(t, err)
				now, fake.clock = now.Add(sweepInterval), fake.clock.Add(sweepInterval)
			}
		}
		round()
		require.Equal(t, []int{3, 3, 3, 3}, []int{fake.past, fake.shorter, fake.old, fake.late}, apart)
		require.Positive(t, fake.swept, "leases")
		require.InDelta(t, apart.Seconds(), metrictest.Of(t, registry).Value(t, "agentplatform_store_clock_ahead_seconds"), 0)
		fake.clock = now
		round()
		require.Equal(t, []int{0, 0, 0, 0}, []int{fake.past, fake.shorter, fake.old, fake.late}, apart)
	}
}

// TestClock_WrongDuringRoundDeletesNothing: the clock is checked again, because another server can
// take over at any time.
func TestClock_WrongDuringRoundDeletesNothing(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fake := &fakeStore{clock: now, past: 3, shorter: 3, old: 3, late: 3}
	s := settled(Options{Store: fake, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }}, now)
	fake.expunging = func() { fake.clock = now.AddDate(0, 3, 0) }
	for range 2 {
		_ = s.sweepExpiredLeases(t.Context()) // leases wait for the grace period
		require.NoError(t, s.forget(t))
		if fake.expunged > 0 {
			break
		}
	}
	require.Positive(t, fake.expunged)
	require.Equal(t, []int{3, 3, 3, 3}, []int{fake.past, fake.shorter, fake.old, fake.late})
}
