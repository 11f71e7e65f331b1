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
	byEnv map[store.Key]chan struct{}
}

func newWakeups() *wakeups { return &wakeups{byEnv: map[store.Key]chan struct{}{}} }

// next returns a channel that closes with the next hint for an environment. It
// is to be taken before the store is asked, so that no hint falls between.
func (w *wakeups) next(environment store.Key) <-chan struct{} {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	ch, ok := w.byEnv[environment]
	if !ok {
		ch = make(chan struct{})
		w.byEnv[environment] = ch
	}
	return ch
}

func (w *wakeups) follow(hints <-chan store.Hint) {
	for hint := range hints {
		w.mutex.Lock()
		for environment, ch := range w.byEnv {
			if hint.Key == (store.Key{}) || hint.Key == environment {
				close(ch)
				delete(w.byEnv, environment)
			}
		}
		w.mutex.Unlock()
	}
}
