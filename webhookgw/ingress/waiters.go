// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"sync"

	"github.com/agentplatform/agentplatform/store"
)

// waiters wakes the sync requests whose connector run ended.
type waiters struct {
	mutex sync.Mutex
	byRun map[store.Key]map[chan struct{}]struct{}
}

func newWaiters() *waiters {
	return &waiters{byRun: map[store.Key]map[chan struct{}]struct{}{}}
}

// watch is sent to when its run may have ended.
type watch struct {
	run   store.Key
	woken <-chan struct{}
	stop  func() // to be called when done with it
}

// watch begins to wake at the end of a connector run. One that begins before the
// run is recorded misses nothing; for another, look first.
func (w *waiters) watch(run store.Key) watch {
	ch := make(chan struct{}, 1)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.byRun[run] == nil {
		w.byRun[run] = map[chan struct{}]struct{}{}
	}
	w.byRun[run][ch] = struct{}{}
	return watch{run: run, woken: ch, stop: func() {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		delete(w.byRun[run], ch)
		if len(w.byRun[run]) == 0 {
			delete(w.byRun, run)
		}
	}}
}

// follow wakes waiters by hints until the channel closes.
func (w *waiters) follow(hints <-chan store.Hint) {
	for hint := range hints {
		w.mutex.Lock()
		if hint.Key == (store.Key{}) {
			for _, chans := range w.byRun {
				wake(chans)
			}
		} else {
			wake(w.byRun[hint.Key])
		}
		w.mutex.Unlock()
	}
}

func wake(chans map[chan struct{}]struct{}) {
	for ch := range chans {
		select {
		case ch <- struct{}{}:
		default: // woken already
		}
	}
}
