// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"sync"

	"github.com/agentplatform/agentplatform/store"
)

// subscriberBuffer is how many hints wait for a slow reader.
const subscriberBuffer = 256

// Hub hands hints to the subscribers of this process.
type Hub struct {
	mu          sync.Mutex
	subscribers map[store.Topic]map[chan store.Hint]struct{}
	closed      bool
}

// Subscribe implements store.Notifier.
func (h *Hub) Subscribe(topic store.Topic) (<-chan store.Hint, func()) {
	ch := make(chan store.Hint, subscriberBuffer)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		close(ch)
		return ch, func() {}
	}
	if h.subscribers == nil {
		h.subscribers = map[store.Topic]map[chan store.Hint]struct{}{}
	}
	if h.subscribers[topic] == nil {
		h.subscribers[topic] = map[chan store.Hint]struct{}{}
	}
	h.subscribers[topic][ch] = struct{}{}
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if _, subscribed := h.subscribers[topic][ch]; subscribed {
			delete(h.subscribers[topic], ch)
			close(ch)
		}
	}
}

// Publish hands out hints and never waits: of a channel that is about to be
// full the last place is for the hint that hints were lost, and what comes
// while that one waits to be read is covered by it.
func (h *Hub) Publish(hints []store.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, hint := range hints {
		for ch := range h.subscribers[hint.Topic] {
			switch free := cap(ch) - len(ch); {
			case free > 1:
				ch <- hint
			case free == 1:
				ch <- store.Hint{Topic: hint.Topic}
			}
		}
	}
}

// Lost tells all subscribers to look at everything.
func (h *Hub) Lost() {
	h.Publish([]store.Hint{
		{Topic: store.TopicQueued}, {Topic: store.TopicFreed}, {Topic: store.TopicDone}, {Topic: store.TopicRoute}, {Topic: store.TopicDeployment},
	})
}

// Close closes all channels.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, channels := range h.subscribers {
		for ch := range channels {
			close(ch)
		}
	}
	h.subscribers = nil
}

// Distinct are hints without those that are there before.
func Distinct(hints []store.Hint) []store.Hint {
	if len(hints) < 2 {
		return hints
	}
	seen := make(map[store.Hint]bool, len(hints))
	out := hints[:0:0]
	for _, hint := range hints {
		if !seen[hint] {
			seen[hint] = true
			out = append(out, hint)
		}
	}
	return out
}
