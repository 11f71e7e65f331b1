// SPDX-License-Identifier: Apache-2.0

package housekeeping

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// TestSweeper_HangingStepTimesOut: each part of a round that hangs is aborted and runs again in a
// later round.
func TestSweeper_HangingStepTimesOut(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"SweepLeases", "CountStored", "RollUp", "IndexRuns", "SweepExpired", "ExpireRuns", "ExpireDeliveries", "DropHistory", "OldestHistory", "TrimHistory", "ProjectHistoryOverdue", "Replan"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hangs := &hangingOnce{fakeStore: fakeStore{clock: time.Now(), expired: 1, ended: 1, old: 1, late: 1, past: 1}, part: part}
				hangs.unrolled.Store(1)
				hangs.unindexed.Store(1)
				ctx, stop := context.WithTimeout(t.Context(), grace+maxPause+4*expireInterval+time.Second)
				defer stop()
				require.NoError(t, New(Options{Store: hangs, Logger: slog.New(slog.DiscardHandler)}).Run(ctx))
				require.Zero(t, hangs.expired)
				require.Zero(t, hangs.ended)
				require.Zero(t, hangs.unrolled.Load())
				require.Zero(t, hangs.unindexed.Load())
				require.Positive(t, hangs.expunged)
				require.Zero(t, hangs.old)
				require.Zero(t, hangs.late)
				require.Zero(t, hangs.past)
				require.Positive(t, hangs.planned)
			})
		})
	}
}

// hangingOnce blocks the first call of a step until its context ends.
type hangingOnce struct {
	fakeStore
	part string
	once sync.Once
}

func (h *hangingOnce) hang(ctx context.Context, part string) (err error) {
	if part == h.part {
		h.once.Do(func() {
			<-ctx.Done()
			err = ctx.Err()
		})
	}
	return err
}

func (h *hangingOnce) SweepLeases(ctx context.Context, limit int) (store.Swept, error) {
	if err := h.hang(ctx, "SweepLeases"); err != nil {
		return store.Swept{}, err
	}
	return h.fakeStore.SweepLeases(ctx, limit)
}

func (h *hangingOnce) CountStored(ctx context.Context, limit int) (int, error) {
	if err := h.hang(ctx, "CountStored"); err != nil {
		return 0, err
	}
	return h.fakeStore.CountStored(ctx, limit)
}

func (h *hangingOnce) RollUp(ctx context.Context, limit int) (int, error) {
	if err := h.hang(ctx, "RollUp"); err != nil {
		return 0, err
	}
	return h.fakeStore.RollUp(ctx, limit)
}

func (h *hangingOnce) IndexRuns(ctx context.Context, limit int, words func(store.Searched) []string) (int, error) {
	if err := h.hang(ctx, "IndexRuns"); err != nil {
		return 0, err
	}
	return h.fakeStore.IndexRuns(ctx, limit, words)
}

func (h *hangingOnce) SweepExpired(ctx context.Context, limit int) (int, error) {
	if err := h.hang(ctx, "SweepExpired"); err != nil {
		return 0, err
	}
	return h.fakeStore.SweepExpired(ctx, limit)
}

func (h *hangingOnce) ExpireDeliveries(ctx context.Context, age time.Duration, limit int) (int, error) {
	if err := h.hang(ctx, "ExpireDeliveries"); err != nil {
		return 0, err
	}
	return h.fakeStore.ExpireDeliveries(ctx, age, limit)
}

func (h *hangingOnce) ExpireRuns(ctx context.Context, age time.Duration, limit int) (int, error) {
	if err := h.hang(ctx, "ExpireRuns"); err != nil {
		return 0, err
	}
	return h.fakeStore.ExpireRuns(ctx, age, limit)
}

func (h *hangingOnce) DropHistory(ctx context.Context, age time.Duration, limit int) (store.Dropped, error) {
	if err := h.hang(ctx, "DropHistory"); err != nil {
		return store.Dropped{}, err
	}
	return h.fakeStore.DropHistory(ctx, age, limit)
}

func (h *hangingOnce) TrimHistory(ctx context.Context, limit int) (store.Trimmed, error) {
	if err := h.hang(ctx, "TrimHistory"); err != nil {
		return store.Trimmed{}, err
	}
	return h.fakeStore.TrimHistory(ctx, limit)
}

func (h *hangingOnce) ProjectHistoryOverdue(ctx context.Context) (time.Duration, error) {
	if err := h.hang(ctx, "ProjectHistoryOverdue"); err != nil {
		return 0, err
	}
	return h.fakeStore.ProjectHistoryOverdue(ctx)
}

func (h *hangingOnce) OldestHistory(ctx context.Context) (store.OldestDays, error) {
	if err := h.hang(ctx, "OldestHistory"); err != nil {
		return store.OldestDays{}, err
	}
	return h.fakeStore.OldestHistory(ctx)
}

func (h *hangingOnce) Replan(ctx context.Context) error {
	if err := h.hang(ctx, "Replan"); err != nil {
		return err
	}
	return h.fakeStore.Replan(ctx)
}
