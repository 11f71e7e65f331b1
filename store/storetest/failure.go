// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// telling is a policy for failure notices only.
var telling = store.OutboundPolicy{Mode: store.LinkAutomatic, Statuses: []store.RunStatus{store.StatusDeliveryFailed}}

// failing returns a delivery in progress, and the run of its result.
func (w *world) failing() store.ClaimedDelivery {
	w.endEvents(1)
	w.postDeliveries()
	claimed := w.takeDue(10, 10)
	w.Len(claimed, 1)
	return claimed[0]
}

var failedDeliveryPromises = []promise{
	{"a failed delivery is reported once by links for failures", withAgents(func(w *world) {
		c := w.outboundTo("results", automatic)
		ops := w.outboundFrom("nobody", "ops", telling)
		d := w.failing()
		w.Equal(c.ID, d.Connector.ID, "it reports no results")
		w.recordAttempts(attempted(d, store.DeliveryRetry))
		w.Zero(w.postDeliveries(), "it has not failed")
		w.makeAllDue()
		again := w.takeDue(10, 10)[0]
		w.awaitHint(store.TopicDelivery, w.environment.ID, func() { w.recordAttempts(attempted(again, store.DeliveryFailed)) })
		w.recordAttempts(attempted(again, store.DeliveryFailed))
		_, waits := w.nextDelivery(store.DeliveryClaim{})
		w.True(waits)
		w.Equal(1, w.postDeliveries())
		w.Zero(w.postDeliveries())
		word := w.takeDue(10, 10)
		w.Len(word, 1)
		w.Equal(ops.ID, word[0].Connector.ID)
		w.Equal(store.DeliverFailure, word[0].Kind)
		var body store.FailedDelivery
		w.NoError(json.Unmarshal(word[0].Payload, &body))
		failed := w.connectorRun(d.Delivery.ID)
		w.Equal(store.FailedDelivery{
			Type: "delivery_failed", DeliveryID: d.Delivery.ID, ConnectorID: c.ID, RunID: d.RunID, Attempts: 2,
			ErrorClass: "http_status", StatusCode: 503, Error: "given up", FailedAt: *failed.EndedAt, Count: 1,
		}, body)
		w.Equal([]uuid.UUID{d.RunID}, w.connectorRun(word[0].Delivery.ID).RunIDs)

		w.recordAttempts(attempted(word[0], store.DeliveryFailed))
		w.Zero(w.postDeliveries(), "which is not reported")
	})},
	{"a failing connector is reported once a minute, with a count", withAgents(func(w *world) {
		w.outboundTo("results", automatic)
		other := w.outboundTo("others", automatic)
		for _, name := range []string{"ops", "boss"} {
			w.outboundFrom("nobody", name, telling)
		}
		w.endEvents(3)
		w.postDeliveries()
		fail := func(claimed []store.ClaimedDelivery) (attempts []store.Attempt) {
			for _, d := range claimed {
				attempts = append(attempts, attempted(d, store.DeliveryFailed))
			}
			return attempts
		}
		claimed := w.takeDue(10, 10)
		w.Len(claimed, 6)
		w.recordAttempts(fail(claimed)...)
		counts := func() (counts []int64) {
			w.postDeliveries()
			for _, word := range w.takeDue(10, 10) {
				var body store.FailedDelivery
				w.NoError(json.Unmarshal(word.Payload, &body))
				w.Equal(store.ConnectorRunFailed, w.connectorRun(body.DeliveryID).Status)
				counts = append(counts, body.Count)
				w.recordAttempts(attempted(word, store.DeliveryDone))
			}
			return counts
		}
		w.Equal([]int64{3, 3, 3, 3}, counts(), "of two connectors, to two each")
		for range 2 {
			w.endEvents(1)
			w.postDeliveries()
			claimed = w.takeDue(10, 10)
			w.recordAttempts(fail(claimed)...)
			w.Empty(counts(), "the minute is not over")
		}
		in, waits := w.nextDelivery(store.DeliveryClaim{})
		w.True(waits)
		w.Greater(in, store.TellEvery/2)
		w.NoError(w.s.Remove(w.ctx, w.project.ID, other.Ref))
		w.updateRows(`UPDATE outbox SET posted_at = 1`)
		w.Equal([]int64{2, 2, 2, 2}, counts())
		w.updateRows(`UPDATE outbox SET posted_at = 1`)
		w.Empty(counts())
		_, waits = w.nextDelivery(store.DeliveryClaim{})
		w.False(waits, "nothing is left to report")
	})},
	{"a connector with the ID of a run does not affect the run", withAgents(func(w *world) {
		w.outboundTo("results", automatic)
		w.outboundFrom("nobody", "ops", telling)
		run := w.sending(1)
		same := w.newConnector("same")
		same.Mode, same.ID = "outbound", run.Run.ID
		w.NoError(w.s.PutConnector(w.ctx, same))
		link := w.newLink("same", same.ID, "first", origin)
		link.Outbound = &store.OutboundPolicy{Mode: store.LinkAutomatic}
		w.NoError(w.s.PutLink(w.ctx, link))
		w.endEvents(1)
		w.postDeliveries()
		for _, d := range w.takeDue(10, 10) {
			w.recordAttempts(attempted(d, store.DeliveryFailed))
		}
		w.NoError(w.complete(completed(run)))
		w.postDeliveries()
		kinds := map[store.DeliveryKind]int{}
		for _, d := range w.takeDue(10, 10) {
			kinds[d.Kind]++
		}
		w.Equal(map[store.DeliveryKind]int{store.DeliverResult: 2, store.DeliverFailure: 2}, kinds)
	})},
	{"failures that pause the connector, and failed sends, are reported", withAgents(func(w *world) {
		w.outboundTo("results", toolPolicy("tell"))
		w.outboundFrom("nobody", "ops", telling)
		run := w.sending(1)
		w.sendPayload(payloadOf(run, "tell", 1, `1`))
		w.recordAttempts(attempted(w.takeDue(10, 10)[0], store.DeliveryGone))
		w.Equal(1, w.postDeliveries())
		word := w.takeDue(10, 10)
		w.Len(word, 1)
		w.Equal(run.Run.ID, word[0].RunID)
		w.NoError(w.complete(completed(run)))
	})},
	{"own, skipped and foreign deliveries are not reported", withAgents(func(w *world) {
		both := automatic
		both.Statuses = []store.RunStatus{store.RunCompleted, store.StatusDeliveryFailed}
		c := w.outboundTo("results", both)
		elsewhere := w.newEnvironment("elsewhere", origin)
		w.NoError(w.s.PutEnvironment(w.ctx, elsewhere))
		there := w.newConnector("there")
		there.Mode, there.EnvironmentID = "outbound", elsewhere.ID
		w.NoError(w.s.PutConnector(w.ctx, there))
		link := w.newLink("there", there.ID, "first", origin)
		link.Outbound = &telling
		w.NoError(w.s.PutLink(w.ctx, link))
		w.recordAttempts(attempted(w.failing(), store.DeliveryFailed))
		w.postDeliveries()
		w.Empty(w.takeDue(10, 10))

		w.outboundFrom("nobody", "ops", telling)
		c.Enabled = false
		w.NoError(w.s.PutConnector(w.ctx, c))
		w.endEvents(1)
		w.postDeliveries()
		w.Zero(w.postDeliveries())
		w.Empty(w.takeDue(10, 10))
	})},
	{"without a link for failures nothing is left to report", withAgents(func(w *world) {
		w.outboundTo("results", automatic)
		w.recordAttempts(attempted(w.failing(), store.DeliveryFailed))
		w.Zero(w.postDeliveries())
		w.recordAttempts(attempted(w.failing(), store.DeliveryDone))
		w.Zero(w.postDeliveries())
	})},
	{"the number of notified connectors is limited", withAgents(func(w *world) {
		w.outboundTo("results", automatic)
		for i := range store.MaxTold + 2 {
			c := w.outboundFrom("nobody", fmt.Sprintf("ops-%d", i), telling)
			link := w.newLink(fmt.Sprintf("ops-again-%d", i), c.ID, "nobody-else", origin)
			link.Outbound = &telling
			w.NoError(w.s.PutLink(w.ctx, link))
		}
		w.recordAttempts(attempted(w.failing(), store.DeliveryFailed))
		w.postDeliveries()
		told := map[uuid.UUID]int{}
		for _, d := range w.takeDue(100, 100) {
			told[d.Connector.ID]++
		}
		w.Len(told, store.MaxTold)
		for _, times := range told {
			w.Equal(1, times)
		}
	})},
}
