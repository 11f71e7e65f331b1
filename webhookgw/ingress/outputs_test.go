// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// ended reads a run with an output of the given size.
func ended(size int) runReader {
	return func(context.Context) (store.Run, error) {
		return store.Run{Status: store.RunCompleted, Output: strings.Repeat("x", size)}, nil
	}
}

func runOf(project uuid.UUID) store.Key { return store.Key{ProjectID: project, ID: uuid.New()} }

// TestOutputs_Budget: a project has a share and only delays itself. Requests beyond it wait before
// a read. Memory that an output does not need is free for others.
func TestOutputs_Budget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, reading := newOutputCache(8*store.MaxOutput), 0
		taken := make(chan *cachedOutput, 100)
		take := func(ctx context.Context, project uuid.UUID, size int) {
			go func() {
				at, err := o.acquireOutput(ctx, runOf(project), func(ctx context.Context) (store.Run, error) {
					reading++
					return ended(size)(ctx)
				})
				if err == nil {
					taken <- at
				}
			}()
			synctest.Wait()
		}
		busy, calm := uuid.New(), uuid.New()
		for range 3 {
			take(t.Context(), busy, store.MaxOutput)
		}
		gone, cancel := context.WithCancel(t.Context())
		take(gone, busy, store.MaxOutput)
		require.Equal(t, 2, reading, "a quarter of it")
		take(t.Context(), calm, 10)
		for range 20 {
			take(t.Context(), calm, 10)
		}
		require.Equal(t, 2+21, reading, "small outputs leave memory")
		cancel()
		synctest.Wait()
		for range 6 {
			take(t.Context(), uuid.New(), store.MaxOutput)
		}
		before := reading
		require.Equal(t, 2+21+5, before)
		take(t.Context(), uuid.New(), store.MaxOutput)
		require.Equal(t, before, reading, "all memory is used")
		for len(taken) > 0 {
			o.releaseOutput(<-taken)
			synctest.Wait()
		}
		require.Equal(t, before+3, reading, "the abandoned run was not read")
		require.Empty(t, o.byRun)
		require.True(t, o.budget.Free())
	})
}

// held is a reader that blocks until letGo.
type held struct {
	reads  int
	letGo  chan struct{}
	answer runReader
}

func (h *held) read(ctx context.Context) (store.Run, error) {
	h.reads++
	select {
	case <-h.letGo:
		return h.answer(ctx)
	case <-ctx.Done():
		return store.Run{}, ctx.Err()
	}
}

// wants takes a run and gives it back in the background.
func (o *outputCache) wants(ctx context.Context, run store.Key, read runReader) <-chan error {
	ended := make(chan error, 1)
	go func() {
		at, err := o.acquireOutput(ctx, run, read)
		if err == nil {
			o.releaseOutput(at)
		}
		ended <- err
	}()
	synctest.Wait()
	return ended
}

// TestOutputs_ShareOneRead: even if the first caller leaves, and not without a caller.
func TestOutputs_ShareOneRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, run, h := newOutputCache(maxOutputs), runOf(uuid.New()), &held{letGo: make(chan struct{}), answer: ended(5)}
		ctx, cancel := context.WithCancel(t.Context())
		first := o.wants(ctx, run, h.read)
		second := o.wants(t.Context(), run, h.read)
		cancel()
		require.ErrorIs(t, <-first, context.Canceled)
		close(h.letGo)
		require.NoError(t, <-second)
		require.Equal(t, 1, h.reads)

		h.letGo = make(chan struct{}) // never
		ctx, cancel = context.WithCancel(t.Context())
		alone := o.wants(ctx, run, h.read)
		cancel()
		require.ErrorIs(t, <-alone, context.Canceled)
		synctest.Wait()
		require.Empty(t, o.byRun)
		require.True(t, o.budget.Free(), "the read has ended too")
	})
}

// TestOutputs_ReadAgain: after an error, and if the run had not ended.
func TestOutputs_ReadAgain(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	for name, c := range map[string]struct {
		answer runReader
		err    error
	}{
		"failed": {func(context.Context) (store.Run, error) { return store.Run{}, away }, away},
		"open":   {func(context.Context) (store.Run, error) { return store.Run{Status: store.RunRunning}, nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o, run, h := newOutputCache(maxOutputs), runOf(uuid.New()), &held{letGo: make(chan struct{}), answer: c.answer}
			close(h.letGo)
			for n := range 2 {
				_, err := o.acquireOutput(t.Context(), run, h.read) // and holds it
				require.ErrorIs(t, err, c.err)
				require.Equal(t, n+1, h.reads)
			}
		})
	}
}
