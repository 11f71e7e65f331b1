// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// history is a store of connector runs that counts its queries.
type history struct {
	Store
	mutex    sync.Mutex
	over     map[store.Key]bool
	err      error
	asked    []int // number of runs in each query for ended runs
	outcomes int
	hold     chan struct{} // blocks outcomes until it is closed, unless nil
}

func (h *history) Ended(_ context.Context, runs []store.Key) (ended []store.Key, err error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.asked = append(h.asked, len(runs))
	for _, run := range runs {
		if h.over[run] {
			ended = append(ended, run)
		}
	}
	return ended, h.err
}

func (h *history) Outcome(_ context.Context, run store.Key) (store.Outcome, error) {
	h.mutex.Lock()
	h.outcomes++
	hold := h.hold
	h.mutex.Unlock()
	if hold != nil {
		<-hold
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.over[run] {
		return store.Outcome{Status: store.ConnectorRunCompleted, Runs: []store.Run{{Status: store.RunCompleted}}}, h.err
	}
	return store.Outcome{Status: store.ConnectorRunRunning, Runs: []store.Run{{Status: store.RunRunning}}}, h.err
}

func (h *history) end(run store.Key, err error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.over[run], h.err = true, err
}

// stamped returns the proposed and the stored key of a run.
func stamped() (made, kept store.Key) {
	made = store.Key{ProjectID: uuid.New(), ID: uuid.Must(uuid.NewV7())}
	kept, tail := store.Key{ProjectID: made.ProjectID, ID: uuid.Must(uuid.NewV7())}, store.TailOf(made.ID)
	copy(kept.ID[len(kept.ID)-len(tail):], tail[:])
	return made, kept
}

// waitsIn returns a handler with running waiters in a bubble, and a channel for hints.
func waitsIn(t *testing.T) (*Handler, *history, chan<- store.Hint) {
	t.Helper()
	st := &history{over: map[store.Key]bool{}}
	h := New(Options{Store: st, Logger: slog.New(slog.DiscardHandler)})
	hints := make(chan store.Hint)
	ctx, stop := context.WithCancel(t.Context())
	go h.waiters.runLoop(ctx)
	go h.waiters.followHints(hints)
	t.Cleanup(func() {
		stop()
		close(hints)
	})
	return h, st, hints
}

// await waits for a run in the background, from before it is recorded.
func (h *Handler) await(ctx context.Context, made, kept store.Key) <-chan error {
	end, answered := h.waiters.watchRun(made), make(chan error, 1)
	go func() {
		defer h.waiters.stopWatch(end)
		first, err := h.awaitFirst(ctx, recordedEvent{run: kept, runs: []uuid.UUID{kept.ID}, agent: "hello"}, end)
		if err == nil {
			h.outputs.releaseOutput(first)
		}
		answered <- err
	}()
	return answered
}

// soon returns a value that arrives within an hour of bubble time.
func soon(t *testing.T, from <-chan error) error {
	t.Helper()
	select {
	case err := <-from:
		return err
	case <-time.After(time.Hour):
		require.Fail(t, "no waiter was woken")
		return nil
	}
}

// TestWaiters_HintWithEndNeedsNoQuery: only for the run of the watch.
func TestWaiters_HintWithEndNeedsNoQuery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, st, hints := waitsIn(t)
		made, kept := stamped()
		end := h.waiters.watchRun(made)
		defer h.waiters.stopWatch(end)
		_, other := stamped()
		hints <- store.Hint{Topic: store.TopicDone, Key: kept, End: &store.RunEnd{Run: other, Status: store.RunFailed}}
		synctest.Wait()
		require.Nil(t, h.waiters.knownEnd(end, kept), "another run's")
		hints <- store.Hint{Topic: store.TopicDone, Key: kept, End: &store.RunEnd{
			Run: kept, Status: store.RunFailed, ErrorCode: "timeout", Error: "slow", Output: "half",
		}}
		hints <- store.Hint{Topic: store.TopicDone, Key: kept} // from another process, or a duplicate
		synctest.Wait()
		first, err := h.awaitFirst(t.Context(), recordedEvent{run: kept, runs: []uuid.UUID{kept.ID}, agent: "hello"}, end)
		require.NoError(t, err)
		require.Equal(t, store.Run{
			ID: kept.ID, ProjectID: kept.ProjectID, AgentName: "hello",
			Status: store.RunFailed, ErrorCode: "timeout", Error: "slow", Output: "half",
		}, first.run)
		h.outputs.releaseOutput(first)
		require.Zero(t, st.outcomes)
	})
}

// TestWaiters_HintWakesWaiter: by the stored ID, without another query.
func TestWaiters_HintWakesWaiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, st, hints := waitsIn(t)
		made, kept := stamped()
		answered := h.await(t.Context(), made, kept)
		_, other := stamped()
		hints <- store.Hint{Topic: store.TopicDone, Key: other}
		hints <- store.Hint{Topic: store.TopicDone, Key: kept} // early, or a duplicate
		synctest.Wait()
		require.Equal(t, 1, st.outcomes, "only for its own hint")
		st.end(kept, nil)
		hints <- store.Hint{Topic: store.TopicDone, Key: kept}
		require.NoError(t, soon(t, answered))
		require.Equal(t, 2, st.outcomes)
		require.Empty(t, st.asked)
		synctest.Wait()
		require.Empty(t, h.waiters.byRun)
	})
}

// TestWaiters_ShareOneQuery: all waiters are in one query, and without waiters there is none.
func TestWaiters_ShareOneQuery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, st, _ := waitsIn(t)
		time.Sleep(10*endedPollInterval + time.Second)
		synctest.Wait()
		require.Empty(t, st.asked)
		const n = 2*maxEnded + 1
		var kept []store.Key
		var answers []<-chan error
		for range n {
			made, run := stamped()
			kept, answers = append(kept, run), append(answers, h.await(t.Context(), made, run))
		}
		unrecorded, _ := stamped()
		h.waiters.watchRun(unrecorded) // it cannot be queried yet
		time.Sleep(endedPollInterval)
		synctest.Wait()
		require.Equal(t, []int{maxEnded, maxEnded, 1}, st.asked)
		require.Zero(t, st.outcomes)
		for _, run := range kept {
			st.end(run, nil)
		}
		for _, answered := range answers {
			require.NoError(t, soon(t, answered))
		}
		require.Equal(t, n, st.outcomes)
		synctest.Wait()
		asked := len(st.asked)
		time.Sleep(10 * endedPollInterval)
		synctest.Wait()
		require.Len(t, st.asked, asked)
	})
}

// TestWaiters_FindEndAfterLostHint: at once if the loss is known, and also if the store fails
// meanwhile.
func TestWaiters_FindEndAfterLostHint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, st, hints := waitsIn(t)
		made, kept := stamped()
		answered := h.await(t.Context(), made, kept)
		synctest.Wait()
		begin := time.Now()
		st.end(kept, nil)
		hints <- store.Hint{}
		require.NoError(t, soon(t, answered))
		require.Equal(t, begin, time.Now(), "bubble time")

		made, kept = stamped()
		answered = h.await(t.Context(), made, kept)
		synctest.Wait()
		st.end(kept, errors.New("away"))
		hints <- store.Hint{Topic: store.TopicDone, Key: kept}
		time.Sleep(3 * endedPollInterval)
		synctest.Wait()
		require.Empty(t, answered)
		st.end(kept, nil)
		require.NoError(t, soon(t, answered))
	})
}

// TestWaiters_EarlierRunIsCheckedFirst: it may have ended before. All waiters of a run share one
// query and one read.
func TestWaiters_EarlierRunIsCheckedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, st, hints := waitsIn(t)
		_, earlier := stamped()
		st.end(earlier, nil)
		made, _ := stamped()
		begin := time.Now()
		require.NoError(t, soon(t, h.await(t.Context(), made, earlier)))
		require.Equal(t, begin, time.Now(), "bubble time")
		require.Equal(t, []int{1}, st.asked)
		require.Equal(t, 1, st.outcomes)

		_, running := stamped()
		var answers []<-chan error
		for range 64 {
			made, _ := stamped()
			answers = append(answers, h.await(t.Context(), made, running))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		questions := 0
		for _, runs := range st.asked {
			require.Equal(t, 1, runs)
			questions++
		}
		require.LessOrEqual(t, questions, 1+64+2, "at most one query at the start of each, and then shared ones")
		require.Equal(t, 1, st.outcomes)
		st.end(running, nil)
		st.hold = make(chan struct{})
		hints <- store.Hint{Topic: store.TopicDone, Key: running}
		synctest.Wait()
		require.Equal(t, 2, st.outcomes, "one read for all")
		close(st.hold)
		for _, answered := range answers {
			require.NoError(t, soon(t, answered))
		}
		require.Equal(t, 2, st.outcomes)
		synctest.Wait()
		require.Empty(t, h.waiters.byRun)
		require.Empty(t, h.waiters.asked)
		require.Empty(t, h.outputs.byRun)
		require.True(t, h.outputs.budget.Free())
	})
}
