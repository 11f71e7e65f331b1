// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

// example is the payload of test deliveries.
const example = `{"type": "test"}`

// receiver returns an outbound connector without links.
func (w *world) receiver(name string) store.Connector {
	c := w.newConnector(name)
	c.Mode = "outbound"
	w.NoError(w.s.PutConnector(w.ctx, c))
	return c
}

// requestTest requests a test delivery.
func (w *world) requestTest(c store.Connector, key *store.Idempotency) (store.Admission, error) {
	return replay.Test(w.ctx, w.s, store.TestDelivery{Connector: c.Key(), Payload: json.RawMessage(example), Idempotency: key})
}

// testDelivery creates a test delivery.
func (w *world) testDelivery(c store.Connector) store.ConnectorRun {
	a, err := w.requestTest(c, nil)
	w.NoError(err)
	w.Equal(store.Accepted, a.Verdict)
	w.Empty(a.RunIDs)
	return w.connectorRun(a.ConnectorRunID)
}

// refusedTest requests a test delivery that must be rejected without leaving anything.
func (w *world) refusedTest(c store.Connector, reason replay.Reason) {
	before := w.allRows(c.ProjectID)
	_, err := w.requestTest(c, requestKey("refused", "this"))
	var r *replay.Refused
	w.ErrorAs(err, &r)
	w.Equal(reason, r.Reason, r.Detail)
	w.NotEmpty(r.Detail)
	w.Equal(before, w.allRows(c.ProjectID), reason)
}

var testDeliveryPromises = []promise{
	{"a test delivery is a delivery without a run", func(w *world) {
		c := w.receiver("results")
		var made store.ConnectorRun
		w.awaitHint(store.TopicDelivery, w.environment.ID, func() { made = w.testDelivery(c) })
		w.Equal(store.ConnectorRunPending, made.Status)
		w.Equal(store.TriggerOutbound, made.Trigger)
		w.Equal(store.DeliverTest, made.Kind)
		w.Equal(1, made.Hops)
		w.Empty(made.RunIDs)
		w.Nil(made.ReplayOf)
		d := w.takeDue(10, 10)[0]
		w.Equal(made.ID, d.Delivery.ID)
		w.Equal(c.ID, d.Connector.ID)
		w.Equal(store.DeliverTest, d.Kind)
		w.Equal(example, string(d.Payload))
		w.Equal(uuid.Nil, d.RunID)
		w.Equal(store.ConnectorRunRunning, w.connectorRun(made.ID).Status)
		a := attempted(d, store.DeliveryRetry)
		a.Wait = time.Hour
		w.recordAttempts(a)
		w.Empty(w.takeDue(10, 10))
		w.makeAllDue()
		w.recordAttempts(attempted(w.takeDue(10, 10)[0], store.DeliveryDone))
		ended := w.connectorRun(made.ID)
		w.Equal(store.ConnectorRunCompleted, ended.Status)
		w.Equal(store.DeliverTest, ended.Kind)
		w.Empty(ended.RunIDs)
		attempts, next := w.listAttempts(made.Key())
		w.Nil(next)
		w.Len(attempts, 2)
		w.Equal([]store.ConnectorRun{ended}, w.deliveriesOf(c))
		outcome, err := w.s.Outcome(w.ctx, made.Key())
		w.NoError(err)
		w.Empty(outcome.Runs)
		w.countAllStored()
		w.GreaterOrEqual(w.projectLoad().Stored, int64(3*512+len(example)), "it and its attempts count as stored")
	}},
	{"a failed test is not reported", func(w *world) {
		c := w.receiver("results")
		w.outboundFrom("nobody", "ops", telling)
		made := w.testDelivery(c)
		w.recordAttempts(attempted(w.takeDue(10, 10)[0], store.DeliveryFailed))
		w.Zero(w.postDeliveries())
		ended := w.connectorRun(made.ID)
		w.Equal(store.ConnectorRunFailed, ended.Status)
		w.Equal("given up", ended.Error)
		w.Empty(ended.RunIDs)
		w.Equal(1, w.troubled()[c.ID].Rejected)
		w.testDelivery(c)
		w.recordAttempts(attempted(w.takeDue(10, 10)[0], store.DeliveryDone))
		w.Empty(w.troubled(), "the connector's deliveries are sent")
		w.testDelivery(c)
		w.Equal(1, w.expireDeliveries(-time.Hour, 10))
		w.Zero(w.postDeliveries())
	}},
	{"a closed connector is not tested, with its reason", func(w *world) {
		c := w.receiver("results")
		w.testDelivery(c)
		w.recordAttempts(attempted(w.takeDue(10, 10)[0], store.DeliveryGone))
		w.refusedTest(c, replay.Paused)
		w.NoError(w.s.ResumeDestination(w.ctx, c.Key()))
		w.refusedTest(w.connector, replay.NotOutbound)
		for reason, change := range map[replay.Reason]func(*store.Connector){
			replay.Disabled: func(c *store.Connector) { c.Enabled = false },
			replay.Retired:  func(c *store.Connector) { c.Retired = true },
		} {
			other := c
			change(&other)
			w.NoError(w.s.PutConnector(w.ctx, other))
			w.refusedTest(c, reason)
		}
		w.NoError(w.s.PutConnector(w.ctx, c))
		w.countAllStored()
		limits := w.project.Limits
		w.project.Limits = store.ProjectLimits{Storage: 1}
		w.NoError(w.s.PutProject(w.ctx, w.project))
		w.refusedTest(c, replay.StorageFull)
		w.project.Limits = limits
		w.NoError(w.s.PutProject(w.ctx, w.project))
		unknown := c
		unknown.ID = uuid.New()
		_, err := w.requestTest(unknown, nil)
		w.ErrorIs(err, store.ErrNotFound)
		for _, id := range []uuid.UUID{unknown.ID, w.connector.ID} {
			w.ErrorIs(errorOf(w.s.SendTest(w.ctx, store.TestDelivery{Connector: w.key(id), Payload: json.RawMessage(example)})), store.ErrNotFound)
		}
	}},
	{"a delivery of a connector in another mode is not sent again", func(w *world) {
		c := w.receiver("results")
		made := w.testDelivery(c)
		w.recordAttempts(attempted(w.takeDue(10, 10)[0], store.DeliveryDone))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, c.Ref))
		c.Mode = "sync"
		c.Ref.ObjectUID = uuid.NewString()
		w.NoError(w.s.PutConnector(w.ctx, c))
		w.refusedReplay(made.ID, replay.NotOutbound)
	}},
	{"a waiting test is skipped once its connector is closed", func(w *world) {
		c := w.receiver("results")
		made := w.testDelivery(c)
		c.Enabled = false
		w.NoError(w.s.PutConnector(w.ctx, c))
		w.Empty(w.takeDue(10, 10))
		ended := w.connectorRun(made.ID)
		w.Equal(store.ConnectorRunSkipped, ended.Status)
		w.Contains(ended.Error, "disabled")
		w.Empty(ended.RunIDs)
	}},
	{"a repeated request is one test, also after changes", func(w *world) {
		c := w.receiver("results")
		first, err := w.requestTest(c, requestKey("1", "this"))
		w.NoError(err)
		disabled := c
		disabled.Enabled = false
		w.NoError(w.s.PutConnector(w.ctx, disabled))
		for body, verdict := range map[string]store.Verdict{"this": store.Repeated, "that": store.KeyReused} {
			again, err := w.requestTest(c, requestKey("1", body))
			w.NoError(err)
			w.Equal(verdict, again.Verdict)
			w.Equal(first.ConnectorRunID, again.ConnectorRunID)
			w.Empty(again.RunIDs)
		}
		again, err := w.s.SendTest(w.ctx, store.TestDelivery{Connector: c.Key(), Payload: json.RawMessage(example), Idempotency: requestKey("1", "this")})
		w.NoError(err)
		w.Equal(store.Repeated, again.Verdict, "also with two at once")
		w.Len(w.deliveriesOf(c), 1)
	}},
	{"a test is due at once even if others wait", func(w *world) {
		c := w.receiver("results")
		for range store.BreakAfter {
			w.testDelivery(c)
		}
		var attempts []store.Attempt
		for _, d := range w.takeDue(10, 10) {
			a := attempted(d, store.DeliveryRetry)
			a.Wait = 20 * time.Hour
			attempts = append(attempts, a)
		}
		w.recordAttempts(attempts...)
		w.Empty(w.takeDue(10, 10))
		made := w.testDelivery(c)
		claimed := w.takeDue(10, 10)
		w.Len(claimed, 1)
		w.Equal(made.ID, claimed[0].Delivery.ID)
	}},
	{"a bulk replay skips tests, a single replay sends them", func(w *world) {
		c := w.receiver("results")
		made := w.testDelivery(c)
		a := attempted(w.takeDue(10, 10)[0], store.DeliveryRetry)
		a.Wait = time.Hour
		w.recordAttempts(a)
		w.retryNow(w.connectorRun(made.ID), nil, store.Accepted)
		w.recordAttempts(attempted(w.takeDue(10, 10)[0], store.DeliveryFailed))
		n := w.newReplay(c, store.ConnectorRunFailed)
		w.requireNone(w.s.MatchReplay(w.ctx, c.Key(), n.Filter))
		page := w.originals(w.startReplay(n), 10)
		w.Empty(page.Originals)
		w.True(page.End)
		again := w.replayRun(made.ID)
		w.Equal(store.DeliverTest, again.Kind)
		w.Equal(1, again.Hops)
		w.Empty(again.RunIDs)
		w.Equal(example, string(w.takeDue(10, 10)[0].Payload))
	}},
	{"a test payload is JSON that fits in a row", func(w *world) {
		c := w.receiver("results")
		for payload, want := range map[string]error{
			`"` + strings.Repeat("x", store.MaxInlineInput-2) + `"`: nil, `"` + strings.Repeat("x", store.MaxInlineInput-1) + `"`: store.ErrTooLarge,
			`{`: store.ErrInvalid, ``: store.ErrInvalid,
		} {
			w.ErrorIs(errorOf(w.s.SendTest(w.ctx, store.TestDelivery{Connector: c.Key(), Payload: json.RawMessage(payload)})), want)
		}
		w.Len(w.deliveriesOf(c), 1)
	}},
}
