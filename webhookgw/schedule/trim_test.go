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

func (f *fakeStore) TrimHistory(_ context.Context, limit int) (int, error) {
	n := min(limit/5, f.shorter)
	f.shorter -= n
	if f.took != nil {
		f.took()
	}
	return n, nil
}

// TestWhatProjectsKeepNoLongerGoesSlowly: for a second of each round, however much there is.
func TestWhatProjectsKeepNoLongerGoesSlowly(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{shorter: 2 * sweepLimit, clock: now}
	fake.took = func() { now = now.Add(trimTurn / 4) }
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	for _, left := range []int{2*sweepLimit - 4*sweepLimit/5, 2*sweepLimit - 8*sweepLimit/5, 0, 0} {
		require.NoError(t, s.tidyAnswered(t))
		require.Equal(t, left, fake.shorter)
	}
}

// TestHistoryThatSomebodyReadsKeepsNothingElse: the rest goes in the same round, and it is said.
func TestHistoryThatSomebodyReadsKeepsNothingElse(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{past: 3 * sweepLimit, held: errors.New("somebody reads it"), clock: now}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	s.settled.Store(true)
	require.ErrorIs(t, s.tidyAnswered(t), fake.held)
	require.Zero(t, fake.past)
}

// tidyAnswered is a round of the rest while the store answers.
func (s *Sweeper) tidyAnswered(t *testing.T) error {
	t.Helper()
	s.answers.Store(true)
	return s.tidy(t.Context())
}
