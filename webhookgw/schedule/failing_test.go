// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// slow is a store that moves so many leases in the time of a step, or none.
type slow struct {
	fakeStore
	most int
	left int
}

func (s *slow) SweepLeases(ctx context.Context, limit int) (store.Swept, error) {
	if limit > s.most {
		return store.Swept{}, context.DeadlineExceeded
	}
	n := min(limit, s.left)
	s.left -= n
	return store.Swept{GivenBack: n}, nil
}

// TestASlowStoreIsSweptInSmallPortions: else the same leases would be begun with for ever.
func TestASlowStoreIsSweptInSmallPortions(t *testing.T) {
	t.Parallel()
	st := &slow{most: 100, left: 1000}
	s := New(Options{Store: st, Logger: slog.New(slog.DiscardHandler)})
	for rounds := 0; st.left > 0; rounds++ {
		require.Less(t, rounds, 30)
		_, _ = s.leases(t.Context()) // its errors are those of the portions that were too large
	}
	st.most = sweepLimit
	for range 5 {
		_, err := s.leases(t.Context())
		require.NoError(t, err)
	}
	require.Zero(t, s.slow)
}

// faulty is a store with a run that cannot end.
type faulty struct {
	fakeStore
	limits []int
}

func (f *faulty) SweepLeases(_ context.Context, limit int) (store.Swept, error) {
	f.limits = append(f.limits, limit)
	return store.Swept{}, errors.New("one run cannot end")
}

// TestARunThatCannotEndKeepsNoOtherWaiting: the fewer leases are swept at once, the sooner it
// would be the only one at which is looked.
func TestARunThatCannotEndKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	st := &faulty{}
	s := New(Options{Store: st, Logger: slog.New(slog.DiscardHandler)})
	for range 20 {
		_, err := s.leases(t.Context())
		require.Error(t, err)
	}
	require.Equal(t, slices.Repeat([]int{sweepLimit}, 20), st.limits)
}

// TestWhatFailsOfAKindLeavesTheRestDraining: as long as much is moved there is more.
func TestWhatFailsOfAKindLeavesTheRestDraining(t *testing.T) {
	t.Parallel()
	fake := &fakeStore{ended: 3 * sweepLimit, stuck: errors.New("broken")}
	s := New(Options{Store: fake, Logger: slog.New(slog.DiscardHandler)})
	require.ErrorIs(t, s.until(t.Context(), fake.CountStored), fake.stuck)
	require.Zero(t, fake.ended)
}
