// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"sync"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// maxOwners bounds what is remembered: more than runs can be under way.
const maxOwners = 100_000

// owners remembers which environment a run is of, which never changes, so that
// a runner's call about a run of somebody else's is refused without asking the
// store each time.
type owners struct {
	mutex sync.RWMutex
	byRun map[store.Key]uuid.UUID
}

func newOwners() *owners { return &owners{byRun: map[store.Key]uuid.UUID{}} }

func (o *owners) get(run store.Key) (environment uuid.UUID, known bool) {
	o.mutex.RLock()
	defer o.mutex.RUnlock()
	environment, known = o.byRun[run]
	return environment, known
}

func (o *owners) put(run store.Key, environment uuid.UUID) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if len(o.byRun) >= maxOwners {
		clear(o.byRun)
	}
	o.byRun[run] = environment
}
