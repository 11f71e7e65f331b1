// SPDX-License-Identifier: Apache-2.0

package housekeeping

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// slow is a store that can move a limited number of leases per step. A larger batch fails.
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

// TestSweeper_SlowStoreGetsSmallBatches: otherwise each sweep would start with the same leases and
// time out.
func TestSweeper_SlowStoreGetsSmallBatches(t *testing.T) {
	t.Parallel()
	st := &slow{most: 100, left: 1000}
	s := New(Options{Store: st, Logger: slog.New(slog.DiscardHandler)})
	for rounds := 0; st.left > 0; rounds++ {
		require.Less(t, rounds, 30)
		_, _ = s.endExpiredLeases(t.Context()) // the errors of batches that are too large
	}
	st.most = sweepLimit
	for range 5 {
		_, err := s.endExpiredLeases(t.Context())
		require.NoError(t, err)
	}
	require.Zero(t, s.halvings)
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

// TestSweeper_FailingRunDelaysNoOther: smaller batches would let the failing run fill the batch.
func TestSweeper_FailingRunDelaysNoOther(t *testing.T) {
	t.Parallel()
	st := &faulty{}
	s := New(Options{Store: st, Logger: slog.New(slog.DiscardHandler)})
	for range 20 {
		_, err := s.endExpiredLeases(t.Context())
		require.Error(t, err)
	}
	require.Equal(t, slices.Repeat([]int{sweepLimit}, 20), st.limits)
}

// TestSweeper_FailuresDoNotStopTheRest: a full batch means that there are more rows, even if some
// of them fail.
func TestSweeper_FailuresDoNotStopTheRest(t *testing.T) {
	t.Parallel()
	fake := &fakeStore{ended: 3 * sweepLimit, stuck: errors.New("broken")}
	s := New(Options{Store: fake, Logger: slog.New(slog.DiscardHandler)})
	require.ErrorIs(t, s.repeatUntilFew(t.Context(), fake.CountStored), fake.stuck)
	require.Zero(t, fake.ended)
}
