// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"fmt"
	"log/slog"
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

	mutex sync.Mutex
	byRun map[runTail]map[*watch]struct{}
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
}

func newWaiters(st Store, logger *slog.Logger) *waiters {
	return &waiters{history: st, logger: logger, lost: make(chan struct{}, 1), byRun: map[runTail]map[*watch]struct{}{}}
}

// watch begins to wake at the end of a connector run, by the id that is made for
// it. One that begins before the run is recorded misses no hint; for another, look
// first. The caller calls stop when done with it.
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
			w.wake(hint.Key)
			continue
		}
		select {
		case w.lost <- struct{}{}:
		default: // they are looked for soon
		}
	}
}

// run looks for ended runs from time to time until ctx ends.
func (w *waiters) run(ctx context.Context) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-w.lost:
		case <-ctx.Done():
			return
		}
		if err := w.runOnce(ctx); err != nil && ctx.Err() == nil {
			w.logger.Error("looking for runs that sync webhooks wait for", "error", err)
		}
	}
}

// runOnce asks the store which of the runs that are waited for have ended.
func (w *waiters) runOnce(ctx context.Context) error {
	for chunk := range slices.Chunk(w.waiting(), maxEnded) {
		ctx, cancel := context.WithTimeout(ctx, commitTimeout)
		ended, err := w.history.Ended(ctx, chunk)
		cancel()
		if err != nil {
			return fmt.Errorf("asking which of %d runs have ended: %w", len(chunk), err)
		}
		for _, run := range ended {
			w.wake(run)
		}
	}
	return nil
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

func (w *waiters) wake(run store.Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for at := range w.byRun[tailOf(run)] {
		select {
		case at.woken <- struct{}{}:
		default: // woken already
		}
	}
}
