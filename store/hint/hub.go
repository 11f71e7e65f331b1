// SPDX-License-Identifier: Apache-2.0

// Package hint distributes hints within a process.
package hint

import (
	"sync"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// subscriberHints is the maximum number of different hints that wait for a slow reader. Beyond
	// it, the reader has to read everything, for all tenants. So no sweep and no batch may come
	// close to it.
	subscriberHints = 16_384
	// subscriberEnds limits the waiting hints with the end of a run, to save memory.
	subscriberEnds = 256
	// subscriberBuffer is the number of hints in the channel.
	subscriberBuffer = 64
)

// Hub distributes hints to the subscribers of this process.
type Hub struct {
	mu          sync.Mutex
	subscribers map[store.Topic]map[*subscriber]struct{}
	closed      bool
	// followed are the runs with hints of TopicRun.
	followed followedRuns
}

// subscriber reads hints. Each waiting hint exists once, in order of arrival.
type subscriber struct {
	out  chan store.Hint
	wake chan struct{} // holds one: there are hints to send
	done chan struct{}

	mu      sync.Mutex
	pending map[store.Hint]struct{}
	order   []store.Hint
}

// Subscribe implements store.Notifier.
func (h *Hub) Subscribe(topic store.Topic) (<-chan store.Hint, func()) {
	s := &subscriber{
		out: make(chan store.Hint, subscriberBuffer), wake: make(chan struct{}, 1), done: make(chan struct{}), pending: map[store.Hint]struct{}{},
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		close(s.out)
		return s.out, func() {}
	}
	if h.subscribers == nil {
		h.subscribers = map[store.Topic]map[*subscriber]struct{}{}
	}
	if h.subscribers[topic] == nil {
		h.subscribers[topic] = map[*subscriber]struct{}{}
	}
	h.subscribers[topic][s] = struct{}{}
	go s.deliverHints()
	return s.out, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if _, subscribed := h.subscribers[topic][s]; subscribed {
			delete(h.subscribers[topic], s)
			close(s.done)
		}
	}
}

// Publish distributes hints and never waits.
func (h *Hub) Publish(hints []store.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, hint := range hints {
		if hint.Topic == store.TopicFollow {
			h.followed.addRun(hint.Key)
		}
		for s := range h.subscribers[hint.Topic] {
			s.addHint(hint)
		}
	}
}

// addHint records a hint. The hint that hints were lost replaces all others of its topic.
func (s *subscriber) addHint(hint store.Hint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) >= subscriberEnds {
		hint.End = nil // the reader reads the end from the store
	}
	everything := store.Hint{Topic: hint.Topic}
	_, covered := s.pending[everything]
	_, known := s.pending[hint]
	if covered || known {
		return
	}
	if hint == everything || len(s.pending) >= subscriberHints {
		hint = everything
		s.pending, s.order = map[store.Hint]struct{}{}, nil
	}
	s.pending[hint] = struct{}{}
	s.order = append(s.order, hint)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// nextHint returns the hint that has waited longest.
func (s *subscriber) nextHint() (hint store.Hint, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order) == 0 {
		return hint, false
	}
	hint, s.order = s.order[0], s.order[1:]
	delete(s.pending, hint)
	return hint, true
}

// deliverHints sends pending hints until the reader unsubscribes.
func (s *subscriber) deliverHints() {
	defer close(s.out)
	for {
		hint, ok := s.nextHint()
		if !ok {
			select {
			case <-s.wake:
				continue
			case <-s.done:
				return
			}
		}
		select {
		case s.out <- hint:
		case <-s.done:
			return
		}
	}
}

// Lost tells the subscribers of all topics to read everything.
func (h *Hub) Lost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for topic, subscribers := range h.subscribers {
		for s := range subscribers {
			s.addHint(store.Hint{Topic: topic})
		}
	}
}

// Close closes all channels.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, subscribers := range h.subscribers {
		for s := range subscribers {
			close(s.done)
		}
	}
	h.subscribers = nil
}

// distinct returns hints without duplicates.
func distinct(hints []store.Hint) []store.Hint {
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
