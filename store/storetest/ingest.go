// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

var ingestPromises = []promise{
	{"an accepted event is a connector run with a run per link", func(w *world) {
		e := w.event()
		admissions := w.tryAccept(e)
		before := e
		stamped(&e, admissions[0])
		w.Equal(store.TailOf(before.ConnectorRunID), store.TailOf(e.ConnectorRunID))
		w.Equal(store.TailOf(before.Runs[1].ID), store.TailOf(e.Runs[1].ID))
		ids := []uuid.UUID{e.Runs[0].ID, e.Runs[1].ID}
		w.Equal([]store.Admission{{Verdict: store.Accepted, ConnectorRunID: e.ConnectorRunID, RunIDs: ids}}, admissions)
		run := w.run(ids[0])
		w.Equal(store.RunQueued, run.Status)
		w.Equal(run.QueuedAt.Truncate(time.Millisecond), store.TimeOf(run.ID), "IDs have the database's time")
		w.Equal(w.project.ID, run.ProjectID)
		w.Equal(w.environment.ID, run.EnvironmentID)
		w.Equal("first", run.AgentName)
		w.Equal(e.ConnectorID, *run.ConnectorID)
		w.Equal(e.ConnectorRunID, *run.ConnectorRunID)
		w.Equal(e.Runs[0].LinkID, *run.LinkID)
		w.Nil(run.DeploymentID)
		connectorRun := w.connectorRun(e.ConnectorRunID)
		w.Equal(store.ConnectorRunRunning, connectorRun.Status)
		w.Equal(store.TriggerWebhook, connectorRun.Trigger)
		w.Equal(ids, connectorRun.RunIDs)
		w.Nil(connectorRun.EndedAt)
	}},
	{"events of one call have results in order", func(w *world) {
		events := []store.Event{w.event(), w.singleEvent(), w.event()}
		events[1].ConnectorVersion++
		admissions := w.tryAccept(events...)
		w.Equal(store.Accepted, admissions[0].Verdict)
		w.Equal(store.Outdated, admissions[1].Verdict)
		w.Equal(store.Accepted, admissions[2].Verdict)
		w.Equal(store.TailOf(events[2].ConnectorRunID), store.TailOf(admissions[2].ConnectorRunID))
		w.ErrorIs(errorOf(w.s.ConnectorRun(w.ctx, w.key(events[1].ConnectorRunID))), store.ErrNotFound, "nothing was written")
	}},
	{"an event for a deleted connector is outdated", func(w *world) {
		e := w.event()
		e.ConnectorID = uuid.New()
		w.Equal(store.Outdated, w.tryAccept(e)[0].Verdict)
	}},
	{"an event with an expired secret is outdated", func(w *world) {
		events := []store.Event{w.event(), w.singleEvent(), w.event()}
		route := w.readRoute(w.connector.Key())
		before, after := route.Connector.UpdatedAt, route.Connector.UpdatedAt.Add(time.Hour) // by the database's clock
		events[1].SecretNotAfter, events[2].SecretNotAfter = &before, &after
		admissions := w.tryAccept(events...)
		w.Equal(store.Accepted, admissions[0].Verdict)
		w.Equal(store.Outdated, admissions[1].Verdict)
		w.Equal(store.Accepted, admissions[2].Verdict)
		w.ErrorIs(errorOf(w.s.ConnectorRun(w.ctx, w.key(events[1].ConnectorRunID))), store.ErrNotFound, "nothing was written")
	}},
	{"an invalid event fails only itself", func(w *world) {
		bad := w.event()
		bad.Idempotency = &store.Idempotency{Key: strings.Repeat("k", 301), TTL: time.Hour}
		events := []store.Event{w.event(), bad, w.event()}
		admissions := w.tryAccept(events...)
		w.NoError(admissions[0].Err)
		w.Error(admissions[1].Err)
		w.NoError(admissions[2].Err)
		stamped(&events[0], admissions[0])
		stamped(&events[2], admissions[2])
		w.Equal(store.RunQueued, w.run(events[0].Runs[0].ID).Status)
		w.Equal(store.RunQueued, w.run(events[2].Runs[1].ID).Status)
		w.ErrorIs(errorOf(w.s.ConnectorRun(w.ctx, w.key(bad.ConnectorRunID))), store.ErrNotFound, "nothing of it was written")
		w.ErrorIs(errorOf(w.s.Run(w.ctx, w.key(bad.Runs[0].ID))), store.ErrNotFound)
	}},
	{"a run that cannot start is recorded as failed", withAgents(func(w *world) {
		e := w.event()
		e.Runs[0].ErrorCode, e.Runs[0].Error = runerror.FilesRequired, "the agent needs files"
		w.accept(&e)
		failed := w.run(e.Runs[0].ID)
		w.Equal(store.RunFailed, failed.Status)
		w.Equal(runerror.FilesRequired, failed.ErrorCode)
		w.Equal("the agent needs files", failed.Error)
		w.NotNil(failed.EndedAt)
		claimed := w.claim(10, lease)
		w.Len(claimed, 1)
		w.NoError(w.complete(completed(claimed[0])))
		w.Equal(store.ConnectorRunFailed, w.outcome(e.ConnectorRunID).Status)

		alone := w.singleEvent()
		alone.Runs[0].ErrorCode, alone.Runs[0].Error = runerror.FilesRequired, "the agent needs files"
		w.accept(&alone)
		w.Equal(store.ConnectorRunFailed, w.outcome(alone.ConnectorRunID).Status, "it has ended")
	})},
	{"an incomplete input is rejected", func(w *world) {
		e, blob := w.event(), uuid.New()
		e.InputBlob = &blob
		admissions := w.tryAccept(w.event(), e)
		w.NoError(admissions[0].Err)
		w.Error(admissions[1].Err)
		w.ErrorIs(errorOf(w.s.ConnectorRun(w.ctx, w.key(e.ConnectorRunID))), store.ErrNotFound)
	}},
	{"text of any bytes is stored", withAgent(func(w *world) {
		e := w.singleEvent()
		e.ContentType = "text/plain\x00\xff"
		w.accept(&e)
		claimed := w.claim(1, lease)
		w.Len(claimed, 1)
		done := completed(claimed[0])
		done.Output, done.Error = "a\x00b\xff", "\xfe"
		w.NoError(w.complete(done))
		w.Contains(w.run(e.Runs[0].ID).Output, "a")
	})},
	{"an event without links completes at once", func(w *world) {
		e := w.event()
		e.Runs = nil
		w.accept(&e)
		w.Equal(store.ConnectorRunCompleted, w.outcome(e.ConnectorRunID).Status)
	}},
	{"inputs are stored as bytes", func(w *world) {
		e := w.event()
		e.Input = []byte{0, 255, 1}
		w.accept(&e)
		kind, body, err := w.s.RunInput(w.ctx, w.key(e.Runs[0].ID))
		w.Equal(e.Input, w.readAll(body, err))
		w.Equal(e.ContentType, kind)

		large, blob := bytes.Repeat([]byte("x"), store.BlobChunk+1), uuid.New()
		w.NoError(errorOf(w.s.PutBlob(w.ctx, w.key(blob), bytes.NewReader(large))))
		e = w.event()
		e.Input, e.InputBlob = nil, &blob
		w.accept(&e)
		_, body, err = w.s.RunInput(w.ctx, w.key(e.Runs[0].ID))
		w.True(bytes.Equal(large, w.readAll(body, err)))
	}},
	{"a repeated key returns the first request's rows", func(w *world) {
		first, second := w.keyedEvent("key:1", "body"), w.keyedEvent("key:1", "body")
		w.accept(&first)
		want := store.Admission{
			Verdict: store.Repeated, ConnectorRunID: first.ConnectorRunID,
			RunIDs: []uuid.UUID{first.Runs[0].ID, first.Runs[1].ID},
		}
		w.Equal([]store.Admission{want}, w.tryAccept(second))
		w.ErrorIs(errorOf(w.s.ConnectorRun(w.ctx, w.key(second.ConnectorRunID))), store.ErrNotFound)
	}},
	{"a key belongs to one body", func(w *world) {
		w.acceptEvent(w.keyedEvent("key:1", "body"))
		w.Equal(store.KeyReused, w.tryAccept(w.keyedEvent("key:1", "another"))[0].Verdict)
		unnamed := w.keyedEvent("webhook-id:1", "")
		unnamed.Idempotency.Fingerprint = nil
		w.accept(&unnamed)
		again := w.keyedEvent("webhook-id:1", "")
		again.Idempotency.Fingerprint = nil
		w.Equal(store.Repeated, w.tryAccept(again)[0].Verdict, "without fingerprints bodies are not compared")
	}},
	{"a key twice in one call is repeated", func(w *world) {
		first, second := w.keyedEvent("key:1", "body"), w.keyedEvent("key:1", "body")
		admissions := w.tryAccept(first, second)
		w.Equal(store.Accepted, admissions[0].Verdict)
		w.Equal(store.Repeated, admissions[1].Verdict)
		w.Equal(admissions[0].ConnectorRunID, admissions[1].ConnectorRunID)
		w.Equal(admissions[0].RunIDs, admissions[1].RunIDs)
	}},
	{"a key expires", func(w *world) {
		first := w.keyedEvent("key:1", "body")
		first.Idempotency.TTL = expired
		w.accept(&first)
		w.acceptEvent(w.keyedEvent("key:1", "another"))
		over := w.keyedEvent("key:2", "body")
		over.Idempotency.TTL = expired
		w.accept(&over)
		w.Equal(1, w.sweepExpired(100))
	}},
}

// keyedEvent returns an event with an idempotency key.
func (w *world) keyedEvent(key, body string) store.Event {
	e := w.event()
	e.Idempotency = &store.Idempotency{Key: key, Fingerprint: []byte(body), TTL: time.Hour}
	return e
}
