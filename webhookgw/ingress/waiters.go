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

// waiters wakes the sync requests whose connector run ended: by hints and, for
// hints may be lost, by asking the store for all of them at once. A request that
// waits costs no statement of its own.
type waiters struct {
	history interface {
		Ended(ctx context.Context, connectorRuns []store.Key) ([]store.Key, error)
	}
	logger *slog.Logger
	lost   chan struct{} // holds one: hints may have been lost
	early  chan struct{} // holds one: some of asked may have ended before

	mutex sync.Mutex
	byRun map[runTail]map[*watch]struct{}
	asked map[store.Key]struct{} // runs that the store is to be asked for soon
}

// runTail names a connector run by what the store leaves of the id that was made
// for it.
type runTail struct {
	project uuid.UUID
	tail    store.Tail
}

func tailOf(run store.Key) runTail { return runTail{run.ProjectID, store.TailOf(run.ID)} }

// watch is woken when its run may have ended.
type watch struct {
	woken chan struct{} // holds one
	run   runTail
	id    uuid.UUID // as the store has it, once that is known
	end   *store.RunEnd
}

func newWaiters(st Store, logger *slog.Logger) *waiters {
	return &waiters{
		history: st, logger: logger, lost: make(chan struct{}, 1), early: make(chan struct{}, 1),
		byRun: map[runTail]map[*watch]struct{}{}, asked: map[store.Key]struct{}{},
	}
}

// watch begins to wake at the end of a connector run, by the id that is made for
// it. One that begins before the run is recorded misses no hint; another one asks.
// The caller calls stop when done with it.
func (w *waiters) watch(run store.Key) *watch {
	at := &watch{woken: make(chan struct{}, 1), run: tailOf(run)}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.byRun[at.run] == nil {
		w.byRun[at.run] = map[*watch]struct{}{}
	}
	w.byRun[at.run][at] = struct{}{}
	return at
}

// recorded tells the id that a watch's run has, by which the store is asked for it.
func (w *waiters) recorded(at *watch, id uuid.UUID) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	at.id = id
}

// endOf is the end of a run, where its watch was told.
func (w *waiters) endOf(at *watch, run store.Key) *store.RunEnd {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if at.end == nil || at.end.Run != run {
		return nil
	}
	return at.end
}

// ask tells the id of a run that may have ended before its watch began: the store is
// asked soon, for all such runs at once, and for each once, however many wait for it.
func (w *waiters) ask(at *watch, run store.Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	at.id = run.ID
	w.asked[run] = struct{}{}
	select {
	case w.early <- struct{}{}:
	default: // it is known already
	}
}

func (w *waiters) stop(at *watch) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.byRun[at.run], at)
	if len(w.byRun[at.run]) == 0 {
		delete(w.byRun, at.run)
	}
}

// follow wakes waiters by hints until the channel closes.
func (w *waiters) follow(hints <-chan store.Hint) {
	for hint := range hints {
		if hint.Key != (store.Key{}) {
			w.wake(hint.Key, hint.End)
			continue
		}
		select {
		case w.lost <- struct{}{}:
		default: // they are looked for soon
		}
	}
}

// run looks for ended runs, for those asked at once and for all from time to time,
// until ctx ends.
func (w *waiters) run(ctx context.Context) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		runs := w.waiting
		select {
		case <-tick.C:
		case <-w.lost:
		case <-w.early:
			runs = w.take
		case <-ctx.Done():
			return
		}
		if err := w.look(ctx, runs()); err != nil && ctx.Err() == nil {
			w.logger.Error("looking for runs that sync webhooks wait for", "error", err)
		}
	}
}

// look asks the store which of these runs have ended.
func (w *waiters) look(ctx context.Context, runs []store.Key) error {
	for chunk := range slices.Chunk(runs, maxEnded) {
		ctx, cancel := context.WithTimeout(ctx, commitTimeout)
		ended, err := w.history.Ended(ctx, chunk)
		cancel()
		if err != nil {
			return fmt.Errorf("asking which of %d runs have ended: %w", len(chunk), err)
		}
		for _, run := range ended {
			w.wake(run, nil)
		}
	}
	return nil
}

// take returns the runs that are asked for.
func (w *waiters) take() (runs []store.Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	runs = slices.Collect(maps.Keys(w.asked))
	clear(w.asked)
	return runs
}

// waiting are the runs that are waited for and recorded.
func (w *waiters) waiting() (runs []store.Key) {
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

// wake wakes those who wait for a connector run, and tells them the end of its last
// run where that is known.
func (w *waiters) wake(run store.Key, end *store.RunEnd) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for at := range w.byRun[tailOf(run)] {
		if end != nil {
			at.end = end
		}
		select {
		case at.woken <- struct{}{}:
		default: // woken already
		}
	}
}
