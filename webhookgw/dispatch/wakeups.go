// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"sync"

	"github.com/agentplatform/agentplatform/store"
)

// wakeups distributes the store's hints to the long polls of each environment. It wakes all of
// them, and each takes as many runs as it has free slots.
type wakeups struct {
	mutex sync.Mutex
	byEnv map[store.Key]*bell
}

// bell has the hints of an environment. rung counts hints about queued runs, and freed hints about
// free slots or limits. The latter only wake runners if runs were skipped for lack of slots or
// because of a limit.
type bell struct {
	rung, freed uint64
	left        bool
	ring        chan struct{}
}

func newWakeups() *wakeups { return &wakeups{byEnv: map[store.Key]*bell{}} }

func (w *wakeups) bellOf(environment store.Key) *bell {
	b, ok := w.byEnv[environment]
	if !ok {
		b = &bell{ring: make(chan struct{})}
		w.byEnv[environment] = b
	}
	return b
}

// nextHint returns a channel that closes at the next hint for an environment, and the numbers of hints
// so far. Call it before the store query, so that no hint is missed.
func (w *wakeups) nextHint(environment store.Key) (woken <-chan struct{}, rung, freed uint64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	b := w.bellOf(environment)
	return b.ring, b.rung, b.freed
}

// hintCount returns the number of hints for an environment.
func (w *wakeups) hintCount(environment store.Key) uint64 {
	_, rung, _ := w.nextHint(environment)
	return rung
}

// noteLeftover records that runs were skipped for lack of a slot or because of a limit. It returns true if
// one has become free since the given number of hints.
func (w *wakeups) noteLeftover(environment store.Key, freed uint64) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	b := w.bellOf(environment)
	b.left = b.freed == freed
	return !b.left
}

// noteFreed records that a slot or a limit has become free.
func (w *wakeups) noteFreed(environment store.Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	b, ok := w.byEnv[environment]
	if !ok {
		return
	}
	if b.freed++; b.left {
		b.notifyAll()
	}
}

// notifyEnvironment wakes the long polls of an environment.
func (w *wakeups) notifyEnvironment(environment store.Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if b, ok := w.byEnv[environment]; ok {
		b.notifyAll()
	}
}

func (b *bell) notifyAll() {
	b.rung++
	b.left = false
	close(b.ring)
	b.ring = make(chan struct{})
}

// followHints processes hints about queued runs and about free slots and limits.
func (w *wakeups) followHints(queued, freed <-chan store.Hint) {
	for queued != nil || freed != nil {
		select {
		case hint, open := <-queued:
			if !open {
				queued = nil
				continue
			}
			w.handleHint(hint, w.notifyEnvironment)
		case hint, open := <-freed:
			if !open {
				freed = nil
				continue
			}
			w.handleHint(hint, w.noteFreed)
		}
	}
}

// handleHint calls do for the environment of a hint, or for all environments if hints were lost.
func (w *wakeups) handleHint(hint store.Hint, do func(environment store.Key)) {
	if hint.Key != (store.Key{}) {
		do(hint.Key)
		return
	}
	w.wakeAll()
}

// wakeAll wakes the long polls of all environments.
func (w *wakeups) wakeAll() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, b := range w.byEnv {
		b.freed++
		b.notifyAll()
	}
}
