// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// outboundTo creates an outbound connector with a link from the first agent.
func (w *world) outboundTo(name string, policy store.OutboundPolicy) store.Connector {
	return w.outboundFrom("first", name, policy)
}

// outboundFrom creates an outbound connector with a link from an agent.
func (w *world) outboundFrom(agent, name string, policy store.OutboundPolicy) store.Connector {
	c := w.newConnector(name)
	c.Mode = "outbound"
	w.NoError(w.s.PutConnector(w.ctx, c))
	link := w.newLink(name+"-"+agent, c.ID, agent, origin)
	link.Outbound = &policy
	w.NoError(w.s.PutLink(w.ctx, link))
	return c
}

// automatic is the default policy of the contract.
var automatic = store.OutboundPolicy{Mode: store.LinkAutomatic}

// postDeliveries creates deliveries for ended runs.
func (w *world) postDeliveries() int {
	n, err := w.s.PostDeliveries(w.ctx, 100)
	w.NoError(err)
	return n
}

// takeDue claims deliveries.
func (w *world) takeDue(limit, each int) []store.ClaimedDelivery {
	return w.claimDeliveries(store.DeliveryClaim{Limit: limit, PerConnector: each, Lease: lease})
}

// attempted returns the result of a claimed delivery's attempt.
func attempted(d store.ClaimedDelivery, outcome store.DeliveryOutcome) store.Attempt {
	a := store.Attempt{
		Delivery: d.Delivery, Generation: d.Connector.Ref.Generation, Outcome: outcome, At: origin, Duration: time.Second, StatusCode: 200,
	}
	if outcome != store.DeliveryDone {
		a.StatusCode, a.ErrorClass, a.Error, a.Reason, a.Down = 503, "http_status", "503 Service Unavailable", "given up", outcome == store.DeliveryRetry
	}
	return a
}

// underWayTo returns a delivery to a connector with its second attempt in progress.
func (w *world) underWayTo(c store.Connector) store.ClaimedDelivery {
	w.acceptEvent(w.singleEvent())
	for _, run := range w.claim(1, lease) {
		w.NoError(w.complete(completed(run)))
	}
	w.postDeliveries()
	w.recordAttempts(attempted(w.takeDue(1, 1)[0], store.DeliveryRetry))
	second := w.takeDue(1, 1)[0]
	w.Equal(c.ID, second.Connector.ID)
	return second
}

// deliveriesOf lists the deliveries of a connector.
func (w *world) deliveriesOf(c store.Connector) []store.ConnectorRun {
	runs, total := w.listConnectorRuns(store.ConnectorRunQuery{Connector: c.Key(), Trigger: store.TriggerOutbound, Limit: 100})
	w.EqualValues(len(runs), total)
	return runs
}

// makeAllDue makes waiting deliveries due.
func (w *world) makeAllDue() {
	w.updateRows(`UPDATE deliveries SET due_at = 1`)
	w.updateRows(`UPDATE destinations SET due_at = 1`)
}

var deliveryPromises = []promise{
	{"the result of a run is sent over its agent's links, once", withAgents(func(w *world) {
		c := w.outboundTo("results", automatic)
		e := w.acceptEvent(w.event())
		for _, run := range w.claim(2, lease) {
			w.NoError(w.complete(completed(run)))
		}
		in, waits := w.nextDelivery(store.DeliveryClaim{})
		w.True(waits)
		w.Equal(time.Second, in, "another process creates it, and this read misses nothing")
		w.Equal(1, w.postDeliveries(), "the other agent has no such link")
		w.Zero(w.postDeliveries())
		claimed := w.takeDue(10, 10)
		w.Len(claimed, 1)
		d := claimed[0]
		w.Equal(e.Runs[0].ID, d.RunID)
		w.Equal(e.Runs[0].ID, d.Run.ID)
		w.Equal(completed(store.Claimed{}).Output, d.Run.Output)
		w.Equal(c.ID, d.Connector.ID)
		w.Equal(1, d.Attempt)
		w.Empty(w.takeDue(10, 10))
		w.Equal(store.ConnectorRunRunning, w.connectorRun(d.Delivery.ID).Status)
		w.recordAttempts(attempted(d, store.DeliveryDone))
		run := w.connectorRun(d.Delivery.ID)
		w.Equal(store.ConnectorRunCompleted, run.Status)
		w.Equal(store.TriggerOutbound, run.Trigger)
		w.Equal([]uuid.UUID{e.Runs[0].ID}, run.RunIDs)
		w.NotNil(run.EndedAt)
		w.Equal([]store.ConnectorRun{run}, w.deliveriesOf(c))
		_, waits = w.nextDelivery(store.DeliveryClaim{})
		w.False(waits)
	})},
	{"a link sends by status, source and mode", withAgent(func(w *world) {
		other := uuid.New()
		failed := []store.RunStatus{store.RunFailed}
		for name, sends := range map[string]struct {
			policy store.OutboundPolicy
			done   int
			failed int
		}{
			"all":        {automatic, 1, 0},
			"failed":     {store.OutboundPolicy{Mode: store.LinkAutomatic, Statuses: failed}, 0, 1},
			"source":     {store.OutboundPolicy{Mode: store.LinkAutomatic, SourceConnectorIDs: []uuid.UUID{other, w.connector.ID}}, 1, 0},
			"elsewhere":  {store.OutboundPolicy{Mode: store.LinkAutomatic, SourceConnectorIDs: []uuid.UUID{other}}, 0, 0},
			"tool":       {store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: "send"}, 0, 0},
			"middleware": {store.OutboundPolicy{Mode: store.LinkMiddleware}, 0, 0},
		} {
			c := w.outboundTo(name, sends.policy)
			w.singles(2)
			runs := w.claim(2, lease)
			w.NoError(w.complete(completed(runs[0])))
			w.NoError(w.complete(store.Completion{Lease: leaseOf(runs[1]), Status: store.RunFailed, Error: "no"}))
			w.Equal(2, w.postDeliveries())
			var done, failures int
			for _, d := range w.takeDue(10, 10) {
				switch d.Run.Status {
				case store.RunCompleted:
					done++
				case store.RunFailed:
					failures++
				}
			}
			w.Equal(sends.done, done, name)
			w.Equal(sends.failed, failures, name)
			w.NoError(w.s.Remove(w.ctx, w.project.ID, c.Ref))
		}
	})},
	{"a run that is not to be published has no delivery of its result", withAgent(func(w *world) {
		w.outboundTo("results", automatic)
		w.singles(2)
		runs := w.claim(2, lease)
		hidden := completed(runs[0])
		hidden.Unpublished = true
		w.NoError(w.complete(hidden))
		w.NoError(w.complete(completed(runs[1])))
		w.Equal(2, w.postDeliveries())
		due := w.takeDue(10, 10)
		w.Len(due, 1)
		w.Equal(runs[1].Run.ID, due[0].RunID)
	})},
	{"a failed attempt is retried when due, with the next number", withAgent(func(w *world) {
		w.outboundTo("results", automatic)
		w.endEvents(1)
		w.postDeliveries()
		first := w.takeDue(10, 10)[0]
		again := attempted(first, store.DeliveryRetry)
		again.Wait, again.Response = time.Hour, strings.Repeat("é", store.MaxExcerpt)
		w.recordAttempts(again)
		w.Empty(w.takeDue(10, 10))
		in, waits := w.nextDelivery(store.DeliveryClaim{})
		w.True(waits)
		w.Greater(in, 59*time.Minute)
		w.Equal(store.ConnectorRunPending, w.connectorRun(first.Delivery.ID).Status)
		w.makeAllDue()
		second := w.takeDue(10, 10)[0]
		w.Equal(first.Delivery.ID, second.Delivery.ID)
		w.Equal(2, second.Attempt)
		w.recordAttempts(attempted(first, store.DeliveryDone))
		w.Equal(store.ConnectorRunRunning, w.connectorRun(first.Delivery.ID).Status, "a late result of an earlier attempt is dropped")
		w.recordAttempts(attempted(second, store.DeliveryFailed))
		run := w.connectorRun(first.Delivery.ID)
		w.Equal(store.ConnectorRunFailed, run.Status)
		w.Equal("given up", run.Error)
		past, next := w.listAttempts(w.key(first.Delivery.ID))
		w.Len(past, 2)
		w.Nil(next, "it has ended")
		w.LessOrEqual(len(past[0].Response), store.MaxExcerpt)
		past[0].Response = ""
		for i := range past {
			w.Equal(store.PastAttempt{
				Number: i + 1, At: origin, Duration: time.Second, StatusCode: 503, ErrorClass: "http_status", Error: "503 Service Unavailable",
			}, past[i])
		}
	})},
	{"an attempt without a result is lost and retried", withAgent(func(w *world) {
		w.outboundTo("results", automatic)
		w.endEvents(1)
		w.postDeliveries()
		first := w.takeDue(10, 10)[0]
		w.updateRows(`UPDATE deliveries SET due_at = 1, lease_until = 1`)
		w.updateRows(`UPDATE destinations SET due_at = 1`)
		_, before := w.uncounted()
		second := w.takeDue(10, 1)
		_, after := w.uncounted()
		w.Greater(after, before, "it counts as stored, too")
		w.Len(second, 1, "a slot is free again")
		w.Equal(2, second[0].Attempt)
		past, next := w.listAttempts(w.key(first.Delivery.ID))
		w.Nil(next, "one is in progress")
		w.Len(past, 1)
		w.Equal(store.ErrorClassLost, past[0].ErrorClass)
		w.recordAttempts(attempted(second[0], store.DeliveryDone))
		w.Equal(store.ConnectorRunCompleted, w.connectorRun(first.Delivery.ID).Status)
	})},
	{"attempts per connector are limited, and turns are fair", withAgent(func(w *world) {
		many := w.outboundTo("many", automatic)
		w.endEvents(20)
		w.postDeliveries()
		few := w.outboundTo("few", automatic)
		w.endEvents(1)
		w.postDeliveries()
		count := func(claimed []store.ClaimedDelivery) map[uuid.UUID]int {
			of := map[uuid.UUID]int{}
			for _, d := range claimed {
				of[d.Connector.ID]++
			}
			return of
		}
		first := w.takeDue(6, 4)
		w.Equal(map[uuid.UUID]int{many.ID: 3, few.ID: 1}, count(first))
		w.Equal(map[uuid.UUID]int{many.ID: 1}, count(w.takeDue(6, 4)), "four of one connector")
		w.Empty(w.takeDue(6, 4))
		in, waits := w.nextDelivery(store.DeliveryClaim{})
		w.True(waits)
		w.Positive(in, "it is not due at once again")
		w.recordAttempts(attempted(first[0], store.DeliveryDone))
		w.Len(w.takeDue(6, 4), 1, "a slot is free")
	})},
	{"full projects are left out", withAgent(func(w *world) {
		w.outboundTo("results", automatic)
		w.endEvents(1)
		w.postDeliveries()
		claimed := w.claimDeliveries(store.DeliveryClaim{Limit: 10, PerConnector: 10, Lease: lease, PerProject: 2, UnderWay: map[uuid.UUID]int{w.project.ID: 2, uuid.New(): 1}})
		w.Empty(claimed)
		w.Len(w.takeDue(10, 10), 1)
	})},
	{"a destination that is down gets one delivery at a time", withAgent(func(w *world) {
		w.outboundTo("results", automatic)
		w.endEvents(store.BreakAfter + 3)
		w.postDeliveries()
		var attempts []store.Attempt
		for _, d := range w.takeDue(store.BreakAfter, 100) {
			attempts = append(attempts, attempted(d, store.DeliveryRetry))
		}
		w.Len(attempts, store.BreakAfter)
		w.recordAttempts(attempts...)
		w.Empty(w.takeDue(10, 100), "the others wait with it")
		in, _ := w.nextDelivery(store.DeliveryClaim{})
		w.Greater(in, store.BreakFor(store.BreakAfter)-time.Second)
		w.endEvents(1)
		w.postDeliveries()
		w.Empty(w.takeDue(10, 100), "and new deliveries")
		w.makeAllDue()
		one := w.takeDue(10, 100)
		w.Len(one, 1)
		w.recordAttempts(attempted(one[0], store.DeliveryDone))
		w.Len(w.takeDue(100, 100), store.BreakAfter+3, "the others, and the waiting retries")
	})},
	{"deliveries of a disabled, retired, paused or deleted connector are skipped with a reason", withAgent(func(w *world) {
		disabled, gone := w.outboundTo("disabled", automatic), w.outboundTo("gone", automatic)
		w.endEvents(1)
		w.postDeliveries()
		disabled.Enabled = false
		w.NoError(w.s.PutConnector(w.ctx, disabled))
		w.makeAllDue()
		due := map[uuid.UUID]store.ConnectorRun{disabled.ID: w.deliveriesOf(disabled)[0], gone.ID: w.deliveriesOf(gone)[0]}
		w.NoError(w.s.Remove(w.ctx, w.project.ID, gone.Ref))
		w.Empty(w.takeDue(10, 10))
		w.Equal(store.ConnectorRunSkipped, w.connectorRun(due[disabled.ID].ID).Status)
		w.Equal(store.ConnectorRunCancelled, w.connectorRun(due[gone.ID].ID).Status)
		for _, was := range due {
			w.NotEmpty(w.connectorRun(was.ID).Error)
		}

		paused := w.outboundTo("paused", automatic)
		w.endEvents(2)
		w.postDeliveries()
		w.Len(w.deliveriesOf(disabled), 3, "later deliveries are skipped at once")
		w.Equal(store.ConnectorRunSkipped, w.deliveriesOf(disabled)[0].Status)
		first := w.takeDue(1, 10)[0]
		a := attempted(first, store.DeliveryGone)
		a.StatusCode, a.Reason = 410, "410 Gone"
		w.recordAttempts(a)
		w.Equal(store.ConnectorRunFailed, w.connectorRun(first.Delivery.ID).Status)
		w.makeAllDue()
		w.Empty(w.takeDue(10, 10))
		for _, run := range w.deliveriesOf(paused) {
			w.Contains(run.Error, "410 Gone")
		}
		paused.Ref.Generation++
		w.NoError(w.s.PutConnector(w.ctx, paused))
		w.endEvents(1)
		w.postDeliveries()
		next := w.takeDue(10, 10)
		w.Len(next, 1, "another generation of the connector sends again")
		late := attempted(next[0], store.DeliveryGone)
		late.Generation--
		w.recordAttempts(late)
		w.endEvents(1)
		w.postDeliveries()
		last := w.takeDue(10, 10)
		w.Len(last, 1, "the result of an earlier attempt pauses no later generation")
		w.recordAttempts(attempted(last[0], store.DeliveryGone))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, paused.Ref))
		paused.Ref.ObjectUID = "made again"
		w.NoError(w.s.PutConnector(w.ctx, paused))
		link := w.newLink("paused-again", paused.ID, "first", origin)
		link.Outbound = &store.OutboundPolicy{Mode: store.LinkAutomatic}
		w.NoError(w.s.PutLink(w.ctx, link))
		w.endEvents(1)
		w.postDeliveries()
		w.Len(w.takeDue(10, 10), 1, "a re-created connector is not paused")
	})},
	{"a claim respects the limit of a project", withAgent(func(w *world) {
		w.outboundTo("one", automatic)
		w.outboundTo("other", automatic)
		w.endEvents(10)
		w.postDeliveries()
		claim := store.DeliveryClaim{
			Limit: 20, PerConnector: 20, Lease: lease, PerProject: 7, UnderWay: map[uuid.UUID]int{w.project.ID: 2}, OfConnector: map[store.Key]int{},
		}
		take := func() (n int) {
			claimed := w.claimDeliveries(claim)
			for _, d := range claimed {
				claim.UnderWay[w.project.ID]++
				claim.OfConnector[d.Delivery.Connector()]++
			}
			return len(claimed)
		}
		next := func() (waits bool) {
			_, waits = w.nextDelivery(claim)
			return waits
		}
		w.Equal(4, take(), "3 of one connector, which is half of 5, and half of the rest of the other")
		w.updateRows(`UPDATE destinations SET due_at = 1`)
		w.Zero(take(), "of these two")
		w.False(next(), "and they are not due at once again")
		w.outboundTo("third", automatic)
		w.endEvents(1)
		w.postDeliveries()
		w.updateRows(`UPDATE destinations SET due_at = 1`)
		w.True(next())
		w.Equal(1, take(), "some slots are left for the next")
		_, waits := w.nextDelivery(store.DeliveryClaim{})
		w.True(waits)
		_, waits = w.nextDelivery(store.DeliveryClaim{UnderWay: map[uuid.UUID]int{w.project.ID: 1}})
		w.False(waits)
	})},
	{"of two attempts of a delivery the later one counts", withAgent(func(w *world) {
		w.outboundTo("results", automatic)
		w.endEvents(1)
		w.postDeliveries()
		first := w.takeDue(1, 1)[0]
		w.updateRows(`UPDATE deliveries SET due_at = 1, lease_until = 1`)
		w.updateRows(`UPDATE destinations SET due_at = 1`)
		second := w.takeDue(1, 1)[0]
		w.recordAttempts(attempted(second, store.DeliveryDone), attempted(first, store.DeliveryRetry))
		w.Equal(store.ConnectorRunCompleted, w.connectorRun(first.Delivery.ID).Status)
	})},
	{"deliveries count as stored", withAgent(func(w *world) {
		w.endEvents(1)
		w.countAllStored()
		without := w.storedBytes()
		w.outboundTo("results", automatic)
		w.endEvents(1)
		w.postDeliveries()
		a := attempted(w.takeDue(10, 10)[0], store.DeliveryRetry)
		a.Response = strings.Repeat("x", 1000)
		w.recordAttempts(a)
		w.makeAllDue()
		w.recordAttempts(attempted(w.takeDue(10, 10)[0], store.DeliveryDone))
		w.countAllStored()
		w.Greater(w.storedBytes(), 2*without+1000)
	})},
	{"responses are dropped if the project's storage is full", withAgent(func(w *world) {
		w.outboundTo("results", automatic)
		w.endEvents(2)
		w.postDeliveries()
		claimed := w.takeDue(2, 10)
		w.countAllStored()
		w.project.Limits.Storage = w.projectLoad().Stored
		w.NoError(w.s.PutProject(w.ctx, w.project))
		answered := func(d store.ClaimedDelivery, outcome store.DeliveryOutcome) store.Attempt {
			a := attempted(d, outcome)
			a.Response = "thanks"
			return a
		}
		last := func(d store.ClaimedDelivery) store.PastAttempt {
			past, _ := w.listAttempts(d.Delivery.Key())
			return past[len(past)-1]
		}
		w.recordAttempts(answered(claimed[0], store.DeliveryDone))
		w.recordAttempts(answered(claimed[1], store.DeliveryRetry))
		w.Equal(200, last(claimed[0]).StatusCode)
		w.Empty(last(claimed[0]).Response)
		w.Equal("http_status", last(claimed[1]).ErrorClass)
		w.Empty(last(claimed[1]).Response)
		w.project.Limits.Storage = 0
		w.NoError(w.s.PutProject(w.ctx, w.project))
		w.makeAllDue()
		again := w.takeDue(1, 10)[0]
		w.recordAttempts(answered(again, store.DeliveryDone))
		w.Equal("thanks", last(again).Response, "it no longer has a limit")
	})},
	{"with concurrent claims and records each delivery has one attempt", withAgent(func(w *world) {
		for i := range 4 {
			w.outboundTo(fmt.Sprintf("results-%d", i), automatic)
		}
		w.endEvents(40)
		var (
			mutex sync.Mutex
			seen  = map[uuid.UUID]int{}
			group sync.WaitGroup
		)
		for range 4 {
			group.Go(func() {
				for mine := 0; ; mine++ {
					posted, err := w.s.PostDeliveries(w.ctx, 7)
					w.NoError(err)
					claimed := w.claimDeliveries(store.DeliveryClaim{Limit: 9, PerConnector: 1000, Lease: lease})
					var attempts []store.Attempt
					mutex.Lock()
					for _, d := range claimed {
						seen[d.Delivery.ID]++
						attempts = append(attempts, attempted(d, store.DeliveryDone))
					}
					done := len(seen) == 160
					mutex.Unlock()
					w.NoError(w.s.RecordAttempts(w.ctx, attempts))
					if done || mine > 1000 && posted == 0 {
						return
					}
				}
			})
		}
		group.Wait()
		w.Len(seen, 160)
		for id, times := range seen {
			w.Equal(1, times, id)
		}
	})},
}
