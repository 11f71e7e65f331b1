// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/google/uuid"
)

// putBlobs stores n blobs of the project with a mark, as if they were written in 1970.
func (w *world) putBlobs(n int, mark string) (ids []uuid.UUID) {
	for range n {
		id := newUUIDv7()
		w.NoError(errorOf(w.s.PutBlob(w.ctx, w.key(id), bytes.NewReader([]byte("blob")))))
		ids = append(ids, id)
	}
	w.updateRows(`UPDATE blobs SET mark = $2, created_at = 0`, mark)
	return ids
}

// trimHistory deletes history of the next project and returns the count.
func (w *world) trimHistory(limit int) int {
	trimmed, err := w.s.TrimHistory(w.ctx, limit)
	w.NoError(err)
	return trimmed.Count
}

// untilTrimmed calls TrimHistory until it deletes nothing, and returns the count.
func (w *world) untilTrimmed(limit int) (count int) {
	for n := 1; n > 0; count += n {
		n = w.trimHistory(limit)
	}
	return count
}

var deletionPromises = []promise{
	{"a blob that cannot be deleted blocks no other", func(w *world) {
		for _, of := range []struct {
			mark  string
			sweep func() error
		}{
			{"", func() error { _, err := w.s.SweepExpired(w.ctx, 100); return err }},
			{"history", func() error { _, err := w.s.DropHistory(w.ctx, aDay, 100); return err }},
		} {
			left := func() int64 { return w.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1`) }
			ids := w.putBlobs(3, of.mark)
			cure := w.failWrites("DELETE", "blobs", "id", ids[1])
			w.requireSetAside(of.sweep(), 1)
			w.EqualValues(1, left())
			w.NoError(of.sweep(), "the blob is skipped")
			cure()
			for range 3 {
				w.NoError(of.sweep())
			}
			w.Zero(left())
		}
	}},
	{"an expired row that cannot be deleted blocks no other", func(w *world) {
		for _, of := range []struct{ table, id, insert string }{
			{"idempotency_keys", "connector_run_id", `INSERT INTO idempotency_keys (project_id, connector_id, key, connector_run_id, run_ids, expires_at)
				VALUES ($1, $2, $4, $2, '{}', $3)`},
			{"rejections", "connector_id", `INSERT INTO rejections (project_id, connector_id, document, last_at) VALUES ($1, $2, '{}', $3)`},
			{"replays", "id", `INSERT INTO replays (project_id, id, connector_id, status, statuses, trigger_type, since, until, per_minute, matched, more, position,
				replayed, refused, reason, detail, fingerprint, due_at, created_at, ended_at)
				VALUES ($1, $2, $2, 'completed', '[]', '', 0, 1, 1, 1, FALSE, $2, 1, '{}', '', '', '', $3, $3, $3)`},
			{"uploads", "blob_id", `INSERT INTO uploads (project_id, digest, size, blob_id, created_at, kept_until) VALUES ($1, $4, 1, $2, $3, $3)`},
			{"bundles", "blob_id", `INSERT INTO bundles (project_id, digest, size, blob_id, created_at, kept_until) VALUES ($1, $4, 1, $2, $3, $3)`},
		} {
			left := func() int64 { return w.queryCount(`SELECT count(*) FROM ` + of.table + ` WHERE project_id = $1`) }
			ids := w.putBlobs(3, "bundle")
			for i, id := range ids {
				args := []any{w.project.ID.String(), id.String(), i}
				if strings.Contains(of.insert, "$4") { // a text
					args = append(args, id.String())
				}
				w.execStatement(of.insert, args...)
			}
			sweep := func() error { _, err := w.s.SweepExpired(w.ctx, 100); return err }
			cure := w.failWrites("DELETE", of.table, of.id, ids[0])
			w.requireSetAside(sweep(), 1)
			w.EqualValues(1, left(), of.table)
			w.NoError(sweep(), "the row is skipped")
			cure()
			for range 3 {
				w.NoError(sweep())
			}
			w.Zero(left(), of.table)
		}
	}},
	{"a project is not set aside while some of its history is deleted", func(w *world) {
		stuck := w.history()
		w.forgets()
		cure := w.failWrites("DELETE", "ended_runs", "id", stuck.Runs[0].ID)
		w.Positive(w.trimHistory(1000))
		w.requireSetAside(errorOf(w.s.TrimHistory(w.ctx, 1000)), 1)
		cure()
		for range 3 {
			w.trimHistory(1000)
		}
		w.Zero(w.queryCount(`SELECT count(*) FROM ended_runs WHERE project_id = $1`))
	}},
	{"a day is deleted from the last deleted row on, and then once more from its start", func(w *world) {
		w.history()
		w.forgets()
		w.Equal(1, w.trimHistory(1))
		var first uuid.UUID // of the day, before all others
		day := w.queryCount(`SELECT MIN(day) FROM stored_days WHERE project_id = $1`)
		binary.BigEndian.PutUint64(first[:8], uint64(day*aDay.Milliseconds())<<16)
		w.execStatement(`INSERT INTO journal (project_id, run_id, sequence, token, kind, unsafe, at) VALUES ($1, $2, 1, 1, '', FALSE, 0)`,
			w.project.ID.String(), first.String())
		left := func() int64 {
			return w.queryCount(`SELECT count(*) FROM journal WHERE project_id = $1 AND run_id = '` + first.String() + `'`)
		}
		w.Equal(1, w.trimHistory(1))
		w.EqualValues(1, left())
		w.untilTrimmed(1)
		w.Zero(left())
		w.Zero(w.queryCount(`SELECT count(*) FROM stored_days WHERE project_id = $1`))
	}},
	{"the deletion of expired history takes no turn from the trimming of projects", func(w *world) {
		twin := w.twinProject()
		first, second := inOrder(w, twin)
		for _, of := range []*world{first, second} {
			of.history()
			of.forgets()
		}
		left := func(of *world) int64 {
			return of.queryCount(`SELECT count(*) FROM journal WHERE project_id = $1`) + of.queryCount(`SELECT count(*) FROM inputs WHERE project_id = $1`)
		}
		before := [2]int64{left(first), left(second)}
		for range 4 {
			w.execStatement(`INSERT INTO stored_days (project_id, day, bytes) VALUES ($1, 1, 0)`, first.project.ID.String())
			w.NoError(errorOf(w.s.DropHistory(w.ctx, 365*aDay, 1)))
			w.trimHistory(1)
		}
		w.Less(left(first), before[0])
		w.Less(left(second), before[1])
	}},
}
