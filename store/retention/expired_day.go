// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/sweep"
)

// historyDeletes are history tables with a statement that deletes at most $4 rows of project $1 whose IDs
// are from the ID $2 to before the time $3. It returns the IDs, and the blobs that the rows name: one
// blob, and the blobs of files. Rows that an open run, connector run or delivery needs stay.
var historyDeletes = [...]struct{ table, statement string }{
	{`journal`, `DELETE FROM {journal} WHERE (project_id, run_id, sequence) IN (SELECT t.project_id, t.run_id, t.sequence FROM {journal} t
		WHERE t.project_id = $1 AND t.run_id >= $2 AND t.run_id < id_at($3)
			AND NOT EXISTS (SELECT 1 FROM open_runs o WHERE o.project_id = $1 AND o.id = t.run_id)
		ORDER BY t.run_id LIMIT $4) RETURNING run_id, blob_id, NULL`},
	{`inputs`, `DELETE FROM {inputs} WHERE (project_id, id) IN (SELECT t.project_id, t.id FROM {inputs} t
		WHERE t.project_id = $1 AND t.id >= $2 AND t.id < id_at($3)
			AND NOT EXISTS (SELECT 1 FROM open_runs o WHERE o.project_id = $1 AND o.id = t.id)
			AND NOT EXISTS (SELECT 1 FROM open_connector_runs o WHERE o.project_id = $1 AND o.id = t.id)
			AND NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.project_id = $1 AND o.id = t.id)
		ORDER BY t.id LIMIT $4) RETURNING id, blob_id, files`},
	{`delivery_attempts`, `DELETE FROM {delivery_attempts} WHERE (project_id, delivery_id, number) IN (SELECT t.project_id, t.delivery_id, t.number FROM {delivery_attempts} t
		WHERE t.project_id = $1 AND t.delivery_id >= $2 AND t.delivery_id < id_at($3)
			AND NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.project_id = $1 AND o.id = t.delivery_id)
		ORDER BY t.delivery_id LIMIT $4) RETURNING delivery_id, NULL, NULL`},
	{`ended_runs`, `DELETE FROM {ended_runs} WHERE (project_id, id) IN (SELECT t.project_id, t.id FROM {ended_runs} t
		WHERE t.project_id = $1 AND t.id >= $2 AND t.id < id_at($3) ORDER BY t.id LIMIT $4) RETURNING id, output_blob_id, NULL`},
	// After the runs, so that these have all their calls for as long as a rebuild counts them.
	{`model_calls`, `DELETE FROM {model_calls} WHERE (project_id, run_id, sequence) IN (SELECT t.project_id, t.run_id, t.sequence FROM {model_calls} t
		WHERE t.project_id = $1 AND t.run_id >= $2 AND t.run_id < id_at($3)
			AND NOT EXISTS (SELECT 1 FROM open_runs o WHERE o.project_id = $1 AND o.id = t.run_id)
		ORDER BY t.run_id LIMIT $4) RETURNING run_id, NULL, NULL`},
	// After the runs, so that nothing is indexed any more for a deleted run.
	{`run_words`, `DELETE FROM {run_words} WHERE (project_id, run_id) IN (SELECT t.project_id, t.run_id FROM {run_words} t
		WHERE t.project_id = $1 AND t.run_id >= $2 AND t.run_id < id_at($3) ORDER BY t.run_id LIMIT $4) RETURNING run_id, NULL, NULL`},
	{`ended_connector_runs`, `DELETE FROM {ended_connector_runs} WHERE (project_id, id) IN (SELECT t.project_id, t.id FROM {ended_connector_runs} t
		WHERE t.project_id = $1 AND t.id >= $2 AND t.id < id_at($3) ORDER BY t.id LIMIT $4) RETURNING id, NULL, NULL`},
}

// endedRunsIndex is the index of ended_runs in historyDeletes.
var endedRunsIndex = slices.IndexFunc(historyDeletes[:], func(of struct{ table, statement string }) bool { return of.table == "ended_runs" })

// deleteDays deletes days before one row by row, if there are no partitions: one day of a project
// at a time, then the audit log of that time. Days from keep on stay completely while a result is
// still to be delivered.
func (s *Store) deleteDays(ctx context.Context, before, keep int64, limit int) (n int, err error) {
	trimmed, err := s.deleteNext(ctx, &s.skipped.pastDays, s.dropping, limit, func(l *sqldb.Args, others string) string {
		return `SELECT s.project_id, s.day, 0 FROM stored_days s WHERE s.day < ` + l.Add(before) + `
			AND (s.day < ` + l.Add(keep) + ` OR NOT ` + undeliveredResult + `)` + others + ` ORDER BY s.day, s.project_id LIMIT 1`
	})
	if trimmed.Count > 0 || err != nil && !errors.As(err, new(*store.SetAsideError)) {
		return trimmed.Count, err
	}
	n, auditErr := s.deleteAudit(ctx, sqldb.DayStart(before), limit)
	return n, sweep.JoinSetAside(err, auditErr)
}

// maxTrimTransactions is the maximum number of transactions per turn of a project: one, and one
// more for each overdue day.
const maxTrimTransactions = 10

// overdueDay is the oldest day of a project beyond its retention, and since when, in microseconds.
type overdueDay struct {
	sqldb.ProjectDay
	us int64
}

func scanOverdueDay(row sqldb.Scanner) (d overdueDay, err error) {
	err = row.Scan(&d.Project, &d.Day, &d.us)
	return d, err
}

// deleteNext deletes rows of the next day that pick selects. If it cannot, it tries the following
// day. others is a condition on s that excludes projects. A project that fails is skipped for some
// calls, unless some of its rows were deleted, and a project whose lock another transaction has is
// skipped for this call.
func (s *Store) deleteNext(
	ctx context.Context, skipped *sweep.Skipped, turns *outbox.Cursor, limit int, pick func(l *sqldb.Args, others string) string,
) (trimmed store.Trimmed, err error) {
	skipped.BeginCall()
	var (
		failed []error
		busy   []uuid.UUID
	)
	for ctx.Err() == nil {
		var l sqldb.Args
		out, others := slices.Clone(busy), ``
		for _, key := range skipped.Keys() {
			out = append(out, key.ProjectID)
		}
		if len(out) > 0 {
			others = ` AND s.project_id NOT IN ` + l.AddIDs(out)
		}
		of, err := scanOverdueDay(s.db.Reader().QueryRowContext(ctx, pick(&l, others), l.Values...))
		if err = sqldb.MapNoRows(err); errors.Is(err, store.ErrNotFound) {
			return trimmed, sweep.JoinSetAside(failed...)
		}
		if err != nil {
			return trimmed, sqldb.Wrap(err, "reading the history to delete")
		}
		turns.Rewind(of.Project)
		n, err := s.deleteDay(ctx, of.ProjectDay, limit, 1+int(min(of.us/sqldb.Day.Microseconds(), maxTrimTransactions-1)))
		switch {
		case n > 0: // the next call meets an error again
			return store.Trimmed{Count: n, Overdue: time.Duration(of.us) * time.Microsecond}, sweep.JoinSetAside(failed...)
		case errors.Is(err, ErrBusy):
			busy = append(busy, of.Project)
		case err != nil && (s.db.IsDataError(err) || s.db.CanWrite(ctx)):
			failed = append(failed, skipped.Skip(store.Key{ProjectID: of.Project}, err))
		case err != nil:
			return trimmed, sweep.JoinSetAside(append(failed, err)...)
		}
	}
	return trimmed, sweep.JoinSetAside(append(failed, ctx.Err())...)
}

// overdue are the days s beyond the retention of projects p.
var overdue = ` FROM projects p
		JOIN stored_days s ON s.project_id = p.project_id AND s.day < (now_us() - p.history_us) / ` + sqldb.DayMicros + `
		WHERE p.history_us <> 0`

// selectOverdue returns a statement for the oldest overdue day of a project, in an order.
func selectOverdue(others, order string) string {
	return `SELECT s.project_id, MIN(s.day), now_us() - p.history_us - (MIN(s.day) + 1) * ` + sqldb.DayMicros + overdue + others + `
		GROUP BY s.project_id, p.history_us ORDER BY ` + order + ` LIMIT 1`
}

// TrimHistory implements store.Housekeeping. Projects are served round robin. The turn of a project
// is longer if it is more overdue, so a project with a much shorter retention catches up without
// delaying others. Days are deleted oldest first, so history has no holes.
func (s *Store) TrimHistory(ctx context.Context, limit int) (store.Trimmed, error) {
	return s.deleteNext(ctx, &s.skipped.overdueDays, s.trimming, limit, func(l *sqldb.Args, others string) string {
		return selectOverdue(others, `s.project_id <= `+l.Add(s.trimming.Last())+`, s.project_id`)
	})
}

// ProjectHistoryOverdue implements store.Housekeeping.
func (s *Store) ProjectHistoryOverdue(ctx context.Context) (time.Duration, error) {
	most, err := scanOverdueDay(s.db.Reader().QueryRowContext(ctx, selectOverdue(``, `3 DESC`)))
	if err = sqldb.MapNoRows(err); errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	return time.Duration(most.us) * time.Microsecond, sqldb.Wrap(err, "reading the history beyond the retention of projects")
}

const (
	// maxBusy is the number of consecutive attempts that find the lock of a project taken before an
	// attempt waits for it. Otherwise the history of a project that is always being indexed would
	// never be deleted.
	maxBusy = 3
	// pastPatience is how long such an attempt waits.
	pastPatience = time.Second
)

// tryPast takes that lock, or fails with ErrBusy if another transaction has it.
func (s *Store) tryPast(ctx context.Context, tx *sqldb.Tx, project uuid.UUID) error {
	var within time.Duration
	if s.deleting.busyAttempts(project) >= maxBusy {
		within = pastPatience
	}
	free, err := s.db.TryLock(ctx, tx, sqldb.PastLock(project), within)
	if err != nil {
		return err
	}
	s.deleting.recordAttempt(project, free)
	if !free {
		return ErrBusy
	}
	return nil
}

// deletionProgress is the progress of days that are being deleted, so that deleted rows are not read again
// for each batch of the next rows.
type deletionProgress struct {
	mutex sync.Mutex
	days  map[sqldb.ProjectDay]dayProgress
	busy  map[uuid.UUID]int // consecutive attempts without the lock
}

// dayProgress is the progress of the deletion of a day. done is the number of finished tables of
// historyDeletes. after has the last deleted ID per table: an index has entries of deleted rows until the
// next vacuum, and a walk over all of them would take longer with each batch.
type dayProgress struct {
	done  int
	after [len(historyDeletes)]uuid.UUID
}

// busyAttempts returns the number of consecutive attempts to delete history of a project that found
// its lock taken.
func (d *deletionProgress) busyAttempts(project uuid.UUID) int {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.busy[project]
}

// recordAttempt records whether an attempt got the lock of a project.
func (d *deletionProgress) recordAttempt(project uuid.UUID, locked bool) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if locked {
		delete(d.busy, project)
		return
	}
	if d.busy == nil || len(d.busy) >= maxDeleting {
		d.busy = map[uuid.UUID]int{}
	}
	d.busy[project]++
}

// maxDeleting is the maximum number of remembered days, because few take long.
const maxDeleting = 1000

// progressOf returns the progress of a day. Runs that have ended since are searched in any case, because
// their calls are deleted after them.
func (d *deletionProgress) progressOf(on sqldb.ProjectDay) dayProgress {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	of := d.days[on]
	of.done = min(of.done, endedRunsIndex)
	return of
}

// recordProgress records the progress of a day.
func (d *deletionProgress) recordProgress(on sqldb.ProjectDay, of dayProgress) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if of == (dayProgress{}) {
		delete(d.days, on)
		return
	}
	if d.days == nil || len(d.days) >= maxDeleting {
		d.days = map[sqldb.ProjectDay]dayProgress{}
	}
	d.days[on] = of
}

// deleteDay deletes rows of a project's day in at most so many transactions of the maximum size. It
// returns the number of deleted rows, at most limit plus one. Each table is deleted from the last
// deleted ID on, and once more from the first ID by forgetDay. ErrBusy means that another
// transaction is deleting history of the project.
func (s *Store) deleteDay(ctx context.Context, on sqldb.ProjectDay, limit, transactions int) (n int, err error) {
	for of := s.deleting.progressOf(on); of.done < len(historyDeletes); {
		most := min(limit-n, s.atOnce)
		deleted, last, err := s.deletePast(ctx, on, historyDeletes[of.done].statement, of.after[of.done], most)
		n += deleted
		if err != nil {
			return n, sqldb.Wrap(err, "deleting a day of project %s", on.Project)
		}
		if of.after[of.done] = last; deleted < most {
			of.done++
			s.deleting.recordProgress(on, of)
			continue
		}
		s.deleting.recordProgress(on, of)
		if transactions--; transactions == 0 || n == limit {
			return n, nil
		}
	}
	s.deleting.recordProgress(on, dayProgress{})
	if err := s.forgetDay(ctx, on); err != nil {
		return n, sqldb.Wrap(err, "deleting the record of a day of project %s", on.Project)
	}
	return n + 1, nil
}

// errMore means that a day has more rows than one transaction deletes.
var errMore = errors.New("the day has more rows")

// forgetDay deletes a day with the rows that were added after its tables were finished. Their
// counted bytes are in the deleted row. A transaction that has not counted its bytes yet waits for
// that, and then creates a new row. A day with many new rows stays.
func (s *Store) forgetDay(ctx context.Context, on sqldb.ProjectDay) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := s.tryPast(ctx, tx, on.Project); err != nil {
			return err
		}
		if _, err := s.subtractDays(ctx, tx, `DELETE FROM stored_days WHERE project_id = $1 AND day = $2 RETURNING project_id, day, bytes`, on.Project, on.Day); err != nil {
			return err
		}
		for _, of := range historyDeletes {
			n := 0
			there, err := s.db.HasPart(ctx, tx, of.table, sqldb.FirstID(on.Day))
			if err == nil && there {
				n, _, err = s.deleteRows(ctx, tx, on, of.statement, uuid.Nil, s.atOnce)
			}
			switch {
			case err != nil:
				return err
			case n == s.atOnce:
				return errMore
			}
		}
		return nil
	})
	if errors.Is(err, errMore) || err != nil && s.db.NoTable(err) { // a partition was deleted meanwhile: the next call reads the new state
		return nil
	}
	return err
}

// deletePast runs a statement of historyDeletes from an ID on, and returns the last deleted ID. If the
// partition of a day is deleted, so are its rows.
func (s *Store) deletePast(
	ctx context.Context, on sqldb.ProjectDay, statement string, after uuid.UUID, limit int,
) (n int, last uuid.UUID, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := s.tryPast(ctx, tx, on.Project); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE stored_days SET going = TRUE WHERE project_id = $1 AND day = $2 AND NOT going`, on.Project, on.Day); err != nil {
			return err
		}
		n, last, err = s.deleteRows(ctx, tx, on, statement, after, limit)
		return err
	})
	if err != nil {
		n, last = 0, after // nothing was deleted
	}
	if err != nil && s.db.NoTable(err) {
		err = nil
	}
	return n, last, err
}

// deleteRows runs a statement of historyDeletes from an ID on, and returns the last deleted ID. The blobs
// that its rows named become unmarked.
func (s *Store) deleteRows(
	ctx context.Context, tx *sqldb.Tx, on sqldb.ProjectDay, statement string, after uuid.UUID, limit int,
) (n int, last uuid.UUID, err error) {
	var loose []store.Key
	last = after
	from := sqldb.FirstID(on.Day)
	if sqldb.CompareIDs(after, from) > 0 {
		from = after
	}
	err = sqldb.EachRow(ctx, tx, func(row sqldb.Scanner) (err error) {
		var (
			id    uuid.UUID
			blob  *uuid.UUID
			files *string
		)
		err = row.Scan(&id, &blob, &files)
		if n++; sqldb.CompareIDs(id, last) > 0 {
			last = id
		}
		if blob != nil {
			loose = append(loose, store.Key{ProjectID: on.Project, ID: *blob})
		}
		if err == nil && files != nil {
			loose, err = runrow.AddFileBlobs(loose, on.Project, *files)
		}
		return err
	}, s.db.InPart(statement, sqldb.FirstID(on.Day)), on.Project, from, sqldb.DayStart(on.Day+1), limit)
	if err != nil {
		return n, last, err
	}
	return n, last, s.blobs.UnmarkBlobs(ctx, tx, loose)
}

// deleteAudit deletes the audit log of a project before a time.
func (s *Store) deleteAudit(ctx context.Context, before int64, limit int) (n int, err error) {
	project, err := sqldb.ScanUUID(s.db.Reader().QueryRowContext(ctx, `WITH RECURSIVE p (project_id) AS (
			SELECT (SELECT a.project_id FROM audit_log a WHERE a.project_id >= '`+uuid.Nil.String()+`' ORDER BY a.project_id LIMIT 1)
			UNION ALL
			SELECT (SELECT a.project_id FROM audit_log a WHERE a.project_id > p.project_id ORDER BY a.project_id LIMIT 1)
			FROM p WHERE p.project_id IS NOT NULL
		)
		SELECT p.project_id FROM p WHERE p.project_id IS NOT NULL
			AND EXISTS (SELECT 1 FROM audit_log a WHERE a.project_id = p.project_id AND a.id < id_at($1)) LIMIT 1`, before))
	if err = sqldb.MapNoRows(err); errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	for _, statement := range []string{
		`DELETE FROM audit_outcomes WHERE (project_id, id) IN (SELECT project_id, id FROM audit_outcomes
			WHERE project_id = $1 AND id < id_at($2) ORDER BY id LIMIT $3)`,
		`DELETE FROM audit_log WHERE (project_id, id) IN (SELECT project_id, id FROM audit_log
			WHERE project_id = $1 AND id < id_at($2) ORDER BY id LIMIT $3)`,
		`DELETE FROM audit_days WHERE (project_id, day) IN (SELECT project_id, day FROM audit_days
			WHERE project_id = $1 AND day < $2 / ` + sqldb.DayMicros + ` ORDER BY day LIMIT $3)`,
	} {
		if err != nil || n >= limit {
			break
		}
		var deleted int64
		deleted, err = s.db.Exec(ctx, statement, project, before, min(limit-n, sqldb.MaxIDs))
		n += int(deleted)
	}
	return n, sqldb.Wrap(err, "deleting from the audit log of project %s", project)
}
