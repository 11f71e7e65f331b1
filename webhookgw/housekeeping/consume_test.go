// SPDX-License-Identifier: Apache-2.0

package housekeeping

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// TestConsume_Interval: while there are ended runs, they are processed each second. Otherwise, or
// if the store does not answer, the normal interval applies.
func TestConsume_Interval(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(f *fakeStore) (left, times *atomic.Int64){
		"numbers": func(f *fakeStore) (left, times *atomic.Int64) { return &f.unrolled, &f.rollUps },
		"words":   func(f *fakeStore) (left, times *atomic.Int64) { return &f.unindexed, &f.indexings },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fake := &fakeStore{clock: time.Now()}
				left, times := of(fake)
				left.Store(2*sweepLimit + 1)
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- New(Options{Store: fake, Logger: slog.New(slog.DiscardHandler)}).Run(ctx) }()
				synctest.Wait()
				require.Zero(t, left.Load())
				require.EqualValues(t, 3, times.Load(), "all at once")
				left.Store(1)
				time.Sleep(consumeInterval)
				synctest.Wait()
				require.Zero(t, left.Load())
				require.EqualValues(t, 4, times.Load())
				time.Sleep(consumeInterval)
				synctest.Wait()
				require.EqualValues(t, 5, times.Load(), "none this time")
				time.Sleep(sweepInterval - time.Millisecond)
				synctest.Wait()
				require.EqualValues(t, 5, times.Load())
				time.Sleep(time.Millisecond)
				synctest.Wait()
				require.EqualValues(t, 6, times.Load())
				stop()
				require.NoError(t, <-done)
			})
		})
	}
}

func (f *fakeStore) IndexRuns(_ context.Context, limit int, _ func(store.Searched) []string) (int, error) {
	n := min(limit, int(f.unindexed.Load()))
	f.indexings.Add(1)
	f.unindexed.Add(-int64(n))
	return n, f.stuck
}
