// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

var carriedPromises = []promise{
	{"a delivery has its kind, open and ended", withAgent(func(w *world) {
		w.outboundTo("results", automatic)
		w.outboundFrom("nobody", "ops", telling)
		failed := w.failing()
		w.carries(failed.Delivery.ID, store.DeliverResult)
		w.recordAttempts(attempted(failed, store.DeliveryFailed))
		w.carries(failed.Delivery.ID, store.DeliverResult)
		w.postDeliveries()
		word := w.takeDue(10, 10)[0]
		w.carries(word.Delivery.ID, store.DeliverFailure)
		w.recordAttempts(attempted(word, store.DeliveryDone))
		w.carries(word.Delivery.ID, store.DeliverFailure)
		e := w.acceptEvent(w.singleEvent())
		w.carries(e.ConnectorRunID, "")
		for _, run := range w.claim(1, lease) {
			w.NoError(w.complete(completed(run)))
		}
		w.carries(e.ConnectorRunID, "")
	})},
	{"a skipped result has its kind", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		out.Enabled = false
		w.NoError(w.s.PutConnector(w.ctx, out))
		w.endEvents(1)
		w.postDeliveries()
		w.carries(w.deliveriesOf(out)[0].ID, store.DeliverResult)
	})},
	{"deliveries are found by their run", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		ended := w.failing()
		w.recordAttempts(attempted(ended, store.DeliveryDone))
		open := w.failing()
		for _, d := range []store.ClaimedDelivery{ended, open} {
			for connector, want := range map[store.Key]uuid.UUID{out.Key(): d.Delivery.ID, w.connector.Key(): *w.run(d.RunID).ConnectorRunID} {
				runs, total := w.listConnectorRuns(store.ConnectorRunQuery{Connector: connector, Run: d.RunID, Limit: 10})
				w.EqualValues(1, total)
				w.Equal(want, runs[0].ID)
			}
		}
		_, total := w.listConnectorRuns(store.ConnectorRunQuery{Connector: out.Key(), Run: newUUIDv7(), Limit: 10})
		w.Zero(total)
		stranger := store.Key{ProjectID: newUUIDv7(), ID: w.connector.ID}
		_, total = w.listConnectorRuns(store.ConnectorRunQuery{Connector: stranger, Run: open.RunID, Limit: 10})
		w.Zero(total)
	})},
	{"connector runs of a run are filtered and paged like other lists", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		first := w.failing()
		w.recordAttempts(attempted(first, store.DeliveryFailed))
		all := []uuid.UUID{first.Delivery.ID}
		for range 2 {
			w.replayRun(all[len(all)-1])
			again := w.takeDue(10, 10)[0]
			all = append(all, again.Delivery.ID)
			if len(all) == 2 {
				w.recordAttempts(attempted(again, store.DeliveryDone))
			}
		}
		slices.Reverse(all)
		for what, c := range map[string]struct {
			narrow func(q *store.ConnectorRunQuery)
			want   []uuid.UUID
			total  int64
		}{
			"all":             {func(*store.ConnectorRunQuery) {}, all, 3},
			"the first page":  {func(q *store.ConnectorRunQuery) { q.Limit = 2 }, all[:2], 3},
			"the second page": {func(q *store.ConnectorRunQuery) { q.Limit, q.Offset = 2, 2 }, all[2:], 3},
			"beyond":          {func(q *store.ConnectorRunQuery) { q.Offset = 3 }, nil, 3},
			"open":            {func(q *store.ConnectorRunQuery) { q.Statuses = []store.ConnectorRunStatus{store.ConnectorRunRunning} }, all[:1], 1},
			"done":            {func(q *store.ConnectorRunQuery) { q.Statuses = []store.ConnectorRunStatus{store.ConnectorRunCompleted} }, all[1:2], 1},
			"failed":          {func(q *store.ConnectorRunQuery) { q.Statuses = []store.ConnectorRunStatus{store.ConnectorRunFailed} }, all[2:], 1},
			"open or failed": {func(q *store.ConnectorRunQuery) {
				q.Statuses = []store.ConnectorRunStatus{store.ConnectorRunFailed, store.ConnectorRunRunning}
			}, []uuid.UUID{all[0], all[2]}, 2},
			"of a cause":  {func(q *store.ConnectorRunQuery) { q.Trigger = store.TriggerOutbound }, all, 3},
			"of another":  {func(q *store.ConnectorRunQuery) { q.Trigger = store.TriggerWebhook }, nil, 0},
			"of a period": {func(q *store.ConnectorRunQuery) { q.Since = time.Hour }, all, 3},
		} {
			q := store.ConnectorRunQuery{Connector: out.Key(), Run: first.RunID, Limit: 10}
			c.narrow(&q)
			runs, total := w.listConnectorRuns(q)
			w.Equal(c.total, total, what)
			var got []uuid.UUID
			for _, run := range runs {
				w.Equal(w.connectorRun(run.ID), run, what)
				got = append(got, run.ID)
			}
			w.Equal(c.want, got, what)
		}
	})},
	{"a sent payload stays a payload, whatever its content", withAgent(func(w *world) {
		w.outboundTo("results", toolPolicy("tell"))
		w.outboundFrom("nobody", "ops", telling)
		run := w.sending(1)
		sent := w.sendPayload(payloadOf(run, "tell", 1, `{"type": "delivery_failed"}`))
		w.carries(sent.DeliveryID, store.DeliverPayload)
		w.recordAttempts(attempted(w.takeDue(10, 10)[0], store.DeliveryFailed))
		w.carries(sent.DeliveryID, store.DeliverPayload)
		w.Equal(1, w.postDeliveries(), "which is reported")
		w.recordAttempts(attempted(w.takeDue(10, 10)[0], store.DeliveryDone))
		w.replayRun(sent.DeliveryID)
		again := w.takeDue(10, 10)[0]
		w.Equal(store.DeliverPayload, again.Kind)
		w.recordAttempts(attempted(again, store.DeliveryFailed))
		w.updateRows(`UPDATE outbox SET posted_at = 1`) // a minute later
		w.Equal(1, w.postDeliveries(), "also of the replay")
	})},
}

// carries checks the kind of a connector run, read individually and in lists.
func (w *world) carries(id uuid.UUID, kind store.DeliveryKind) {
	run := w.connectorRun(id)
	w.Equal(kind, run.Kind)
	runs, _ := w.listConnectorRuns(store.ConnectorRunQuery{Connector: store.Key{ProjectID: run.ProjectID, ID: run.ConnectorID}, Limit: 100})
	for _, listed := range runs {
		if listed.ID == id {
			w.Equal(run, listed)
			return
		}
	}
	w.Failf("it is not listed", "%s", id)
}
