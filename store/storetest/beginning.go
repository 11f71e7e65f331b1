// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// waiting is the ID of a waiting runner.
const waiting = "a runner that waits"

// traceparent is the traceparent of an event.
const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// offered returns a single event whose run may start on the waiting runner.
func (w *world) offered() store.Event {
	e := w.singleEvent()
	e.RunnerID, e.Headers, e.Traceparent = waiting, map[string]string{"x-github-event": "push"}, traceparent
	return e
}

// acceptStarted accepts an event whose run must start, and returns its claim.
func (w *world) acceptStarted(e *store.Event) store.Claimed {
	admissions := w.tryAccept(*e)
	w.NoError(admissions[0].Err)
	w.Equal(store.Accepted, admissions[0].Verdict)
	w.NotNil(admissions[0].Begun)
	stamped(e, admissions[0])
	return *admissions[0].Begun
}

// acceptQueued accepts an event whose run must be queued.
func (w *world) acceptQueued(e store.Event) {
	admissions := w.tryAccept(e)
	w.NoError(admissions[0].Err)
	w.Nil(admissions[0].Begun)
	for _, id := range admissions[0].RunIDs {
		run := w.run(id)
		w.Equal(store.RunQueued, run.Status)
		w.Zero(run.Attempt)
		w.Nil(run.StartedAt)
	}
}

var beginningPromises = []promise{
	{"a handed off run is claimed by the waiting runner", withAgent(func(w *world) {
		e := w.offered()
		c := w.acceptStarted(&e)
		w.Equal(w.run(e.Runs[0].ID), c.Run)
		w.Equal(store.UnconfirmedLease, c.LeaseUntil.Sub(c.Now))
		w.Empty(w.claim(10, lease), "no other runner gets it")
		again := w.claimAs(waiting, 0, lease)
		w.Len(again, 1, "its response may be lost")
		again[0].Now = c.Now
		w.Equal(again[0], c)
		w.requireNone(w.s.Heartbeat(w.ctx, w.environment.Key(), heldClaims(leaseOf(c)), lease))
		w.NoError(w.complete(completed(c)))
		w.Equal(store.ConnectorRunCompleted, w.outcome(e.ConnectorRunID).Status)
	})},
	{"a handed off run without confirmation goes to another runner", withAgent(func(w *world) {
		e := w.offered()
		c := w.acceptStarted(&e)
		w.updateRows(`UPDATE open_runs SET lease_until = lease_until - $2`, store.UnconfirmedLease.Microseconds())
		w.Equal(1, w.sweep(10))
		again := w.claim(1, lease)
		w.Len(again, 1)
		w.Equal(2, again[0].Run.Attempt)
		w.ErrorIs(w.complete(completed(c)), store.ErrFenced)
		w.NoError(w.complete(completed(again[0])))
	})},
	{"each run of a batch starts on its own runner", withAgent(func(w *world) {
		events := []store.Event{w.offered(), w.singleEvent(), w.offered()}
		events[2].RunnerID = "another one"
		admissions := w.tryAccept(events...)
		w.Equal(admissions[0].RunIDs[0], admissions[0].Begun.Run.ID)
		w.Nil(admissions[1].Begun)
		w.Equal(admissions[2].RunIDs[0], admissions[2].Begun.Run.ID)
		w.Len(w.claimAs("another one", 10, lease), 2)
		w.Len(w.claimAs(waiting, 10, lease), 1)
	})},
	{"an input in a blob comes by its ID", withAgent(func(w *world) {
		blob := uuid.New()
		w.NoError(errorOf(w.s.PutBlob(w.ctx, w.key(blob), bytes.NewReader([]byte("large")))))
		e := w.offered()
		e.Input, e.InputBlob = nil, &blob
		c := w.acceptStarted(&e)
		w.Nil(c.Input)
		w.Equal(blob, *c.InputBlob)
	})},
	{"an outdated or repeated event starts nothing", withAgent(func(w *world) {
		first, second := w.offered(), w.offered()
		first.Idempotency = &store.Idempotency{Key: "key:1", TTL: time.Hour}
		second.Idempotency = first.Idempotency
		w.acceptStarted(&first)
		outdated := w.offered()
		outdated.ConnectorVersion++
		admissions := w.tryAccept(second, outdated)
		w.Equal(store.Repeated, admissions[0].Verdict)
		w.Nil(admissions[0].Begun)
		w.Equal(store.Outdated, admissions[1].Verdict)
		w.Nil(admissions[1].Begun)
		w.Equal(1, w.countRowsOf("open_runs"))
	})},
	{"an event that a claim would have to weigh is queued", func(w *world) {
		w.acceptQueued(w.offered()) // nothing is live
		w.limits = map[string]int{"second": 1}
		w.deployKeyed("one", keyedBy{"third": {Expression: "input.a"}}, "first", "second", "third")
		for _, change := range []func(e *store.Event){
			func(e *store.Event) { e.Class = store.ClassInbound },
			func(e *store.Event) { e.Class = store.ClassDeferred },
			func(e *store.Event) { e.Runs[0].AgentName = "second" },
			func(e *store.Event) { e.Runs[0].AgentName = "third" },
			func(e *store.Event) { e.Runs[0].AgentName = "is-not-deployed" },
			func(e *store.Event) { e.Runs[0].Concurrency.Unknown = true },
			func(e *store.Event) { e.Runs[0].Concurrency.Text = "a" },
			func(e *store.Event) { e.RunnerID = "" },
			func(e *store.Event) {
				e.Runs = append(e.Runs, store.EventRun{ID: newUUIDv7(), LinkID: w.links[1].ID, AgentName: "first"})
			},
		} {
			e := w.offered()
			change(&e)
			w.acceptQueued(e)
		}
		e := w.offered()
		w.acceptStarted(&e)
	}},
}
