// SPDX-License-Identifier: Apache-2.0

package hint

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// done returns a unique hint.
func done() store.Hint {
	return store.Hint{Topic: store.TopicDone, Key: store.Key{ProjectID: uuid.New(), ID: uuid.New()}}
}

// drain reads until it gets the last hint, or the hint that hints were lost.
func drain(hints <-chan store.Hint, last store.Hint) (seen []store.Hint) {
	for hint := range hints {
		seen = append(seen, hint)
		if hint == last || hint.Key == (store.Key{}) {
			break
		}
	}
	return seen
}

// Thousands of hints of one project at once are delivered one by one, and no reader has to read
// everything.
func TestHub_DeliversBurstsOneByOne(t *testing.T) {
	t.Parallel()
	var h Hub
	hints, stop := h.Subscribe(store.TopicDone)
	defer stop()
	burst := make([]store.Hint, 4000)
	for i := range burst {
		burst[i] = done()
	}
	h.Publish(burst)
	require.Equal(t, burst, drain(hints, burst[len(burst)-1]))
}

// A waiting hint exists once, even if it is published again.
func TestHub_MergesDuplicateHints(t *testing.T) {
	t.Parallel()
	s := &subscriber{wake: make(chan struct{}, 1), pending: map[store.Hint]struct{}{}}
	first, second := done(), done()
	for range 3 {
		s.addHint(first)
		s.addHint(second)
	}
	for _, want := range []store.Hint{first, second} {
		hint, ok := s.nextHint()
		require.True(t, ok)
		require.Equal(t, want, hint)
	}
	_, ok := s.nextHint()
	require.False(t, ok)
	s.addHint(first)
	hint, ok := s.nextHint()
	require.True(t, ok, "published again after it was read")
	require.Equal(t, first, hint)
}

// One hint reports the loss and covers all hints until it is read.
func TestHub_ReportsLossToSlowReaders(t *testing.T) {
	t.Parallel()
	s := &subscriber{wake: make(chan struct{}, 1), pending: map[store.Hint]struct{}{}}
	for range subscriberHints + 10 {
		s.addHint(done())
	}
	hint, ok := s.nextHint()
	require.True(t, ok)
	require.Equal(t, store.Hint{Topic: store.TopicDone}, hint)
	_, ok = s.nextHint()
	require.False(t, ok)
	last := done()
	s.addHint(last)
	hint, ok = s.nextHint()
	require.True(t, ok)
	require.Equal(t, last, hint)
}

// A subscription ends with stop or with its hub, even if its reader reads nothing.
func TestHub_ReleasesStoppedReaders(t *testing.T) {
	t.Parallel()
	var h Hub
	stopped, stop := h.Subscribe(store.TopicDone)
	closed, stopLate := h.Subscribe(store.TopicDone)
	for range 3 * subscriberBuffer {
		h.Publish([]store.Hint{done()})
	}
	stop()
	h.Close()
	for _, hints := range []<-chan store.Hint{stopped, closed} {
		for range hints {
		} // the channel closes
	}
	stop()
	stopLate()
	late, _ := h.Subscribe(store.TopicDone)
	_, open := <-late
	require.False(t, open)
}

// Of many waiting hints only the first have the end of a run.
func TestHub_LimitsWaitingEnds(t *testing.T) {
	t.Parallel()
	s := &subscriber{wake: make(chan struct{}, 1), pending: map[store.Hint]struct{}{}}
	for range 2 * subscriberEnds {
		hint := done()
		hint.End = &store.RunEnd{}
		s.addHint(hint)
	}
	ends := 0
	for hint, ok := s.nextHint(); ok; hint, ok = s.nextHint() {
		if hint.End != nil {
			ends++
		}
	}
	require.Equal(t, subscriberEnds, ends)
}

// Subscribers of every topic learn of lost hints, also later subscribers.
func TestHub_LostReachesEveryTopic(t *testing.T) {
	t.Parallel()
	for _, topic := range []store.Topic{
		store.TopicQueued, store.TopicFreed, store.TopicDelivery, store.TopicDone, store.TopicRoute, store.TopicDeployment, store.TopicLook, store.TopicRun, "another",
	} {
		t.Run(string(topic), func(t *testing.T) {
			t.Parallel()
			var h Hub
			hints, stop := h.Subscribe(topic)
			h.Lost()
			last := store.Hint{Topic: topic, Key: store.Key{ProjectID: uuid.New()}}
			h.Publish([]store.Hint{last})
			require.Equal(t, store.Hint{Topic: topic}, <-hints)
			stop()
		})
	}
}
