// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// secret is in every value of a run that erasing deletes.
const secret = "s3cr3t-of-a-person"

// secretive returns an ended event with one run and the secret everywhere: in its input, a file, a
// header, a file that it saved, its journal, its output, its payloads and the responses of receivers. Both of its
// deliveries have ended.
func (w *world) secretive() store.Event {
	long := `"` + strings.Repeat(secret, store.MaxInlineText/len(secret)+1) + `"`
	e, input, file := w.singleEvent(), newUUIDv7(), newUUIDv7()
	for _, blob := range []uuid.UUID{input, file} {
		w.NoError(errorOf(w.s.PutBlob(w.ctx, w.key(blob), strings.NewReader(long))))
	}
	e.Input, e.InputBlob, e.Headers = nil, &input, map[string]string{"x-name": secret}
	e.Files = []store.File{{Name: secret, FieldName: "f", MIMEType: "text/plain", Size: int64(len(long)), Blob: &file}}
	w.accept(&e)
	run := w.claim(1, lease)[0]
	w.announce(run, 1, 1)
	payload := payloadOf(run, "tell", 1, `"`+secret+`"`)
	w.Empty(w.sendPayload(payload).Skipped)
	w.NoError(w.saveText(leaseOf(run), 2, "s1", secret))
	end := completed(run)
	end.Context = json.RawMessage(`{"name":"` + secret + `"}`)
	end.Output, end.Journal = long, []store.JournalEntry{
		{Sequence: 4, Kind: store.JournalModelAnswer, Data: json.RawMessage(long)},
		{Sequence: 5, Kind: store.JournalModelAnswer, Data: json.RawMessage(`"` + secret + `"`)},
	}
	w.NoError(w.complete(end))
	w.deliverAll(secret)
	return e
}

// deliverAll sends all deliveries, to receivers with the same response, and counts the stored
// bytes.
func (w *world) deliverAll(response string) {
	w.postDeliveries()
	for _, d := range w.takeDue(10, 10) {
		done := attempted(d, store.DeliveryDone)
		done.Response = response
		w.recordAttempts(done)
	}
	w.countAllStored()
}

// holding returns the tables of the project that contain the secret, as text or bytes.
func (w *world) holding() (tables []string) {
	raw := strings.Trim(fmt.Sprint([]byte(secret)), "[]")
	for table, rows := range w.allRows(w.project.ID) {
		if slices.ContainsFunc(rows, func(row string) bool { return strings.Contains(row, secret) || strings.Contains(row, raw) }) {
			tables = append(tables, table)
		}
	}
	slices.Sort(tables)
	return tables
}

var erasurePromises = []promise{
	{"the contents of a run are erased, statistics stay", func(w *world) {
		w.outboundTo("tell", toolPolicy("tell"))
		w.outboundTo("results", automatic)
		w.deploy("one", "first")
		w.endEvents(1)
		w.deliverAll("")
		before := w.storedBytes()
		e := w.secretive()
		run := e.Runs[0].ID
		w.Subset(w.holding(), []string{"blob_chunks", "delivery_attempts", "inputs", "journal"})
		numbers := func() store.RunStatistics {
			return w.runStatistics(store.StatisticsQuery{Environment: w.environment.Key(), AgentName: "first"})
		}
		counted := numbers()

		w.NoError(w.s.EraseRun(w.ctx, w.key(run)))
		w.Empty(w.holding())
		w.EqualValues(1, w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1`), "that of the bundle")
		w.requireUnreadable(run)
		w.ErrorIs(w.s.EraseRun(w.ctx, w.key(run)), store.ErrNotFound, "again")
		w.Equal(counted, numbers())
		w.rollUpRows(100)
		w.Equal(counted, numbers())
		runs, _ := w.runCount("first")
		w.EqualValues(2, runs)
		w.Equal(store.ConnectorRunCompleted, w.connectorRun(e.ConnectorRunID).Status, "the successful event stays")
		w.ErrorIs(errorOf(w.s.EventInput(w.ctx, w.key(e.ConnectorRunID))), store.ErrNotFound)
		w.countAllStored()
		w.EqualValues(before+512*(1+2*2), w.storedBytes(), "the rest is the stored size of the rows of a run and of two deliveries with an attempt each")
	}},
	{"an open run is not erased", withAgent(func(w *world) {
		e, _ := w.running(lease)
		w.ErrorIs(w.s.EraseRun(w.ctx, w.key(e.Runs[0].ID)), store.ErrConflict)
		w.ErrorIs(w.s.EraseRun(w.ctx, w.key(newUUIDv7())), store.ErrNotFound)
		_, body, err := w.s.RunInput(w.ctx, w.key(e.Runs[0].ID))
		w.NotEmpty(w.readAll(body, err))
	})},
	{"an input is erased with the last run of its event", withAgents(func(w *world) {
		e := w.acceptEvent(w.event())
		for i, run := range w.claim(2, lease) {
			w.NoError(w.complete(completed(run)))
			if i == 0 {
				w.NoError(w.s.EraseRun(w.ctx, run.Run.Key()), "while the other one is open")
				w.EqualValues(1, w.queryCount(`SELECT count(*) FROM inputs WHERE project_id = $1`))
				continue
			}
			_, body, err := w.s.RunInput(w.ctx, run.Run.Key())
			w.NotEmpty(w.readAll(body, err))
			w.Len(w.outcome(e.ConnectorRunID).Runs, 1, "the existing one")
			w.NoError(w.s.EraseRun(w.ctx, run.Run.Key()))
		}
		w.Zero(w.queryCount(`SELECT count(*) FROM inputs WHERE project_id = $1`))
	})},
	{"of two concurrent erasures one erases the input", withAgents(func(w *world) {
		e := w.acceptEvent(w.event())
		for _, run := range w.claim(2, lease) {
			w.NoError(w.complete(completed(run)))
		}
		w.NoError(together(func(i int) error {
			if i < len(e.Runs) {
				return w.s.EraseRun(w.ctx, w.key(e.Runs[i].ID))
			}
			return nil
		}))
		w.Zero(w.queryCount(`SELECT count(*) FROM inputs WHERE project_id = $1`))
	})},
	{"a delivery of an erased run is not sent", func(w *world) {
		w.outboundTo("results", automatic)
		w.deploy("one", "first")
		posted, waiting := w.singleEvent(), w.singleEvent()
		w.accept(&posted)
		w.NoError(w.complete(completed(w.claim(1, lease)[0])))
		w.postDeliveries()
		w.accept(&waiting)
		w.NoError(w.complete(completed(w.claim(1, lease)[0])))
		for _, e := range []store.Event{posted, waiting} {
			w.NoError(w.s.EraseRun(w.ctx, w.key(e.Runs[0].ID)))
		}
		w.postDeliveries()
		taken := w.takeDue(10, 10)
		w.Len(taken, 1, "the other one has none")
		w.Equal(uuid.Nil, taken[0].Run.ID, "there is nothing to send")
		w.recordAttempts(attempted(taken[0], store.DeliveryCancelled))
		_, err := w.s.Redeliver(w.ctx, store.Redelivery{Of: taken[0].Delivery.Key(), Idempotency: requestKey("1", "again")})
		w.ErrorIs(err, store.ErrGone)
	}},
}

// requireUnreadable checks that no read returns anything of a run.
func (w *world) requireUnreadable(run uuid.UUID) {
	reads := map[string]func() error{
		"Run":           func() error { _, err := w.s.Run(w.ctx, w.key(run)); return err },
		"RunInput":      func() error { _, _, err := w.s.RunInput(w.ctx, w.key(run)); return err },
		"RunHeaders":    func() error { _, err := w.s.RunHeaders(w.ctx, w.key(run)); return err },
		"RunFiles":      func() error { _, err := w.s.RunFiles(w.ctx, w.key(run)); return err },
		"OpenRunFile":   func() error { _, _, err := w.s.OpenRunFile(w.ctx, w.key(run), 0); return err },
		"OpenSavedFile": func() error { _, _, err := w.s.OpenSavedFile(w.ctx, w.key(run), "s1", 0); return err },
	}
	for _, name := range slices.Sorted(maps.Keys(reads)) {
		w.ErrorIs(reads[name](), store.ErrNotFound, name)
	}
	w.requireNone(w.s.RunEnvironments(w.ctx, w.project.ID, []uuid.UUID{run}))
	w.requireNone(w.s.RunSavedFiles(w.ctx, w.key(run)))
	w.requireNone(w.s.Journal(w.ctx, w.key(run)))
	listed := w.listRuns(store.RunQuery{ProjectID: w.project.ID, Limit: 100})
	w.False(slices.ContainsFunc(listed, func(r store.Run) bool { return r.ID == run }))
}
