// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

// failedOnce returns a delivery to a connector that has failed once and waits for hours.
func (w *world) failedOnce(c store.Connector) store.ConnectorRun {
	a := attempted(w.underWayTo(c), store.DeliveryRetry)
	a.Wait = 20 * time.Hour
	w.recordAttempts(a)
	w.Empty(w.takeDue(10, 10))
	return w.connectorRun(a.Delivery.ID)
}

func (w *world) recordAttempts(attempts ...store.Attempt) {
	w.NoError(w.s.RecordAttempts(w.ctx, attempts))
}

// retryNow replays a waiting delivery, which keeps its ID.
func (w *world) retryNow(d store.ConnectorRun, key *store.Idempotency, want store.Verdict) {
	a, err := replay.One(w.ctx, w.s, replayRules, d, key)
	w.NoError(err)
	w.Equal(store.Admission{Verdict: want, ConnectorRunID: d.ID, RunIDs: d.RunIDs}, a)
}

var hurryPromises = []promise{
	{"a replay of a waiting delivery makes its next attempt due", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		d := w.failedOnce(out)
		w.awaitHint(store.TopicDelivery, w.environment.ID, func() { w.retryNow(d, nil, store.Accepted) })
		w.retryNow(d, nil, store.Accepted) // it is due already
		_, due := w.listAttempts(d.Key())
		now := w.readClock()
		w.False(due.After(now))
		w.Len(w.deliveriesOf(out), 1)
		claimed := w.takeDue(10, 10)
		w.Len(claimed, 1)
		w.Equal(d.ID, claimed[0].Delivery.ID)
		w.Equal(2, claimed[0].Tries, "it is the third attempt of the schedule")
		w.refusedReplay(d.ID, replay.InProgress)
		w.recordAttempts(attempted(claimed[0], store.DeliveryDone))
		w.Equal(store.ConnectorRunCompleted, w.connectorRun(d.ID).Status)
		w.ErrorIs(errorOf(w.s.RetryDeliveryNow(w.ctx, d.Key(), nil)), store.ErrNotFound)
		_, err := replay.One(w.ctx, w.s, replayRules, d, nil)
		var r *replay.Refused
		w.ErrorAs(err, &r, "it has ended since it was read")
		w.Equal(replay.Changing, r.Reason)
		w.Len(w.deliveriesOf(out), 1)
	})},
	{"a delivery with a lost attempt is made due", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		d := w.underWayTo(out)
		w.updateRows(`UPDATE deliveries SET lease_until = 1, due_at = 1`)
		w.retryNow(w.connectorRun(d.Delivery.ID), nil, store.Accepted)
		w.Len(w.takeDue(10, 10), 1)
	})},
	{"a repeated request makes a delivery due once", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		d := w.failedOnce(out)
		w.retryNow(d, requestKey("1", "this"), store.Accepted)
		a := attempted(w.takeDue(10, 10)[0], store.DeliveryRetry)
		a.Wait = time.Hour
		w.recordAttempts(a)
		for range 2 {
			w.retryNow(d, requestKey("1", "this"), store.Repeated)
			again, err := w.s.RetryDeliveryNow(w.ctx, d.Key(), requestKey("1", "this"))
			w.NoError(err)
			w.Equal(store.Repeated, again.Verdict, "also with two at once")
			w.Empty(w.takeDue(10, 10))
		}
		other, err := w.s.RetryDeliveryNow(w.ctx, d.Key(), requestKey("1", "that"))
		w.NoError(err)
		w.Equal(store.KeyReused, other.Verdict)
		w.Empty(w.takeDue(10, 10))
		w.retryNow(d, requestKey("2", "this"), store.Accepted)
		w.refusedKey(d, "3")
	})},
	{"a delivery that waits with its connector is attempted", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		w.endEvents(store.BreakAfter)
		w.postDeliveries()
		var attempts []store.Attempt
		for _, d := range w.takeDue(store.BreakAfter, 100) {
			a := attempted(d, store.DeliveryRetry)
			a.Wait = 20 * time.Hour
			attempts = append(attempts, a)
		}
		w.recordAttempts(attempts...)
		w.Empty(w.takeDue(10, 100))
		all := w.deliveriesOf(out)
		for _, d := range all[:2] {
			w.retryNow(d, nil, store.Accepted)
		}
		claimed := w.takeDue(10, 100)
		w.Len(claimed, 1, "one at a time")
		w.recordAttempts(attempted(claimed[0], store.DeliveryDone))
		w.Len(w.takeDue(10, 100), 1, "and no others than the ones made due")
	})},
	{"a delivery made due is tried before other due ones", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		w.endEvents(store.BreakAfter)
		w.postDeliveries()
		var attempts []store.Attempt
		for _, d := range w.takeDue(store.BreakAfter, 100) {
			attempts = append(attempts, attempted(d, store.DeliveryRetry))
		}
		w.recordAttempts(attempts...)
		all := w.deliveriesOf(out)
		for i, d := range []int{2, 0, 2, 2, 4} {
			w.retryNow(all[d], nil, store.Accepted)
			claimed := w.takeDue(10, 100)
			w.Len(claimed, 1, "one at a time")
			w.Equal(all[d].ID, claimed[0].Delivery.ID, i)
			down := attempted(claimed[0], store.DeliveryRetry)
			down.Down = true
			w.recordAttempts(down)
			w.Empty(w.takeDue(10, 100))
		}
		w.retryNow(all[1], nil, store.Accepted)
		w.retryNow(all[3], nil, store.Accepted)
		w.retryNow(all[3], nil, store.Accepted)
		w.recordAttempts(attempted(w.takeDue(10, 100)[0], store.DeliveryDone))
		w.Equal(store.ConnectorRunCompleted, w.connectorRun(all[3].ID).Status)
		w.Len(w.takeDue(10, 100), 4)
	})},
	{"a delivery of a closed connector is not made due", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		d := w.failedOnce(out)
		w.updateRows(`UPDATE destinations SET paused_generation = 1, paused_reason = '410 Gone'`)
		for reason, change := range map[replay.Reason]func(*store.Connector){
			replay.Paused:   func(*store.Connector) {},
			replay.Disabled: func(c *store.Connector) { c.Enabled = false },
			replay.Retired:  func(c *store.Connector) { c.Retired = true },
		} {
			c := out
			change(&c)
			w.NoError(w.s.PutConnector(w.ctx, c))
			_, err := replay.One(w.ctx, w.s, replayRules, d, requestKey("1", "this"))
			var r *replay.Refused
			w.ErrorAs(err, &r)
			w.Equal(reason, r.Reason, r.Detail)
			_, due := w.listAttempts(d.Key())
			now := w.readClock()
			w.True(due.After(now))
		}
	})},
	{"an event is not made due", withAgent(func(w *world) {
		e := w.acceptEvent(w.singleEvent())
		for _, id := range []uuid.UUID{e.ConnectorRunID, newUUIDv7()} {
			w.ErrorIs(errorOf(w.s.RetryDeliveryNow(w.ctx, w.key(id), nil)), store.ErrNotFound)
		}
	})},
}

// refusedKey hurries a delivery with an attempt in progress, with a key that stays free.
func (w *world) refusedKey(d store.ConnectorRun, key string) {
	w.Len(w.takeDue(10, 10), 1)
	w.ErrorIs(errorOf(w.s.RetryDeliveryNow(w.ctx, d.Key(), requestKey(key, "this"))), store.ErrConflict)
	_, err := w.s.KnownRequest(w.ctx, store.Key{ProjectID: d.ProjectID, ID: d.ConnectorID}, *requestKey(key, "this"))
	w.ErrorIs(err, store.ErrNotFound)
}
