// SPDX-License-Identifier: Apache-2.0

package hint

import (
	"slices"

	"github.com/agentplatform/agentplatform/store"
)

// followedRuns are the runs that streams follow in any process. Only their changes are worth hints, because most runs are never
// followed. A run stays until store.MaxFollowedRuns others were followed after it.
type followedRuns struct {
	known map[store.Key]bool
	order []store.Key // the first one was followed first
}

// addRun adds a run, or moves it to the end.
func (f *followedRuns) addRun(run store.Key) {
	switch {
	case run == store.Key{}: // hints were lost
		return
	case f.known == nil:
		f.known = map[store.Key]bool{}
	case f.known[run]:
		f.order = slices.DeleteFunc(f.order, func(k store.Key) bool { return k == run })
	case len(f.order) >= store.MaxFollowedRuns:
		delete(f.known, f.order[0])
		f.order = slices.Delete(f.order, 0, 1)
	}
	f.known[run] = true
	f.order = append(f.order, run)
}

// WorthSending returns hints without duplicates, and without changes of runs that are not followed.
func (h *Hub) WorthSending(hints []store.Hint) []store.Hint {
	h.mu.Lock()
	defer h.mu.Unlock()
	return distinct(slices.DeleteFunc(hints, func(hint store.Hint) bool {
		return hint.Topic == store.TopicRun && !h.followed.known[hint.Key]
	}))
}
