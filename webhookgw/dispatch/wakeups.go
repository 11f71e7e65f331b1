// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"sync"

	"github.com/agentplatform/agentplatform/store"
)

// wakeups fans one subscription of the store's hints out to the long-polls of
// each environment. All that wait are woken: each takes what it has room for.
type wakeups struct {
	mutex sync.Mutex
	byEnv map[store.Key]*bell
}

// bell is an environment's: rung counts the hints that something is queued, freed
// those that a place or a limit has become free. The latter ring only where somebody
// has left runs for want of these.
type bell struct {
	rung, freed uint64
	left        bool
	ring        chan struct{}
}

func newWakeups() *wakeups { return &wakeups{byEnv: map[store.Key]*bell{}} }

func (w *wakeups) bell(environment store.Key) *bell {
	b, ok := w.byEnv[environment]
	if !ok {
		b = &bell{ring: make(chan struct{})}
		w.byEnv[environment] = b
	}
	return b
}

// next returns a channel that closes with the next hint for an environment, and how
// many there were. It is to be taken before the store is asked, so that no hint
// falls between.
func (w *wakeups) next(environment store.Key) (woken <-chan struct{}, rung, freed uint64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	b := w.bell(environment)
	return b.ring, b.rung, b.freed
}

// rung counts the hints for an environment.
func (w *wakeups) rung(environment store.Key) uint64 {
	_, rung, _ := w.next(environment)
	return rung
}

// leave says that runs were left for want of a place or a limit; true when one has
// become free since there were so many.
func (w *wakeups) leave(environment store.Key, freed uint64) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	b := w.bell(environment)
	b.left = b.freed == freed
	return !b.left
}

// free says that a place or a limit has become free.
func (w *wakeups) free(environment store.Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	b, ok := w.byEnv[environment]
	if !ok {
		return
	}
	if b.freed++; b.left {
		b.wake()
	}
}

// wake rings for an environment that somebody has asked about.
func (w *wakeups) wake(environment store.Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if b, ok := w.byEnv[environment]; ok {
		b.wake()
	}
}

func (b *bell) wake() {
	b.rung++
	b.left = false
	close(b.ring)
	b.ring = make(chan struct{})
}

// follow does what hints say: queued ones, and those of what has become free.
func (w *wakeups) follow(queued, freed <-chan store.Hint) {
	for queued != nil || freed != nil {
		select {
		case hint, open := <-queued:
			if !open {
				queued = nil
				continue
			}
			w.hear(hint, w.wake)
		case hint, open := <-freed:
			if !open {
				freed = nil
				continue
			}
			w.hear(hint, w.free)
		}
	}
}

// hear does what a hint says of its environment, or of all where hints were lost.
func (w *wakeups) hear(hint store.Hint, do func(environment store.Key)) {
	if hint.Key != (store.Key{}) {
		do(hint.Key)
		return
	}
	w.wakeAll()
}

// wakeAll rings for all environments.
func (w *wakeups) wakeAll() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, b := range w.byEnv {
		b.freed++
		b.wake()
	}
}
