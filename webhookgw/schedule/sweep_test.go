// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type fakeStore struct {
	down            error
	swept, expunged int
	// expired are leases beyond the three of each sweep.
	expired int
}

func (f *fakeStore) Ping(context.Context) error { return f.down }

func (f *fakeStore) SweepLeases(_ context.Context, limit int) (int, error) {
	f.swept++
	n := min(limit, f.expired+3)
	f.expired = max(f.expired-n, 0)
	return n, f.down
}

func (f *fakeStore) SweepExpired(context.Context, int) (int, error) {
	f.expunged++
	return 0, nil
}

func TestSweepingWaitsForAWholeLeaseOfReachability(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fake := &fakeStore{}
	s := New(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }})
	once := func(after time.Duration) int {
		now = now.Add(after)
		moved, err := s.runOnce(t.Context())
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
	require.Zero(t, once(0), "the store was only just reached")
	require.Zero(t, moved(lease...))
	require.Equal(t, 3, once(time.Second))

	fake.down = errors.New("away")
	require.Zero(t, once(time.Second))
	fake.down = nil
	require.Zero(t, once(time.Hour), "runners have not had time to renew their leases")
	require.Zero(t, moved(lease...))
	require.Equal(t, 3, once(time.Second))

	require.Zero(t, once(40*time.Second), "the process stood still, and so did its runners' renewals")
	require.Zero(t, moved(lease...))
	require.Equal(t, 3, once(time.Second))
	require.Equal(t, 3, fake.swept)
	require.Equal(t, 1, fake.expunged, "once in twelve sweeps")
}

// TestSomebodysManyLeasesKeepNobodyWaiting: a sweep goes on while it finds as many
// as one statement moves.
func TestSomebodysManyLeasesKeepNobodyWaiting(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{expired: 4 * sweepLimit}
	s := New(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }})
	s.reachable, s.looked = now.Add(-grace), now
	moved, err := s.runOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 4*sweepLimit+3, moved)
	require.Equal(t, 5, fake.swept)
}
