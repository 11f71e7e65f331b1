// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

const aDay = 24 * time.Hour

// historyOf are the history tables.
var historyOf = []string{
	"inputs", "ended_runs", "ended_connector_runs", "journal", "model_calls", "delivery_attempts", "run_words", "audit_log", "audit_outcomes",
}

// dropHistory deletes history older than age, in batches until none is left, and then unmarked blobs as
// if they were a day old.
func (w *world) dropHistory(age time.Duration) (n int) {
	for {
		deleted, err := w.s.DropHistory(w.ctx, age, 3)
		w.NoError(err)
		if n += deleted.Count; deleted.Count == 0 {
			break
		}
	}
	w.execStatement(`UPDATE blobs SET created_at = created_at - $1 WHERE mark = ''`, (2 * aDay).Microseconds())
	w.NoError(errorOf(w.s.SweepExpired(w.ctx, 100)))
	return n
}

// history creates history: runs, one of them with a large input, file, output and entry, and an
// audited operation.
func (w *world) history() store.Event {
	w.deploy("one", "first")
	e, input, file := w.singleEvent(), newUUIDv7(), newUUIDv7()
	for _, blob := range []uuid.UUID{input, file} {
		w.NoError(errorOf(w.s.PutBlob(w.ctx, w.key(blob), bytes.NewReader(make([]byte, store.BlobChunk+1)))))
	}
	e.Input, e.InputBlob = nil, &input
	e.Files = []store.File{{Name: "a", FieldName: "f", MIMEType: "text/plain", Size: store.BlobChunk + 1, Blob: &file}}
	w.accept(&e)
	w.NoError(w.complete(largeCompletion(w.claim(1, lease)[0])))
	w.endEvents(5)
	id, err := w.s.RecordAudit(w.ctx, store.AuditEntry{
		ProjectID: w.project.ID, Operation: "createConnector", Actor: store.AuditActor{Kind: store.AuditAPIKey, Name: "ci"},
	})
	w.NoError(err)
	w.NoError(w.s.RecordAuditOutcome(w.ctx, w.project.ID, id, store.AuditOutcome{Status: 201}))
	w.countAllStored()
	return e
}

var retentionPromises = []promise{
	{"history is deleted by whole days, with its blobs and stored bytes", func(w *world) {
		e := w.history()
		w.EqualValues(w.storedBytes(), w.queryCount(`SELECT sum(bytes) FROM stored_days WHERE project_id = $1`), "it consists of days")
		w.EqualValues(5, w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1`), "input, file, output, entry and bundle")
		w.Zero(w.dropHistory(aDay), "it is not old enough")
		w.EqualValues(1, w.queryCount(`SELECT count(*) FROM audit_days WHERE project_id = $1`))
		w.Equal(store.RunCompleted, w.run(e.Runs[0].ID).Status)
		oldest, err := w.s.OldestHistory(w.ctx)
		w.NoError(err)
		w.WithinDuration(w.readClock(), oldest.Deletable, 2*aDay)

		// As seen in four days.
		w.Positive(w.dropHistory(-4 * aDay))
		for _, table := range historyOf {
			w.Zero(w.queryCount(`SELECT count(*) FROM `+table+` WHERE project_id = $1`), table)
		}
		w.EqualValues(1, w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1`), "the blob of the bundle stays")
		w.EqualValues(1, w.queryCount(`SELECT count(DISTINCT blob_id) FROM blob_chunks WHERE project_id = $1`))
		w.Zero(w.storedBytes())
		w.Zero(w.queryCount(`SELECT count(*) FROM stored_days WHERE project_id = $1`))
		w.Zero(w.queryCount(`SELECT count(*) FROM audit_days WHERE project_id = $1`))
		w.Zero(w.dropHistory(-4 * aDay))
		w.ErrorIs(errorOf(w.s.Run(w.ctx, w.key(e.Runs[0].ID))), store.ErrNotFound)
		_, _, err = w.s.RunInput(w.ctx, w.key(e.Runs[0].ID))
		w.ErrorIs(err, store.ErrNotFound)
		oldest, err = w.s.OldestHistory(w.ctx)
		w.NoError(err)
		w.Zero(oldest.Deletable)
	}},
	{"a run stays until its result is delivered", withAgent(func(w *world) {
		w.outboundTo("results", automatic)
		w.singles(1)
		w.NoError(w.complete(largeCompletion(w.claim(1, lease)[0])))
		w.endEvents(2)
		w.Equal(3, w.postDeliveries())
		w.countAllStored()
		w.dropHistory(-4 * aDay)
		oldest, err := w.s.OldestHistory(w.ctx)
		w.NoError(err)
		w.Zero(oldest.Deletable, "kept days are not overdue")
		w.NoError(errorOf(w.s.EnsurePartitions(w.ctx, 0)))
		large := 0
		for range 3 {
			claimed := w.takeDue(1, 1)
			w.Len(claimed, 1)
			w.NotEqual(uuid.Nil, claimed[0].Run.ID, "its contents exist")
			if blob := claimed[0].OutputBlob; blob != nil {
				r, err := w.s.OpenBlob(w.ctx, w.key(*blob))
				w.Len(w.readAll(r, err), store.MaxInlineText+1)
				large++
			}
			w.recordAttempts(attempted(claimed[0], store.DeliveryDone))
		}
		w.Equal(1, large)
		w.Positive(w.dropHistory(-4 * aDay))
		w.Zero(w.queryCount(`SELECT count(*) FROM ended_runs WHERE project_id = $1`))
		w.Zero(w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1 AND mark = 'history'`))
	})},
	{"bytes counted after the deletion of their day are subtracted", withAgent(func(w *world) {
		w.endEvents(2)
		w.dropHistory(-4 * aDay)
		w.Positive(w.countStored(100))
		w.Positive(w.storedBytes())
		w.Positive(w.dropHistory(-4 * aDay))
		w.Zero(w.storedBytes())
	})},
}
