// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// classed accepts an event of a class with a run for each of these links.
func (w *world) classed(class store.Class, links ...int) []uuid.UUID {
	e := w.event()
	all := e.Runs
	e.Class, e.Runs = class, nil
	for _, link := range links {
		e.Runs = append(e.Runs, all[link])
	}
	w.accept(&e)
	var ids []uuid.UUID
	for _, run := range e.Runs {
		ids = append(ids, run.ID)
	}
	return ids
}

var orderPromises = []promise{
	{"sync starts before inbound, and inbound before deferred", withAgents(func(w *world) {
		deferred, inbound, sync := w.classed(store.ClassDeferred, 0), w.classed(store.ClassInbound, 0), w.classed(store.ClassSync, 0)
		runs := w.claimForHour(store.Claim{RunnerID: "r", Slots: 9, Limit: 9}).Runs
		w.Equal([]uuid.UUID{sync[0], inbound[0], deferred[0]}, runIDs(runs))
		for i, class := range []store.Class{store.ClassSync, store.ClassInbound, store.ClassDeferred} {
			w.Equal(class, runs[i].Run.Class)
		}
	})},
	{"every eighth claimed run is the oldest of the lower classes", withAgent(func(w *world) {
		deferred := w.classed(store.ClassDeferred, 0)
		for range 9 {
			w.classed(store.ClassSync, 0)
		}
		for i := range 9 { // one by one: the pool counts the served runs
			runs := w.claimForHour(store.Claim{RunnerID: uuid.NewString(), Slots: 9, Limit: 1}).Runs
			w.Len(runs, 1)
			w.Equal(i == 7, runs[0].Run.ID == deferred[0], "claim %d", i+1)
		}
	})},
	{"agents of a class are served round robin, over single claims too", withAgents(func(w *world) {
		for range 3 {
			w.classed(store.ClassInbound, 0)
		}
		w.classed(store.ClassInbound, 1)
		var agents []string
		for range 4 {
			runs := w.claimForHour(store.Claim{RunnerID: "r", Slots: 1, Limit: 1}).Runs
			w.Len(runs, 1)
			agents = append(agents, runs[0].Run.AgentName)
			w.NoError(w.complete(completed(runs[0])))
		}
		w.Equal([]string{"first", "second", "first", "first"}, agents)
	})},
	{"all agents of a deployment get their turn", func(w *world) {
		agents := make([]string, store.MaxAgents)
		for i := range agents {
			agents[i] = fmt.Sprintf("agent-%04d", i)
		}
		w.deploy("one", agents...)
		version := w.version()
		var events []store.Event
		for range 2 {
			for _, agent := range agents {
				e := w.eventAt(version)
				e.Runs = e.Runs[:1]
				e.Runs[0].AgentName = agent
				events = append(events, e)
			}
		}
		for batch := range slices.Chunk(events, 250) {
			w.acceptAll(batch)
		}
		begun := map[string]int{}
		for len(begun) < len(agents) {
			runs := w.claim(50, lease)
			w.NotEmpty(runs)
			for _, c := range runs {
				begun[c.Run.AgentName]++
				w.Equal(1, begun[c.Run.AgentName], "the turn of %s", c.Run.AgentName)
			}
		}
	}},
	{"some slots are reserved for sync and resumed runs", withAgent(func(w *world) {
		claim := func(runner string) []uuid.UUID {
			return runIDs(w.claimForHour(store.Claim{RunnerID: runner, Slots: 1, Limit: 1}).Runs)
		}
		w.Empty(claim("one"))
		w.Empty(claim("two"))
		inbound, waits := w.classed(store.ClassInbound, 0), w.classed(store.ClassInbound, 0)
		w.Equal(inbound, claim("one"))
		w.Empty(claim("two"), "the second of two slots is reserved")
		w.Equal(w.classed(store.ClassSync, 0), claim("two"))
		w.NoError(w.s.Cancel(w.ctx, w.key(inbound[0]), runerror.Cancelled, ""))
		w.Equal(waits, claim("three"), "sync is not counted")

		w.updateRows(`UPDATE runners SET seen_at = seen_at - $2`, (2 * store.RunnerPresence).Microseconds())
		w.NoError(w.s.Cancel(w.ctx, w.key(waits[0]), runerror.Cancelled, ""))
		w.Equal(w.classed(store.ClassInbound, 0), claim("one"), "the only remaining slot is not reserved")
	})},
	{"a resumed run may use a reserved slot", withAgent(func(w *world) {
		w.classed(store.ClassInbound, 0)
		c := w.claimForHour(store.Claim{RunnerID: "r", Slots: 2, Limit: 2}).Runs
		w.Len(c, 1)
		w.NoError(w.s.Release(w.ctx, leaseOf(c[0]), time.Hour))
		fresh := w.classed(store.ClassInbound, 0)
		w.Equal(fresh, runIDs(w.claimForHour(store.Claim{RunnerID: "r", Slots: 2, Limit: 2}).Runs))
		w.updateRows(`UPDATE open_runs SET not_before = 0`)
		w.classed(store.ClassInbound, 0)
		held := []store.Lease{{Run: w.key(fresh[0])}}
		for _, again := range w.claimForHour(store.Claim{RunnerID: "r", Slots: 2}).Runs {
			held = []store.Lease{leaseOf(again)}
		}
		w.Equal([]uuid.UUID{c[0].Run.ID}, runIDs(w.claimForHour(store.Claim{RunnerID: "r", Slots: 2, Limit: 2, Holding: held}).Runs))
	})},
	{"an agent's limit is respected", func(w *world) {
		w.limits = map[string]int{"first": 2}
		w.deploy("one", "first", "second")
		for range 4 {
			w.classed(store.ClassSync, 0, 1)
		}
		runs := w.claim(20, lease)
		counts := map[string]int{}
		for _, c := range runs {
			counts[c.Run.AgentName]++
		}
		w.Equal(map[string]int{"first": 2, "second": 4}, counts)
		w.Empty(w.claim(20, lease))
		for _, c := range runs {
			if c.Run.AgentName == "first" {
				w.NoError(w.complete(completed(c)))
				w.Len(w.claim(20, lease), 1, "the next one")
			}
		}
	}},
}
