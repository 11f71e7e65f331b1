// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// troubled returns the failing and paused destinations, read one by one.
func (w *world) troubled() map[uuid.UUID]store.TroubledDestination {
	of, after := map[uuid.UUID]store.TroubledDestination{}, store.Key{}
	for {
		page, err := w.s.TroubledDestinations(w.ctx, after, 1)
		w.NoError(err)
		if len(page) == 0 {
			return of
		}
		after = page[0].Connector
		if page[0].Connector.ProjectID == w.project.ID {
			of[after.ID] = page[0]
		}
	}
}

// waiting inserts a delivery to an unknown connector.
func (w *world) waiting(connector string) {
	id, err := uuid.NewV7()
	w.NoError(err)
	for statement, args := range map[string][]any{
		`INSERT INTO deliveries (project_id, id, environment_id, connector_id, link_id, run_id, attempt, due_at, started_at)
			VALUES ($1, $2, $3, $4, $4, $4, 0, 1, 1)`: {id.String(), w.environment.ID.String(), connector},
		`INSERT INTO destinations (project_id, connector_id, due_at, failures, paused_reason) VALUES ($1, $2, 1, 0, '')`: {connector},
	} {
		w.execStatement(statement, append([]any{w.project.ID.String()}, args...)...)
	}
}

var destinationPromises = []promise{
	{"failing and paused destinations are listed until they recover", withAgent(func(w *world) {
		failing, paused := w.outboundTo("failing", automatic), w.outboundTo("paused", automatic)
		w.outboundTo("well", automatic)
		w.endEvents(store.BreakAfter)
		w.postDeliveries()
		var attempts []store.Attempt
		for _, d := range w.takeDue(100, 100) {
			a := attempted(d, store.DeliveryDone)
			switch d.Connector.ID {
			case failing.ID:
				a = attempted(d, store.DeliveryRetry)
			case paused.ID:
				a = attempted(d, store.DeliveryGone)
				a.Reason = "410 Gone"
			}
			attempts = append(attempts, a)
		}
		w.recordAttempts(attempts...)
		troubled := w.troubled()
		w.Len(troubled, 2)
		w.Equal(store.TroubledDestination{Destination: store.Destination{Connector: failing.Key(), Failures: store.BreakAfter}, Ref: failing.Ref}, troubled[failing.ID])
		of, err := w.s.DestinationsOf(w.ctx, w.project.ID, []uuid.UUID{paused.ID, uuid.New()})
		w.NoError(err)
		w.Equal(map[uuid.UUID]store.Destination{paused.ID: troubled[paused.ID].Destination}, of)
		reason, is := of[paused.ID].Paused(paused.Ref.Generation)
		w.True(is)
		w.Equal("410 Gone", reason)
		_, is = of[paused.ID].Paused(paused.Ref.Generation + 1)
		w.False(is, "another generation is not paused")
		_, next := w.listAttempts(w.key(w.deliveriesOf(failing)[0].ID))
		w.NotNil(next, "the next attempt is due later")
		w.sameAttempts(append(w.deliveriesOf(failing), w.deliveriesOf(paused)...))

		w.NoError(w.s.ResumeDestination(w.ctx, paused.Key()))
		w.NoError(w.s.ResumeDestination(w.ctx, failing.Key()), "not paused, and still failing")
		w.Len(w.troubled(), 1)
		w.Contains(w.troubled(), failing.ID)
		w.endEvents(1)
		w.postDeliveries()
		w.Equal(store.ConnectorRunPending, w.deliveriesOf(paused)[0].Status, "it sends again")
	})},
	{"rejected deliveries are listed until one succeeds", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		end := func(outcome store.DeliveryOutcome, reason string) {
			w.endEvents(1)
			w.postDeliveries()
			a := attempted(w.takeDue(1, 100)[0], outcome)
			a.Reason, a.StatusCode = reason, 401
			w.recordAttempts(a)
		}
		end(store.DeliveryFailed, "401 Unauthorized")
		end(store.DeliveryFailed, "403 Forbidden")
		told := w.troubled()[out.ID]
		w.Equal(2, told.Rejected)
		w.Equal("403 Forbidden", told.RejectedReason)
		w.Zero(told.Failures, "it recovers: the next one is sent at once")
		end(store.DeliveryRetry, "later")
		w.Equal(2, w.troubled()[out.ID].Rejected, "it may still succeed")
		w.makeAllDue()
		w.recordAttempts(attempted(w.takeDue(1, 100)[0], store.DeliveryDone))
		w.NotContains(w.troubled(), out.ID)
	})},
	{"expired deliveries end and are reported", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		w.endEvents(3)
		w.postDeliveries()
		under := w.takeDue(1, 1)[0]
		w.Zero(w.expireDeliveries(time.Hour, 10), "not old enough")
		w.Equal(1, w.expireDeliveries(-time.Hour, 1))
		w.Equal(1, w.expireDeliveries(-time.Hour, 10), "one is in progress")
		told := w.troubled()[out.ID]
		w.Equal(2, told.Rejected)
		w.Contains(told.RejectedReason, store.DeliveryExpired)
		ended := 0
		for _, run := range w.deliveriesOf(out) {
			if run.Status == store.ConnectorRunFailed {
				ended++
				w.Contains(run.Error, store.DeliveryExpired)
			}
		}
		w.Equal(2, ended)
		w.recordAttempts(attempted(under, store.DeliveryDone))
		_, waits := w.nextDelivery(store.DeliveryClaim{})
		w.False(waits)
	})},
	{"expired deliveries of many connectors end in one call", func(w *world) {
		const connectors = 250 // more than one statement reads
		for range connectors {
			w.waiting(uuid.NewString())
		}
		w.Equal(connectors, w.expireDeliveries(-time.Hour, 2*connectors))
		w.Zero(w.countRowsOf("deliveries"))
	}},
	{"a delivery that the platform could not send has no attempt", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		w.endEvents(1)
		w.postDeliveries()
		for range 3 {
			a := attempted(w.takeDue(1, 100)[0], store.DeliveryRetry)
			w.Zero(a.Delivery.Tries)
			a.Free, a.Error, a.Wait = true, "not at once", time.Minute
			w.recordAttempts(a)
			run := w.connectorRun(a.Delivery.ID)
			w.Equal(store.ConnectorRunPending, run.Status)
			w.Equal("not at once", run.Error, "for waiting callers")
			w.Equal([]store.ConnectorRun{run}, w.deliveriesOf(out))
			w.Empty(w.takeDue(1, 100), "not at once")
			w.makeAllDue()
		}
		d := w.takeDue(1, 100)[0]
		w.Equal(4, d.Delivery.Attempt, "which is a fencing token nevertheless")
		w.Empty(w.connectorRun(d.Delivery.ID).Error, "it is in progress")
		w.recordAttempts(attempted(d, store.DeliveryRetry))
		w.Empty(w.connectorRun(d.Delivery.ID).Error, "its attempt has the reason")
		w.makeAllDue()
		d = w.takeDue(1, 100)[0]
		w.Equal(1, d.Delivery.Tries)
		w.recordAttempts(attempted(d, store.DeliveryDone))
		past, _ := w.listAttempts(w.key(w.deliveriesOf(out)[0].ID))
		w.Len(past, 2)
		w.Equal([]int{1, 2}, []int{past[0].Number, past[1].Number})
	})},
}

// sameAttempts checks that AttemptsOf returns the attempts that Attempts returns for each delivery,
// without responses.
func (w *world) sameAttempts(deliveries []store.ConnectorRun) {
	w.NotEmpty(deliveries)
	keys, want := []store.Key{w.key(uuid.New())}, map[store.Key]store.DeliveryAttempts{}
	for _, d := range deliveries {
		past, next := w.listAttempts(d.Key())
		for i := range past {
			past[i].Response = ""
		}
		keys = append(keys, d.Key())
		if next != nil || len(past) > 0 {
			want[d.Key()] = store.DeliveryAttempts{Past: past, Next: next}
		}
	}
	w.NotEmpty(want)
	got, err := w.s.AttemptsOf(w.ctx, keys)
	w.NoError(err)
	w.Equal(want, got)
	got, err = w.s.AttemptsOf(w.ctx, nil)
	w.NoError(err)
	w.Empty(got)
}
