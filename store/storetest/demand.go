// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// enough is more than what a promise queues.
const enough = 100

// asks measures what the environment asks of its pool.
func (w *world) asks(enough int) store.Demand {
	d, err := w.s.Demand(w.ctx, w.environment.Key(), enough)
	w.NoError(err)
	return d
}

// demand is what the environment asks of its pool, without how long it waits.
func (w *world) demand() store.Demand {
	d := w.asks(enough)
	d.Oldest = 0
	return d
}

// acceptIn accepts n events of one run in a class.
func (w *world) acceptIn(class store.Class, n int) {
	for range n {
		e := w.single()
		e.Class = class
		w.accept(&e)
	}
}

var demandPromises = []promise{
	{"nothing is asked of a pool where nothing is open", func(w *world) {
		w.Empty(w.asks(enough))
		d, err := w.s.Demand(w.ctx, store.Key{ProjectID: uuid.New(), ID: uuid.New()}, enough)
		w.NoError(err)
		w.Empty(d)
	}},
	{"what waits and what is under way is told, of the environment that is asked for", func(w *world) {
		w.deploy("one", "first", "second")
		twin := w.twin()
		twin.deploy("one", "first")
		w.acceptIn(store.ClassSync, 2)
		w.acceptIn(store.ClassInbound, 3)
		twin.acceptIn(store.ClassDeferred, 1)
		w.Equal(store.Demand{Waiting: store.Runs{All: 5, Lower: 3}}, w.demand())
		w.Equal(store.Demand{Waiting: store.Runs{All: 1, Lower: 1}}, twin.demand())

		claimed := w.claim(3, lease)
		w.Len(claimed, 3, "both sync ones, and an inbound one")
		w.Equal(store.Demand{Running: store.Runs{All: 3, Lower: 1}, Waiting: store.Runs{All: 2, Lower: 2}}, w.demand())
		w.NoError(w.s.Release(w.ctx, leaseOf(claimed[2]), 0))
		w.Equal(store.Demand{Running: store.Runs{All: 2}, Waiting: store.Runs{All: 3, Lower: 2}}, w.demand(), "one was handed back")
		w.finish(claimed[:2]...)
		w.finish(w.claim(9, lease)...)
		w.Empty(w.asks(enough))
	}},
	{"the first that waits says how long", func(w *world) {
		w.deploy("one", "first")
		first, second := w.single(), w.single()
		w.accept(&first, &second)
		w.set(`UPDATE open_runs SET queued_at = queued_at - $2`, (10 * time.Minute).Microseconds())
		third := w.single()
		w.accept(&third)
		w.Equal(10, int(w.asks(enough).Oldest.Minutes()))
		w.claim(3, lease)
		w.Zero(w.asks(enough).Oldest, "nothing waits")
	}},
	{"what waits for a deployment asks for no runner", func(w *world) {
		w.singles(2)
		w.Empty(w.asks(enough))
		w.deploy("one", "first")
		w.Equal(2, w.demand().Waiting.All)
	}},
	{"what an agent's limit holds back asks for no runner", func(w *world) {
		w.limits = map[string]int{"first": 2}
		w.deploy("one", "first", "second")
		w.singles(5)
		w.Equal(2, w.demand().Waiting.All)
		claimed := w.claim(9, lease)
		w.Len(claimed, 2)
		w.Equal(store.Demand{Running: store.Runs{All: 2}}, w.demand())
		e := w.event() // for both agents
		w.accept(&e)
		w.Equal(1, w.demand().Waiting.All, "the other agent has no limit")
		w.finish(claimed[0])
		w.Equal(2, w.demand().Waiting.All)
	}},
	{"what waits for its concurrency key, or for an approval, asks for no runner", func(w *world) {
		w.deployKeyed("one", keyedBy{"first": {Expression: "input.key"}}, "first")
		runs := w.contenders("a", "a", "b")
		w.Equal(2, w.demand().Waiting.All)
		claimed := w.underWay(runs[0], runs[2])
		w.Equal(store.Demand{Running: store.Runs{All: 2}}, w.demand())
		for _, c := range claimed {
			w.suspend(c, time.Hour)
		}
		w.Empty(w.asks(enough))
		w.NoError(w.s.Resume(w.ctx, claimed[0].Run.Key(), json.RawMessage(`{}`)))
		w.Equal(store.Demand{Waiting: store.Runs{All: 1}}, w.demand())
	}},
	{"what was handed back for a while asks for no runner until it is over", func(w *world) {
		w.deploy("one", "first")
		w.singles(2)
		claimed := w.claim(1, lease)
		w.NoError(w.s.Release(w.ctx, leaseOf(claimed[0]), time.Hour))
		w.set(`UPDATE open_runs SET queued_at = CASE WHEN not_before > 0 THEN queued_at - $2 ELSE queued_at END`, time.Hour.Microseconds())
		w.Equal(store.Demand{Waiting: store.Runs{All: 1}}, w.demand())
		w.Less(w.asks(enough).Oldest, time.Hour, "what waits for its time is not the first that waits for a place")
		w.set(`UPDATE open_runs SET not_before = 0`)
		w.Equal(store.Demand{Waiting: store.Runs{All: 2}}, w.demand())
	}},
	{"of deep queues as many are counted as are enough, and those of other agents", func(w *world) {
		w.deploy("one", "first", "second")
		w.singles(9)
		e := w.event()
		e.Runs = e.Runs[1:]
		w.accept(&e)
		w.Equal(store.Runs{All: 4 + 1}, w.asks(4).Waiting)
		w.claim(6, lease)
		w.Equal(4, w.asks(4).Running.All)
	}},
}
