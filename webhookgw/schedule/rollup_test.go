// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEndsAreRolledUpEachSecondWhileThereAreSome: and at the pace of all else where none are,
// or the store does not answer.
func TestEndsAreRolledUpEachSecondWhileThereAreSome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeStore{clock: time.Now()}
		fake.unrolled.Store(2*sweepLimit + 1)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- New(Options{Store: fake, Logger: slog.New(slog.DiscardHandler)}).Run(ctx) }()
		synctest.Wait()
		require.Zero(t, fake.unrolled.Load())
		require.EqualValues(t, 3, fake.rollUps.Load(), "all at once")
		fake.unrolled.Store(1)
		time.Sleep(rollUpInterval)
		synctest.Wait()
		require.Zero(t, fake.unrolled.Load())
		require.EqualValues(t, 4, fake.rollUps.Load())
		time.Sleep(rollUpInterval)
		synctest.Wait()
		require.EqualValues(t, 5, fake.rollUps.Load(), "none this time")
		time.Sleep(sweepInterval - time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 5, fake.rollUps.Load())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 6, fake.rollUps.Load())
		stop()
		require.NoError(t, <-done)
	})
}
