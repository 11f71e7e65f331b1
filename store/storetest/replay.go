// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

// keyless evaluates no expression.
func keyless([]byte) func(string) (string, error) {
	return func(string) (string, error) { return "", store.ErrInvalid }
}

// replayRules are the rules of replays in these tests.
var replayRules = replay.Rules{Evaluate: keyless, RequiresFiles: connector.RequiresFiles}

// connectorRun returns an event or a delivery in its current state.
func (w *world) connectorRun(id uuid.UUID) store.ConnectorRun {
	run, err := w.s.ConnectorRun(w.ctx, w.key(id))
	w.NoError(err)
	return run
}

// replayRun replays a connector run that can be replayed.
func (w *world) replayRun(id uuid.UUID) store.ConnectorRun {
	a, err := replay.One(w.ctx, w.s, replayRules, asEnded(w.connectorRun(id)), nil)
	w.NoError(err)
	w.Equal(store.Accepted, a.Verdict)
	again := w.connectorRun(a.ConnectorRunID)
	w.Equal(a.RunIDs, again.RunIDs)
	w.Equal(id, *again.ReplayOf)
	return again
}

// asEnded returns a connector run as ended, for tests that do not depend on its end.
func asEnded(run store.ConnectorRun) store.ConnectorRun {
	if run.EndedAt == nil {
		run.EndedAt = &run.StartedAt
	}
	return run
}

// refusedReplay replays a connector run that cannot be replayed, and checks that nothing is left.
func (w *world) refusedReplay(id uuid.UUID, code replay.Reason) {
	before, original := w.allRows(w.project.ID), w.connectorRun(id)
	if code != replay.InProgress {
		original = asEnded(original)
	}
	_, err := replay.One(w.ctx, w.s, replayRules, original, nil)
	var r *replay.Refused
	w.ErrorAs(err, &r)
	w.Equal(code, r.Reason, r.Detail)
	w.Equal(before, w.allRows(w.project.ID), code)
}

// requestKey returns the idempotency key of a request with a body.
func requestKey(key, body string) *store.Idempotency {
	return &store.Idempotency{Key: "replay:" + key, Fingerprint: []byte(body), TTL: time.Hour}
}

// completedDelivery returns a completed delivery to a connector.
func (w *world) completedDelivery(c store.Connector) store.ConnectorRun {
	d := w.underWayTo(c)
	w.recordAttempts(attempted(d, store.DeliveryDone))
	return w.connectorRun(d.Delivery.ID)
}

var replayPromises = []promise{
	{"an open connector run is not replayed", withAgents(func(w *world) {
		e := w.acceptEvent(w.event())
		w.refusedReplay(e.ConnectorRunID, replay.InProgress)
		d := w.underWayTo(w.outboundTo("results", automatic))
		w.refusedReplay(d.Delivery.ID, replay.InProgress)
	})},
	{"a replayed event starts runs of the current links", func(w *world) {
		w.deploy("one", "first", "second", "third")
		e := w.event()
		beyond := w.storedFile("c", "beyond")
		beyond.Reason = store.FileBeyondReview
		e.Files = []store.File{w.storedFile("a", "attached"), {Name: "b", Reason: store.FileTooLarge}, beyond}
		e.Headers = map[string]string{"x-github-event": "push"}
		w.accept(&e)
		for _, run := range w.claim(2, lease) {
			w.NoError(w.complete(store.Completion{Lease: leaseOf(run), Status: store.RunFailed, Error: "no"}))
		}
		original := w.connectorRun(e.ConnectorRunID)
		w.Nil(original.ReplayOf)
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.links[0].Ref))
		third := w.newLink("orders-third", w.connector.ID, "third", origin.Add(time.Hour))
		w.NoError(w.s.PutLink(w.ctx, third))
		again := w.replayRun(e.ConnectorRunID)
		w.Equal(original.Trigger, again.Trigger)
		w.Len(again.RunIDs, 2)
		for i, agent := range []string{"second", "third"} {
			run := w.run(again.RunIDs[i])
			w.Equal(agent, run.AgentName)
			w.Equal(store.ClassDeferred, run.Class)
			contentType, body, err := w.s.RunInput(w.ctx, run.Key())
			w.Equal(string(e.Input), string(w.readAll(body, err)))
			w.Equal(e.ContentType, contentType)
			headers, err := w.s.RunHeaders(w.ctx, run.Key())
			w.NoError(err)
			w.Equal(e.Headers, headers)
			file, content, err := w.s.OpenRunFile(w.ctx, run.Key(), 0)
			w.Equal("attached", string(w.readAll(content, err)))
			w.NotEqual(e.Files[0].Blob, file.Blob, "a copy")
			w.Equal(e.Files[1], w.runFiles(run.Key())[1])
		}
		for _, run := range w.claim(2, lease) {
			w.NoError(w.complete(completed(run)))
		}
		ended := w.connectorRun(again.ID)
		w.Equal(store.ConnectorRunCompleted, ended.Status)
		w.Equal(e.ConnectorRunID, *ended.ReplayOf)
		w.Equal(original, w.connectorRun(e.ConnectorRunID))
		w.Equal(ended.ID, *w.replayRun(ended.ID).ReplayOf, "a replay can be replayed")
		runs, total := w.listConnectorRuns(store.ConnectorRunQuery{Connector: w.connector.Key(), Limit: 10})
		w.EqualValues(3, total)
		w.Equal(e.ConnectorRunID, *runs[1].ReplayOf)
	}},
	{"a large input is copied, and the copy is kept", func(w *world) {
		e, blob := w.singleEvent(), newUUIDv7()
		large := bytes.Repeat([]byte("x"), 2*store.BlobChunk+1)
		w.NoError(errorOf(w.s.PutBlob(w.ctx, w.key(blob), bytes.NewReader(large))))
		e.Input, e.InputBlob = nil, &blob
		w.accept(&e)
		again := w.replayRun(e.ConnectorRunID)
		in, err := w.s.EventInput(w.ctx, again.Key())
		w.NoError(err)
		w.Nil(in.Data)
		w.NotEqual(blob, *in.Blob)
		body, err := w.s.OpenBlob(w.ctx, w.key(*in.Blob))
		w.Equal(large, w.readAll(body, err))
		w.ErrorIs(w.s.DropBlob(w.ctx, w.key(*in.Blob)), store.ErrConflict)
		w.ErrorIs(w.s.DropBlob(w.ctx, w.key(blob)), store.ErrConflict)
		w.EqualValues(len(large), w.projectLoad().Backlog[w.environment.ID].Input/2)
	}},
	{"an event without a stored input is rejected", func(w *world) {
		skipped := w.event()
		skipped.Runs, skipped.Input, skipped.Skipped = nil, nil, "not now"
		e := w.singleEvent()
		e.Files = []store.File{w.storedFile("a", "attached"), w.storedFile("b", "gone")}
		w.accept(&skipped, &e)
		w.refusedReplay(skipped.ConnectorRunID, replay.Gone)
		for _, statement := range []string{
			`DELETE FROM blob_chunks WHERE project_id = $1 AND blob_id = $2`, `DELETE FROM blobs WHERE project_id = $1 AND id = $2`,
		} {
			w.execStatement(statement, w.project.ID.String(), e.Files[1].Blob.String())
		}
		w.refusedReplay(e.ConnectorRunID, replay.Gone)
		w.updateRows(`DELETE FROM inputs`)
		w.refusedReplay(e.ConnectorRunID, replay.Gone)
		w.ErrorIs(errorOf(w.s.EventInput(w.ctx, w.key(e.ConnectorRunID))), store.ErrNotFound)
	}},
	{"an event is rejected if the connector is closed or a limit is reached", withAgent(func(w *world) {
		w.endEvents(1)
		w.countStored(10)
		e := w.acceptEvent(w.singleEvent())
		limits := w.project.Limits
		for code, narrow := range map[replay.Reason]store.ProjectLimits{
			replay.BacklogFull: {BacklogRuns: 1}, replay.StorageFull: {Storage: 1},
		} {
			w.project.Limits = narrow
			w.NoError(w.s.PutProject(w.ctx, w.project))
			w.refusedReplay(e.ConnectorRunID, code)
		}
		w.project.Limits = limits
		w.NoError(w.s.PutProject(w.ctx, w.project))
		w.connector.Enabled = false
		w.NoError(w.s.PutConnector(w.ctx, w.connector))
		w.refusedReplay(e.ConnectorRunID, replay.Disabled)
		w.connector.Retired = true
		w.NoError(w.s.PutConnector(w.ctx, w.connector))
		w.refusedReplay(e.ConnectorRunID, replay.Retired)
		w.connector.Enabled, w.connector.Retired = true, false
		w.NoError(w.s.PutConnector(w.ctx, w.connector))
		for _, link := range w.links {
			w.NoError(w.s.Remove(w.ctx, w.project.ID, link.Ref))
		}
		w.refusedReplay(e.ConnectorRunID, replay.NoAgent)
	})},
	{"a link that requires files gets them again, or its run fails again", withAgents(func(w *world) {
		link := w.links[0]
		link.FilesRequired = true
		w.NoError(w.s.PutLink(w.ctx, link))
		e := w.acceptEvent(w.event())
		again := w.replayRun(e.ConnectorRunID)
		w.Equal(runerror.FilesRequired, w.run(again.RunIDs[0]).ErrorCode)
		w.Equal(store.RunQueued, w.run(again.RunIDs[1]).Status)
		w.connector.Config = json.RawMessage(`{"files_required":true}`)
		w.NoError(w.s.PutConnector(w.ctx, w.connector))
		again = w.replayRun(e.ConnectorRunID)
		w.Equal(runerror.FilesRequired, w.run(again.RunIDs[1]).ErrorCode, "the connector requires files")
	})},
	{"a repeated request is one replay, also after changes", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		delivered := w.completedDelivery(out)
		e := w.acceptEvent(w.singleEvent())
		for _, original := range []store.ConnectorRun{asEnded(w.connectorRun(e.ConnectorRunID)), delivered} {
			first, err := replay.One(w.ctx, w.s, replayRules, original, requestKey("1", "this"))
			w.NoError(err)
			w.Equal(store.Accepted, first.Verdict)
			for _, c := range []store.Connector{w.connector, out} {
				c.Enabled = false
				w.NoError(w.s.PutConnector(w.ctx, c))
			}
			again, err := replay.One(w.ctx, w.s, replayRules, original, requestKey("1", "this"))
			w.NoError(err)
			w.Equal(store.Repeated, again.Verdict)
			w.Equal(first.ConnectorRunID, again.ConnectorRunID)
			other, err := replay.One(w.ctx, w.s, replayRules, original, requestKey("1", "that"))
			w.NoError(err)
			w.Equal(store.KeyReused, other.Verdict)
			for _, c := range []store.Connector{w.connector, out} {
				w.NoError(w.s.PutConnector(w.ctx, c))
			}
		}
		again, err := w.s.Redeliver(w.ctx, store.Redelivery{Of: delivered.Key(), Idempotency: requestKey("1", "this")})
		w.NoError(err)
		w.Equal(store.Repeated, again.Verdict, "also with two at once")
		w.updateRows(`UPDATE idempotency_keys SET expires_at = 1`)
		w.ErrorIs(errorOf(w.s.KnownRequest(w.ctx, out.Key(), *requestKey("1", "this"))), store.ErrNotFound)
		again, err = w.s.Redeliver(w.ctx, store.Redelivery{Of: delivered.Key(), Idempotency: requestKey("1", "this")})
		w.NoError(err)
		w.Equal(store.Accepted, again.Verdict)
	})},
	{"a delivery is created again with a new ID, due at once", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		original := w.completedDelivery(out)
		attempts, _ := w.listAttempts(original.Key())
		for range 2 { // also without the link
			var again store.ConnectorRun
			w.awaitHint(store.TopicDelivery, w.environment.ID, func() { again = w.replayRun(original.ID) })
			w.NotEqual(original.ID, again.ID)
			w.Equal(store.ConnectorRunPending, again.Status)
			w.Equal(store.TriggerOutbound, again.Trigger)
			claimed := w.takeDue(10, 10)
			w.Len(claimed, 1)
			w.Equal(again.ID, claimed[0].Delivery.ID)
			w.Equal(original.RunIDs[0], claimed[0].Run.ID)
			w.Equal("done", claimed[0].Run.Output)
			w.Equal(1, claimed[0].Attempt)
			w.recordAttempts(attempted(claimed[0], store.DeliveryDone))
			w.Equal(original.ID, *w.connectorRun(again.ID).ReplayOf)
			if _, err := w.s.Holder(w.ctx, w.key(claimed[0].LinkID)); err == nil {
				w.NoError(w.s.Remove(w.ctx, w.project.ID, objectRef(store.KindConnectorLink, "results-first")))
			}
		}
		w.Equal(original, w.connectorRun(original.ID))
		unchanged, _ := w.listAttempts(original.Key())
		w.Equal(attempts, unchanged)
	})},
	{"a delivery that would not be sent is rejected", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		original := w.completedDelivery(out)
		gone := attempted(w.underWayTo(out), store.DeliveryGone)
		gone.Reason = "410 Gone"
		w.recordAttempts(gone)
		w.refusedReplay(original.ID, replay.Paused)
		w.NoError(w.s.ResumeDestination(w.ctx, out.Key()))
		disabled := out
		disabled.Enabled = false
		w.NoError(w.s.PutConnector(w.ctx, disabled))
		w.refusedReplay(original.ID, replay.Disabled)
		w.NoError(w.s.PutConnector(w.ctx, out))
		w.replayRun(gone.Delivery.ID)
		w.updateRows(`DELETE FROM ended_runs`)
		w.refusedReplay(original.ID, replay.Gone)
		e := w.acceptEvent(w.singleEvent())
		for _, id := range []uuid.UUID{e.ConnectorRunID, newUUIDv7()} {
			w.ErrorIs(errorOf(w.s.Redeliver(w.ctx, store.Redelivery{Of: w.key(id)})), store.ErrNotFound)
		}
	})},
	{"a skipped delivery is replayed once its connector sends again", withAgent(func(w *world) {
		out := w.outboundTo("results", automatic)
		disabled := out
		disabled.Enabled = false
		w.NoError(w.s.PutConnector(w.ctx, disabled))
		w.endEvents(1)
		w.postDeliveries()
		skipped := w.deliveriesOf(out)[0]
		w.Equal(store.ConnectorRunSkipped, skipped.Status)
		w.True(strings.Contains(skipped.Error, "disabled"))
		w.NoError(w.s.PutConnector(w.ctx, out))
		w.replayRun(skipped.ID)
		w.Len(w.takeDue(10, 10), 1)
	})},
	{"a sent payload is sent again unchanged, also during the run", withAgent(func(w *world) {
		w.outboundTo("results", toolPolicy("tell"))
		run := w.sending(2)
		large := `"` + strings.Repeat("x", store.MaxInlineInput) + `"`
		for i, payload := range []string{`{"n": 1}`, large} {
			sent := w.sendPayload(payloadOf(run, "tell", int64(i+1), payload))
			w.recordAttempts(attempted(w.takeDue(10, 10)[0], store.DeliveryFailed))
			again := w.replayRun(sent.DeliveryID)
			d := w.takeDue(10, 10)[0]
			w.Equal(again.ID, d.Delivery.ID)
			w.Equal(store.DeliverPayload, d.Kind)
			if d.PayloadBlob != nil {
				body, err := w.s.OpenBlob(w.ctx, w.key(*d.PayloadBlob))
				d.Payload = w.readAll(body, err)
				w.ErrorIs(w.s.DropBlob(w.ctx, w.key(*d.PayloadBlob)), store.ErrConflict)
			}
			w.Equal(payload, string(d.Payload))
			w.recordAttempts(attempted(d, store.DeliveryDone))
			w.Equal(run.Run.ID, w.connectorRun(again.ID).RunIDs[0])
		}
	})},
	{"a replayed failure notice that fails is not reported", withAgent(func(w *world) {
		w.outboundTo("results", automatic)
		w.outboundFrom("nobody", "ops", telling)
		w.recordAttempts(attempted(w.failing(), store.DeliveryFailed))
		w.postDeliveries()
		word := w.takeDue(10, 10)[0]
		w.recordAttempts(attempted(word, store.DeliveryFailed))
		w.replayRun(word.Delivery.ID)
		again := w.takeDue(10, 10)[0]
		w.Equal(store.DeliverFailure, again.Kind)
		w.Equal(string(word.Payload), string(again.Payload))
		w.recordAttempts(attempted(again, store.DeliveryFailed))
		w.Zero(w.postDeliveries())
	})},
}
