// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"sync"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

var claimPromises = []promise{
	{"runs wait for a live deployment", func(w *world) {
		w.acceptEvent(w.event())
		w.Empty(w.claim(10, lease))
		w.deploy("one", "first", "second")
		w.Len(w.claim(10, lease), 2)
	}},
	{"runs are claimed oldest first, with all their data", func(w *world) {
		d := w.deploy("one", "first", "second")
		e, later := w.event(), w.event()
		w.accept(&e)
		w.accept(&later)
		claimed := w.claim(3, lease)
		w.Len(claimed, 3)
		for i, want := range []uuid.UUID{e.Runs[0].ID, e.Runs[1].ID, later.Runs[0].ID} {
			w.Equal(want, claimed[i].Run.ID)
		}
		c := claimed[0]
		w.Equal(store.RunRunning, c.Run.Status)
		w.Equal(d.ID, *c.Run.DeploymentID)
		w.Equal(1, c.Run.Attempt)
		w.NotNil(c.Run.StartedAt)
		w.Equal(w.deployment(d.ID).BundleDigest, c.BundleDigest)
		w.Equal(e.Input, c.Input)
		w.Equal(e.ContentType, c.ContentType)
		w.Zero(c.JournalLength)
		w.True(c.LeaseUntil.After(*c.Run.StartedAt))
		w.Len(w.claim(10, lease), 1, "the last one")
		w.Empty(w.claim(10, lease))
	}},
	{"no run is claimed twice", withAgents(func(w *world) {
		events := make([]store.Event, 40)
		for i := range events {
			events[i] = w.event()
		}
		w.acceptAll(events)
		var (
			group sync.WaitGroup
			mu    sync.Mutex
			seen  = map[uuid.UUID]int{}
			fault error
		)
		for range 8 {
			group.Go(func() {
				for {
					result, err := w.s.Claim(w.ctx, store.Claim{
						Environment: w.environment.Key(), RunnerID: uuid.NewString(), Slots: 3, Limit: 3, Lease: lease,
					})
					mu.Lock()
					for _, c := range result.Runs {
						seen[c.Run.ID]++
					}
					if err != nil {
						fault = err
					}
					mu.Unlock()
					if err != nil || len(result.Runs) == 0 {
						return
					}
				}
			})
		}
		group.Wait()
		w.NoError(fault)
		for _, c := range w.claim(100, lease) { // rows that a claim skipped while another one had them
			seen[c.Run.ID]++
		}
		w.Len(seen, 80)
		for id, n := range seen {
			w.Equal(1, n, id)
		}
	})},
	{"a run of an agent that is not deployed fails at once", func(w *world) {
		w.deploy("one", "second")
		e := w.acceptEvent(w.event())
		claimed := w.claim(10, lease)
		w.Len(claimed, 1)
		w.Equal("second", claimed[0].Run.AgentName)
		failed := w.run(e.Runs[0].ID)
		w.Equal(store.RunFailed, failed.Status)
		w.Equal(runerror.AgentNotFound, failed.ErrorCode)
		w.NotEmpty(failed.Error)
		w.NoError(w.complete(completed(claimed[0])))
		w.Equal(store.ConnectorRunFailed, w.outcome(e.ConnectorRunID).Status)
	}},
	{"runs that cannot start do not hide others", func(w *world) {
		w.deploy("one", "second")
		bad, good := w.singleEvent(), w.event()
		good.Runs = good.Runs[1:]
		w.accept(&bad)
		w.accept(&good)
		claimed := w.claim(1, lease)
		if len(claimed) == 0 { // it took the run that cannot start
			claimed = w.claim(1, lease)
		}
		w.Len(claimed, 1)
		w.Equal(good.Runs[0].ID, claimed[0].Run.ID)
		w.Equal(store.ConnectorRunFailed, w.outcome(bad.ConnectorRunID).Status)
	}},
	{"a resumed run keeps its deployment", func(w *world) {
		one := w.deploy("one", "first")
		_, c := w.running(lease)
		w.NoError(w.s.Release(w.ctx, leaseOf(c), 0))
		w.deploy("two", "other")
		again := w.claim(10, lease)
		w.Len(again, 1)
		w.Equal(one.ID, *again[0].Run.DeploymentID)
		w.Equal(2, again[0].Run.Attempt)
		w.Greater(again[0].Token, c.Token)
	}},
	{"each claim of a run has another random token part", withAgents(func(w *world) {
		const bits = 31 // below the attempt
		events := make([]store.Event, 40)
		for i := range events {
			events[i] = w.event()
		}
		w.acceptAll(events)
		var claimed, begun []store.Claimed
		for range 4 {
			some := w.claim(20, lease)
			w.Len(some, 20)
			claimed = append(claimed, some...)
		}
		for range 40 {
			e := w.offered()
			begun = append(begun, w.acceptStarted(&e))
		}
		for _, runs := range [][]store.Claimed{claimed, begun} {
			random, varied := map[int64]bool{}, int64(0)
			for _, c := range runs {
				w.EqualValues(c.Run.Attempt, c.Token>>bits)
				random[c.Token&(1<<bits-1)] = true
				varied |= c.Token&(1<<bits-1) ^ runs[0].Token&(1<<bits-1)
			}
			w.GreaterOrEqual(len(random), len(runs)-1, "equal by chance twice")
			w.EqualValues(1<<bits-1, varied, "every bit varies")
		}
	})},
	{"a heartbeat renews current claims and returns the others", withAgent(func(w *world) {
		_, c := w.running(lease)
		stale, unknown := store.Lease{Run: c.Run.Key(), Token: c.Token - 1}, store.Lease{Run: w.key(uuid.New()), Token: 1}
		w.ElementsMatch([]store.Lease{stale, unknown}, w.renewLeases(w.environment.Key(), heldClaims(leaseOf(c), stale, unknown), lease))
		lost := w.renewLeases(w.key(uuid.New()), heldClaims(leaseOf(c)), lease)
		w.Equal([]store.Lease{leaseOf(c)}, lost, "another environment's")
		w.Empty(w.renewLeases(w.environment.Key(), nil, lease))
	})},
	{"a run that loses every runner fails, a released run does not", withAgent(func(w *world) {
		e, c := w.running(expired)
		w.NoError(w.s.Release(w.ctx, leaseOf(c), 0))
		for loss := range store.MaxLosses {
			w.Equal(store.RunQueued, w.run(c.Run.ID).Status, "after %d losses", loss)
			w.Len(w.claim(10, expired), 1)
			w.Equal(1, w.sweep(10))
		}
		ended := w.run(c.Run.ID)
		w.Equal(store.RunFailed, ended.Status)
		w.Equal(runerror.RunnerLost, ended.ErrorCode)
		w.NotNil(ended.EndedAt)
		w.Equal(store.ConnectorRunFailed, w.outcome(e.ConnectorRunID).Status)
	})},
	{"a late heartbeat revives its claim", withAgent(func(w *world) {
		_, c := w.running(expired)
		w.requireNone(w.s.Heartbeat(w.ctx, w.environment.Key(), heldClaims(leaseOf(c)), lease))
		w.Zero(w.sweep(10))
		w.Equal(store.RunRunning, w.run(c.Run.ID).Status)
	})},
}
