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
	byEnv map[store.Key]*environmentHints
}

// environmentHints has the hints of an environment. queued counts hints about queued runs, and freed hints
// about free slots or limits. The latter only wake runners if runs were skipped for lack of slots or
// because of a limit.
type environmentHints struct {
	queued, freed uint64
	leftover      bool
	changed       chan struct{}
}

func newWakeups() *wakeups { return &wakeups{byEnv: map[store.Key]*environmentHints{}} }

func (w *wakeups) hintsOf(environment store.Key) *environmentHints {
	b, ok := w.byEnv[environment]
	if !ok {
		b = &environmentHints{changed: make(chan struct{})}
		w.byEnv[environment] = b
	}
	return b
}

// nextHint returns a channel that closes at the next hint for an environment, and the numbers of hints
// so far. Call it before the store query, so that no hint is missed.
func (w *wakeups) nextHint(environment store.Key) (woken <-chan struct{}, rung, freed uint64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	b := w.hintsOf(environment)
	return b.changed, b.queued, b.freed
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
	b := w.hintsOf(environment)
	b.leftover = b.freed == freed
	return !b.leftover
}

// noteFreed records that a slot or a limit has become free.
func (w *wakeups) noteFreed(environment store.Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	b, ok := w.byEnv[environment]
	if !ok {
		return
	}
	if b.freed++; b.leftover {
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

func (b *environmentHints) notifyAll() {
	b.queued++
	b.leftover = false
	close(b.changed)
	b.changed = make(chan struct{})
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
