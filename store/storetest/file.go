// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// storedFile returns an accepted file with a text, whose blob is stored.
func (w *world) storedFile(name, text string) store.File {
	blob := newUUIDv7()
	w.NoError(errorOf(w.s.PutBlob(w.ctx, w.key(blob), strings.NewReader(text))))
	return store.File{Name: name, FieldName: "photo", MIMEType: "text/plain", Size: int64(len(text)), Blob: &blob}
}

var filePromises = []promise{
	{"files are recorded with their event", withAgents(func(w *world) {
		e := w.event()
		one, other := w.storedFile("a \"b\" <ä>", "first text"), w.storedFile("", "")
		omitted := store.File{Name: "c", FieldName: "files", Reason: store.FileUnsupported}
		other.Reason = store.FileBeyondReview // its content is stored nevertheless
		e.Files = []store.File{one, omitted, other}
		w.accept(&e)
		for range 2 { // first with open runs, then with ended runs
			w.Equal(e.Files, w.eventFiles(w.key(e.ConnectorRunID)))
			for _, run := range e.Runs {
				w.Equal(e.Files, w.runFiles(w.key(run.ID)))
				got, body, err := w.s.OpenRunFile(w.ctx, w.key(run.ID), 0)
				w.Equal("first text", string(w.readAll(body, err)))
				w.Equal(one, got)
				_, body, err = w.s.OpenRunFile(w.ctx, w.key(run.ID), 1)
				w.Empty(w.readAll(body, err), "omitted files have no number")
				for _, number := range []int{-1, 2} {
					_, _, err = w.s.OpenRunFile(w.ctx, w.key(run.ID), number)
					w.ErrorIs(err, store.ErrNotFound)
				}
			}
			w.ErrorIs(w.s.DropBlob(w.ctx, w.key(*one.Blob)), store.ErrConflict, "it is kept")
			for _, c := range w.claim(2, lease) {
				w.True(c.Files)
				w.NoError(w.complete(completed(c)))
			}
		}
	})},
	{"an event without files has none", withAgent(func(w *world) {
		e := w.acceptEvent(w.singleEvent())
		w.requireNone(w.s.EventFiles(w.ctx, w.key(e.ConnectorRunID)))
		w.Empty(w.runFiles(w.key(e.Runs[0].ID)))
		w.False(w.claim(1, lease)[0].Files)
		w.Empty(w.eventFiles(w.key(newUUIDv7())))
		w.ErrorIs(errorOf(w.s.RunFiles(w.ctx, w.key(newUUIDv7()))), store.ErrNotFound)
		_, _, err := w.s.OpenRunFile(w.ctx, w.key(newUUIDv7()), 0)
		w.ErrorIs(err, store.ErrNotFound)
	})},
	{"headers are recorded with their event", withAgents(func(w *world) {
		e := w.event()
		e.Headers = map[string]string{"x-github-event": `push "<ä>"`, "x-empty": ""}
		w.accept(&e)
		for range 2 { // first with open runs, then with ended runs
			for _, run := range e.Runs {
				headers, err := w.s.RunHeaders(w.ctx, w.key(run.ID))
				w.NoError(err)
				w.Equal(e.Headers, headers)
			}
			for _, c := range w.claim(2, lease) {
				w.Equal(e.Headers, c.Headers)
				w.NoError(w.complete(completed(c)))
			}
		}
	})},
	{"a traceparent is recorded with its event", withAgents(func(w *world) {
		e := w.event()
		e.Traceparent = traceparent
		w.accept(&e)
		for _, c := range w.claim(2, lease) {
			w.Equal(traceparent, c.Traceparent)
			w.NoError(w.complete(completed(c)))
		}
		w.replayRun(e.ConnectorRunID)
		for _, c := range w.claim(2, lease) {
			w.Empty(c.Traceparent, "a replay is a trace of its own")
		}
	})},
	{"an event without headers has none", withAgent(func(w *world) {
		e := w.acceptEvent(w.singleEvent())
		w.requireNone(w.s.RunHeaders(w.ctx, w.key(e.Runs[0].ID)))
		claimed := w.claim(1, lease)[0]
		w.Empty(claimed.Headers)
		w.Empty(claimed.Traceparent)
		w.ErrorIs(errorOf(w.s.RunHeaders(w.ctx, w.key(newUUIDv7()))), store.ErrNotFound)
	})},
	{"an event with a missing file is rejected alone", func(w *world) {
		bad, missing := w.event(), uuid.New()
		bad.Files = []store.File{w.storedFile("a", "text"), {Name: "b", Blob: &missing}}
		good := w.event()
		good.Files = []store.File{w.storedFile("c", "text")}
		taken := w.event() // another event's
		admissions := w.tryAccept(w.event(), bad, good)
		w.NoError(admissions[0].Err)
		w.ErrorIs(admissions[1].Err, store.ErrNotFound)
		w.NoError(admissions[2].Err)
		w.ErrorIs(errorOf(w.s.ConnectorRun(w.ctx, w.key(bad.ConnectorRunID))), store.ErrNotFound)
		w.NoError(w.s.DropBlob(w.ctx, w.key(*bad.Files[0].Blob)), "nothing keeps it")
		taken.Files = good.Files
		admissions = w.tryAccept(taken)
		w.Error(admissions[0].Err, "a blob belongs to one event")
	}},
	{"accepted files count as stored", withAgent(func(w *world) {
		w.endEvents(1)
		w.countStored(10)
		usual := w.storedBytes()
		e := w.singleEvent()
		e.Files = []store.File{w.storedFile("a", strings.Repeat("x", 5000)), {Name: "b", Reason: store.FilesTooLarge}, w.storedFile("c", "12345")}
		w.accept(&e)
		w.NoError(w.complete(completed(w.claim(1, lease)[0])))
		w.countStored(10)
		w.Equal(2*usual+5005, w.storedBytes())
	})},
}
