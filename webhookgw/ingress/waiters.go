// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// runWaiters wakes sync requests when their connector run has ended. It uses hints, and one query for
// all requests because hints can be lost. A waiting request costs no query of its own.
type runWaiters struct {
	history interface {
		Ended(ctx context.Context, connectorRuns []store.Key) ([]store.Key, error)
	}
	logger *slog.Logger
	lost   chan struct{} // capacity 1: hints may be lost
	early  chan struct{} // capacity 1: some of asked may already have ended

	mutex sync.Mutex
	byRun map[runTail]map[*runWatch]struct{}
	asked map[store.Key]struct{} // runs to check soon
}

// runTail identifies a connector run by the part of its ID that the store keeps.
type runTail struct {
	project uuid.UUID
	tail    store.Tail
}

func runTailOf(run store.Key) runTail { return runTail{run.ProjectID, store.TailOf(run.ID)} }

// runWatch is woken when its run may have ended.
type runWatch struct {
	woken chan struct{} // capacity 1
	run   runTail
	id    uuid.UUID // as in the store, once it is known
	end   *store.RunEnd
}

func newRunWaiters(st Store, logger *slog.Logger) *runWaiters {
	return &runWaiters{
		history: st, logger: logger, lost: make(chan struct{}, 1), early: make(chan struct{}, 1),
		byRun: map[runTail]map[*runWatch]struct{}{}, asked: map[store.Key]struct{}{},
	}
}

// watchRun starts to wake at the end of a connector run with a proposed ID. If it starts before the
// run is recorded, it misses no hint. Otherwise call ask. The caller calls stop at the end.
func (w *runWaiters) watchRun(run store.Key) *runWatch {
	at := &runWatch{woken: make(chan struct{}, 1), run: runTailOf(run)}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.byRun[at.run] == nil {
		w.byRun[at.run] = map[*runWatch]struct{}{}
	}
	w.byRun[at.run][at] = struct{}{}
	return at
}

// recorded sets the ID in the store of a watch's run, which queries use.
func (w *runWaiters) recorded(at *runWatch, id uuid.UUID) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	at.id = id
}

// knownEnd returns the end of a run if its watch received it.
func (w *runWaiters) knownEnd(at *runWatch, run store.Key) *store.RunEnd {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if at.end == nil || at.end.Run != run {
		return nil
	}
	return at.end
}

// queryEnd checks soon whether a run has ended before its watch started. All such runs are in one query,
// and each run once.
func (w *runWaiters) queryEnd(at *runWatch, run store.Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	at.id = run.ID
	w.asked[run] = struct{}{}
	select {
	case w.early <- struct{}{}:
	default: // already notified
	}
}

func (w *runWaiters) stopWatch(at *runWatch) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.byRun[at.run], at)
	if len(w.byRun[at.run]) == 0 {
		delete(w.byRun, at.run)
	}
}

// followHints wakes waiters by hints until the channel closes.
func (w *runWaiters) followHints(hints <-chan store.Hint) {
	for hint := range hints {
		if hint.Key != (store.Key{}) {
			w.wakeWaiters(hint.Key, hint.End)
			continue
		}
		select {
		case w.lost <- struct{}{}:
		default: // they are checked soon
		}
	}
}

// runLoop checks for ended runs until ctx ends: requested runs at once, and all runs at intervals.
func (w *runWaiters) runLoop(ctx context.Context) {
	tick := time.NewTicker(endedPollInterval)
	defer tick.Stop()
	for {
		runs := w.waiting
		select {
		case <-tick.C:
		case <-w.lost:
		case <-w.early:
			runs = w.takeAsked
		case <-ctx.Done():
			return
		}
		if err := w.checkEnded(ctx, runs()); err != nil && ctx.Err() == nil {
			w.logger.Error("checking the runs of waiting sync webhooks", "error", err)
		}
	}
}

// checkEnded queries the store for ended runs.
func (w *runWaiters) checkEnded(ctx context.Context, runs []store.Key) error {
	for chunk := range slices.Chunk(runs, maxEnded) {
		ctx, cancel := context.WithTimeout(ctx, commitTimeout)
		ended, err := w.history.Ended(ctx, chunk)
		cancel()
		if err != nil {
			return fmt.Errorf("checking which of %d runs have ended: %w", len(chunk), err)
		}
		for _, run := range ended {
			w.wakeWaiters(run, nil)
		}
	}
	return nil
}

// takeAsked returns the requested runs.
func (w *runWaiters) takeAsked() (runs []store.Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	runs = slices.Collect(maps.Keys(w.asked))
	clear(w.asked)
	return runs
}

// waiting returns the recorded runs with waiters.
func (w *runWaiters) waiting() (runs []store.Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for run, watches := range w.byRun {
		for at := range watches {
			if at.id != uuid.Nil {
				runs = append(runs, store.Key{ProjectID: run.project, ID: at.id})
				break
			}
		}
	}
	return runs
}

// wakeWaiters wakes the waiters of a connector run, with the end of its last run if it is known.
func (w *runWaiters) wakeWaiters(run store.Key, end *store.RunEnd) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for at := range w.byRun[runTailOf(run)] {
		if end != nil {
			at.end = end
		}
		select {
		case at.woken <- struct{}{}:
		default: // already woken
		}
	}
}
