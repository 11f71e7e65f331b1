// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// storedBytes returns the stored bytes of runs and uploads: without bundles, deployments and
// rollups.
func (w *world) storedBytes() int64 {
	return w.projectLoad().Stored - w.queryCount(`SELECT COALESCE(sum(size), 0) FROM bundles WHERE project_id = $1`) - w.ofDeployments() - w.ofNumbers()
}

// ofNumbers returns the stored bytes of rollups.
func (w *world) ofNumbers() (bytes int64) {
	for _, table := range []string{"run_rollups", "usage_rollups", "connector_rollups", "agent_totals"} {
		bytes += 512 * w.queryCount(`SELECT count(*) FROM `+table+` WHERE project_id = $1`)
	}
	return bytes
}

// ofDeployments returns the stored bytes of logs and results.
func (w *world) ofDeployments() int64 {
	return w.queryCount(`SELECT COALESCE(sum(log_size + result_size), 0) FROM deployments WHERE project_id = $1`)
}

// countStored counts the stored bytes of at most limit outbox rows.
func (w *world) countStored(limit int) int {
	n, err := w.s.CountStored(w.ctx, limit)
	w.NoError(err)
	return n
}

// uncounted returns the outbox rows for stored bytes: their number and their bytes.
func (w *world) uncounted() (ends int, bytes int64) {
	w.NoError(w.db.QueryRowContext(w.ctx, `SELECT count(*), COALESCE(sum(bytes), 0) FROM outbox WHERE project_id = $1`,
		w.project.ID.String()).Scan(&ends, &bytes))
	return ends, bytes
}

// postUncounted adds outbox rows of 7 stored bytes each, posted at a time.
func (w *world) postUncounted(project uuid.UUID, postedAt int64, rows int) {
	for range rows {
		w.execStatement(`INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at) VALUES ($1, 'storage', $2, 7, $3)`,
			project.String(), newUUIDv7().String(), postedAt)
	}
}

// endEvents accepts and completes n events with one run each.
func (w *world) endEvents(n int) {
	w.singles(n)
	for _, c := range w.claim(n, lease) {
		w.NoError(w.complete(completed(c)))
	}
}

var storedPromises = []promise{
	{"an idempotency key counts as stored with its event", withAgent(func(w *world) {
		stored := func(key *store.Idempotency) int64 {
			before := w.storedBytes()
			e := w.singleEvent()
			e.Idempotency = key
			w.accept(&e)
			w.NoError(w.complete(completed(w.claim(1, lease)[0])))
			w.countAllStored()
			return w.storedBytes() - before
		}
		w.Equal(stored(nil)+256+40+int64(len("again")), stored(&store.Idempotency{Key: "again", TTL: time.Hour}))
	})},
	{"rollups count as stored, each row once", withAgent(func(w *world) {
		c, today := dice{rand.New(rand.NewPCG(11, 12))}, w.startOfToday() //nolint:gosec // a test is the same each time
		for range 2 {
			w.pastRuns(c, 30, today, []uuid.UUID{w.environment.ID}, nil)
			w.pastConnectorRuns(c, 30, today, today.AddDate(0, 0, days), []uuid.UUID{w.connector.ID})
			for w.rollUpRows(7) > 0 {
				w.Zero(w.storedBytes(), "except these")
			}
		}
		stored := w.projectLoad().Stored
		w.Greater(stored, int64(512*4*30))
		w.NotEmpty(w.rebuild())
		w.Equal(stored, w.projectLoad().Stored)
		w.Zero(w.storedBytes())
		for _, ref := range []store.ObjectRef{w.environment.Ref, w.connector.Ref} {
			w.NoError(w.s.Remove(w.ctx, w.project.ID, ref))
			w.dropHistory(-(days + 4) * aDay)
			w.Zero(w.storedBytes())
		}
		w.Zero(w.ofNumbers())
	})},
	{"the bytes of ended runs are counted once", withAgents(func(w *world) {
		w.endEvents(1)
		w.Zero(w.storedBytes(), "not yet")
		for w.countStored(1) > 0 {
		}
		least := w.storedBytes()
		w.Positive(least)
		w.Zero(w.countStored(10))
		w.Equal(least, w.storedBytes(), "nothing is counted twice")

		e, usual := w.event(), int64(len(w.event().Input))
		e.Input = make([]byte, 1000)
		w.accept(&e)
		runs := w.claim(2, lease)
		done := completed(runs[0])
		done.Output += "0123456789"
		w.NoError(w.complete(done))
		w.NoError(w.complete(done), "again")
		w.NoError(w.complete(completed(runs[1])))
		w.countStored(10)
		w.Equal(3*least-2*usual+10+1000, w.storedBytes(), "an input is counted once for all runs of its event")

		before, large, blob := w.storedBytes(), w.singleEvent(), newUUIDv7()
		w.NoError(errorOf(w.s.PutBlob(w.ctx, w.key(blob), bytes.NewReader(make([]byte, 100_000)))))
		large.Input, large.InputBlob = nil, &blob
		w.accept(&large)
		w.NoError(w.complete(completed(w.claim(1, lease)[0])))
		w.countStored(10)
		w.Equal(before+least-usual+100_000, w.storedBytes(), "also one in a blob")
	})},
	{"concurrent consumers count each end once", withAgent(func(w *world) {
		w.endEvents(30)
		ends, bytes := w.uncounted()
		w.GreaterOrEqual(ends, 30)
		var counted atomic.Int64
		w.NoError(together(func(int) error {
			for {
				n, err := w.s.CountStored(w.ctx, 3)
				if counted.Add(int64(n)); err != nil || n == 0 {
					return err
				}
			}
		}))
		w.countStored(ends) // rows that one consumer skipped while another had them
		left, _ := w.uncounted()
		w.Zero(left)
		w.LessOrEqual(counted.Load(), int64(ends))
		w.Equal(bytes, w.storedBytes())
	})},
	{"a rolled back end is not counted", withAgent(func(w *world) {
		w.endEvents(3)
		ends, bytes := w.uncounted()
		rename := func(from, to string) {
			w.execStatement(`ALTER TABLE ` + from + ` RENAME TO ` + to)
		}
		rename("stored_bytes", "elsewhere")
		w.Error(errorOf(w.s.CountStored(w.ctx, 10)))
		rename("elsewhere", "stored_bytes")
		w.Zero(w.storedBytes())
		w.Equal(ends, w.countStored(100))
		w.Equal(bytes, w.storedBytes())
	})},
	{"a project that cannot be counted delays no other project", withAgent(func(w *world) {
		w.endEvents(1)
		const limit = 10
		other := uuid.New()
		w.postUncounted(other, 0, limit+1)
		ends, bytes := w.uncounted()
		w.LessOrEqual(ends, limit)
		cure := w.failWrites("INSERT", "stored_bytes", "project_id", other)
		n, err := w.s.CountStored(w.ctx, limit)
		w.ErrorContains(err, "poisoned")
		w.Equal(ends, n)
		w.Equal(bytes, w.storedBytes())
		cure()
		w.Equal(limit+1, w.countStored(100))
		var counted int64
		w.NoError(w.db.QueryRowContext(w.ctx, `SELECT bytes FROM stored_bytes WHERE project_id = $1`, other.String()).Scan(&counted))
		w.EqualValues(7*(limit+1), counted)
	})},
	{"a count finishes a project before the next", func(w *world) {
		projects := []uuid.UUID{uuid.New(), uuid.New()}
		for at := range int64(3) { // so that the oldest rows belong to both
			for _, project := range projects {
				w.postUncounted(project, at, 1)
			}
		}
		w.Equal(3, w.countStored(3))
		var left int
		w.NoError(w.db.QueryRowContext(w.ctx, `SELECT count(DISTINCT project_id) FROM outbox WHERE project_id IN ($1, $2)`,
			projects[0].String(), projects[1].String()).Scan(&left))
		w.Equal(1, left)
		w.Equal(3, w.countStored(3))
	}},
	{"a key is known while it belongs to a request", func(w *world) {
		known := func(key string) bool {
			known, err := w.s.KnownKey(w.ctx, w.connector.Key(), key)
			w.NoError(err)
			return known
		}
		repeat := func(key string) store.Admission {
			e := w.keyedEvent(key, "body")
			e.Repeat = true
			admissions := w.tryAccept(e)
			w.NoError(admissions[0].Err)
			return admissions[0]
		}
		w.False(known("key:1"))
		w.Equal(store.Expired, repeat("key:1").Verdict)
		w.False(known("key:1"), "a duplicate request claims no key")
		first := w.acceptEvent(w.keyedEvent("key:1", "body"))
		w.True(known("key:1"))
		w.False(known("key:2"))
		again := repeat("key:1")
		w.Equal(store.Repeated, again.Verdict)
		w.Equal(first.ConnectorRunID, again.ConnectorRunID)
		w.updateRows(`UPDATE idempotency_keys SET expires_at = expires_at - $2`, (2 * time.Hour).Microseconds())
		w.False(known("key:1"))
		w.Equal(store.Expired, repeat("key:1").Verdict)
		w.Len(w.listRuns(store.RunQuery{ProjectID: w.project.ID, Limit: 10}), len(first.Runs), "only the first was written")
	}},
	{"connector runs have ended once they are not open", withAgent(func(w *world) {
		events := w.singles(2)
		w.NoError(w.complete(completed(w.claim(1, lease)[0])))
		over, open, unknown := w.key(events[0].ConnectorRunID), w.key(events[1].ConnectorRunID), w.key(newUUIDv7())
		ended, err := w.s.Ended(w.ctx, []store.Key{open, unknown, over})
		w.NoError(err)
		w.Equal([]store.Key{unknown, over}, ended)
		ended, err = w.s.Ended(w.ctx, nil)
		w.NoError(err)
		w.Empty(ended)
	})},
	{"connector IDs are read by page, in order", func(w *world) {
		want := []store.Key{w.connector.Key(), w.twinProject().connector.Key()}
		for _, name := range []string{"a", "b", "c"} {
			connector := w.newConnector(name)
			w.NoError(w.s.PutConnector(w.ctx, connector))
			want = append(want, connector.Key())
		}
		var got []store.Key
		for after := (store.Key{}); ; after = got[len(got)-1] {
			page, err := w.s.ConnectorIDs(w.ctx, after, 2)
			w.NoError(err)
			w.LessOrEqual(len(page), 2)
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
		}
		w.ElementsMatch(want, got)
	}},
	{"a journal is read by page", withAgent(func(w *world) {
		_, c := w.running(lease)
		var entries []store.JournalEntry
		for i := range int64(5) {
			entries = append(entries, newEntry(i+1, store.JournalModelAnswer, false))
		}
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(c), entries))
		after := func(sequence int64, limit int) []store.JournalEntry {
			page, err := w.s.JournalAfter(w.ctx, c.Run.Key(), sequence, limit)
			w.NoError(err)
			return w.undated(page)
		}
		w.Equal(entries[:2], after(0, 2))
		w.Equal(entries[2:4], after(2, 2))
		w.Equal(entries[4:], after(4, 2))
		w.Empty(after(5, 2))
		w.NoError(w.complete(completed(c)))
		w.Equal(entries[3:], after(3, 10), "also after its end")
	})},
	{"IDs of deleted days are not found", func(w *world) {
		for _, year := range []int{1970, 2001, 2300} {
			id := store.Stamp(uuid.New(), time.Date(year, 1, 2, 0, 0, 0, 0, time.UTC).UnixMicro(), 0)
			w.ErrorIs(errorOf(w.s.Run(w.ctx, w.key(id))), store.ErrNotFound)
			w.ErrorIs(errorOf(w.s.ConnectorRun(w.ctx, w.key(id))), store.ErrNotFound)
			w.ErrorIs(errorOf(w.s.Outcome(w.ctx, w.key(id))), store.ErrNotFound)
			_, _, err := w.s.RunInput(w.ctx, w.key(id))
			w.ErrorIs(err, store.ErrNotFound)
			w.requireNone(w.s.Journal(w.ctx, w.key(id)))
			l := store.Lease{Run: w.key(id), Token: 1}
			w.ErrorIs(w.complete(store.Completion{Lease: l, Status: store.RunCompleted}), store.ErrNotFound)
			w.ErrorIs(w.s.AppendJournal(w.ctx, l, []store.JournalEntry{newEntry(1, store.JournalModelAnswer, false)}), store.ErrNotFound)
			w.ErrorIs(w.s.Release(w.ctx, l, 0), store.ErrNotFound)
			w.ErrorIs(w.s.Cancel(w.ctx, w.key(id), runerror.Cancelled, ""), store.ErrNotFound)
			w.ErrorIs(w.s.Resume(w.ctx, w.key(id), nil), store.ErrNotFound)
		}
	}},
}
