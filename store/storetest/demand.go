// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// enough exceeds the number of runs that a test queues.
const enough = 100

// readDemand returns the demand of the environment.
func (w *world) readDemand(enough int) store.Demand {
	d, err := w.s.Demand(w.ctx, w.environment.Key(), enough)
	w.NoError(err)
	return d
}

// demandWithoutAge returns the demand of the environment, without the waiting time.
func (w *world) demandWithoutAge() store.Demand {
	d := w.readDemand(enough)
	d.Oldest = 0
	return d
}

// acceptIn accepts n events with one run each in a class.
func (w *world) acceptIn(class store.Class, n int) {
	for range n {
		e := w.singleEvent()
		e.Class = class
		w.accept(&e)
	}
}

var demandPromises = []promise{
	{"an environment without open runs has no demand", func(w *world) {
		w.Empty(w.readDemand(enough))
		w.requireNone(w.s.Demand(w.ctx, store.Key{ProjectID: uuid.New(), ID: uuid.New()}, enough))
	}},
	{"waiting and running runs are counted per environment", withAgents(func(w *world) {
		twin := w.twinProject()
		twin.deploy("one", "first")
		w.acceptIn(store.ClassSync, 2)
		w.acceptIn(store.ClassInbound, 3)
		twin.acceptIn(store.ClassDeferred, 1)
		w.Equal(store.Demand{Waiting: store.Runs{All: 5, Lower: 3}}, w.demandWithoutAge())
		w.Equal(store.Demand{Waiting: store.Runs{All: 1, Lower: 1}}, twin.demandWithoutAge())

		claimed := w.claim(3, lease)
		w.Len(claimed, 3, "both sync runs, and an inbound one")
		w.Equal(store.Demand{Running: store.Runs{All: 3, Lower: 1}, Waiting: store.Runs{All: 2, Lower: 2}}, w.demandWithoutAge())
		w.NoError(w.s.Release(w.ctx, leaseOf(claimed[2]), 0))
		w.Equal(store.Demand{Running: store.Runs{All: 2}, Waiting: store.Runs{All: 3, Lower: 2}}, w.demandWithoutAge(), "one was released")
		w.completeTogether(claimed[:2]...)
		w.completeTogether(w.claim(9, lease)...)
		w.Empty(w.readDemand(enough))
	})},
	{"the first waiting run sets the waiting time", withAgent(func(w *world) {
		first, second := w.singleEvent(), w.singleEvent()
		w.accept(&first, &second)
		w.updateRows(`UPDATE open_runs SET queued_at = queued_at - $2`, (10 * time.Minute).Microseconds())
		w.acceptEvent(w.singleEvent())
		w.Equal(10, int(w.readDemand(enough).Oldest.Minutes()))
		w.claim(3, lease)
		w.Zero(w.readDemand(enough).Oldest, "nothing waits")
	})},
	{"runs without a deployment need no runner", func(w *world) {
		w.singles(2)
		w.Empty(w.readDemand(enough))
		w.deploy("one", "first")
		w.Equal(2, w.demandWithoutAge().Waiting.All)
	}},
	{"runs above an agent's limit need no runner", func(w *world) {
		w.limits = map[string]int{"first": 2}
		w.deploy("one", "first", "second")
		w.singles(5)
		w.Equal(2, w.demandWithoutAge().Waiting.All)
		claimed := w.claim(9, lease)
		w.Len(claimed, 2)
		w.Equal(store.Demand{Running: store.Runs{All: 2}}, w.demandWithoutAge())
		e := w.event() // for both agents
		w.accept(&e)
		w.Equal(1, w.demandWithoutAge().Waiting.All, "the other agent has no limit")
		w.completeTogether(claimed[0])
		w.Equal(2, w.demandWithoutAge().Waiting.All)
	}},
	{"runs that wait for a key or an approval need no runner", func(w *world) {
		w.deployKeyed("one", keyedBy{"first": {Expression: "input.key"}}, "first")
		runs := w.contenders("a", "a", "b")
		w.Equal(2, w.demandWithoutAge().Waiting.All)
		claimed := w.underWay(runs[0], runs[2])
		w.Equal(store.Demand{Running: store.Runs{All: 2}}, w.demandWithoutAge())
		for _, c := range claimed {
			w.suspend(c, time.Hour)
		}
		w.Empty(w.readDemand(enough))
		w.NoError(w.s.Resume(w.ctx, claimed[0].Run.Key(), json.RawMessage(`{}`)))
		w.Equal(store.Demand{Waiting: store.Runs{All: 1}}, w.demandWithoutAge())
	}},
	{"a released run needs no runner until its delay is over", withAgent(func(w *world) {
		w.singles(2)
		claimed := w.claim(1, lease)
		w.NoError(w.s.Release(w.ctx, leaseOf(claimed[0]), time.Hour))
		w.updateRows(`UPDATE open_runs SET queued_at = CASE WHEN not_before > 0 THEN queued_at - $2 ELSE queued_at END`, time.Hour.Microseconds())
		w.Equal(store.Demand{Waiting: store.Runs{All: 1}}, w.demandWithoutAge())
		w.Less(w.readDemand(enough).Oldest, time.Hour, "a delayed run is not the first waiting run")
		w.updateRows(`UPDATE open_runs SET not_before = 0`)
		w.Equal(store.Demand{Waiting: store.Runs{All: 2}}, w.demandWithoutAge())
	})},
	{"deep queues are counted up to the limit, for each agent", withAgents(func(w *world) {
		w.singles(9)
		e := w.event()
		e.Runs = e.Runs[1:]
		w.accept(&e)
		w.Equal(store.Runs{All: 4 + 1}, w.readDemand(4).Waiting)
		w.claim(6, lease)
		w.Equal(4, w.readDemand(4).Running.All)
	})},
}
