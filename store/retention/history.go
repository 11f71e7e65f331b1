// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
	"github.com/agentplatform/agentplatform/store/sweep"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// blobMargin is how much longer a blob of history is kept than other rows of its age. A blob is
// written at most unmarkedBlobAge before the row that names it, and that row is deleted with its whole
// day.
const blobMargin = 2 * sqldb.Day

// undeliveredResult is the condition that a run of a project's day s has an undelivered result. A delivery
// reads the result from the run.
const undeliveredResult = `EXISTS (SELECT 1 FROM deliveries d WHERE d.kind = 'result' AND d.project_id = s.project_id
	AND d.run_id >= id_at(s.day * 86400000000) AND d.run_id < id_at((s.day + 1) * 86400000000))`

// DropHistory implements store.Housekeeping. Blobs are deleted after their days, and rows of
// deleted objects after both. A result that is still to be delivered keeps its run as long as a
// delivery can be open and no longer, however often it is delivered again. Other open rows keep
// what they need until they end. Days that are being read delay only the steps that depend on them.
func (s *Store) DropHistory(ctx context.Context, age time.Duration, limit int) (dropped store.Dropped, err error) {
	if err := s.db.CheckUsable(); err != nil {
		return dropped, err
	}
	now, err := s.db.Now(ctx)
	if err != nil {
		return dropped, err
	}
	before := now.Add(-age).UnixMicro() / sqldb.Day.Microseconds()
	keep := before - int64(min(store.MaxOpen, age.Abs())/sqldb.Day)
	days, err := s.engine.DropDays(ctx, before, keep, limit)
	if dropped = days.Dropped; errors.Is(err, ErrBusy) {
		return dropped, nil
	}
	if err != nil && len(days.Left) == 0 {
		return dropped, sqldb.Wrap(err, "dropping history") // it is unknown which partitions exist
	}
	if dropped.Count == 0 {
		rest := oldHistory{before: before, keep: keep, age: age, parted: days.Parted, kept: days.KeptDays, left: days.Left}
		var failed error
		dropped.Count, failed = s.dropRest(ctx, rest, limit)
		err = errors.Join(err, failed)
	}
	return dropped, sqldb.Wrap(err, "dropping history")
}

// oldHistory is the history to delete: all days before one, older than age. Ended runs of days from keep on
// stay while their results are undelivered. With partitions, two more groups of days stay: the kept days, and
// the days left with partitions that cannot be dropped at present.
type oldHistory struct {
	before, keep int64
	age          time.Duration
	parted       bool
	kept         KeptDays
	left         []int64
}

// dropRest deletes the rows that follow the partitions of days, step by step until one step has
// deleted some. A failing step does not stop the others.
func (s *Store) dropRest(ctx context.Context, of oldHistory, limit int) (n int, err error) {
	var failed []error
	for _, step := range []func() (int, error){
		func() (int, error) {
			if of.parted {
				return s.forgetDays(ctx, of, limit)
			}
			return s.deleteDays(ctx, of.before, of.keep, limit)
		},
		func() (int, error) { return s.dropBlobsBefore(ctx, of, limit) },
		func() (int, error) { return s.dropDeletedObjects(ctx, of.age, limit) },
		func() (int, error) { return 0, s.engine.Shrink(ctx) },
	} {
		n, err := step()
		failed = append(failed, err)
		if n > 0 || ctx.Err() != nil {
			return n, sweep.JoinSetAside(failed...)
		}
	}
	return 0, sweep.JoinSetAside(failed...)
}

// OldestHistory implements store.Housekeeping.
func (s *Store) OldestHistory(ctx context.Context) (store.OldestDays, error) {
	deletable, open, parted, err := s.engine.OldestDays(ctx)
	if err == nil && !parted {
		err = s.db.Reader().QueryRowContext(ctx, `SELECT COALESCE((SELECT s.day FROM stored_days s
			WHERE NOT `+undeliveredResult+` ORDER BY s.day LIMIT 1), 0)`).Scan(&deletable)
	}
	return store.OldestDays{Deletable: sqldb.DayStartTime(deletable), Open: sqldb.DayStartTime(open)}, sqldb.Wrap(err, "reading the oldest day of history")
}

// forgetDays deletes the records of deleted days and subtracts their stored bytes. Lists read the
// recorded days only, so a day is recorded as long as it has partitions that lists read.
func (s *Store) forgetDays(ctx context.Context, of oldHistory, limit int) (n int, err error) {
	var (
		one int
		l   sqldb.Args
	)
	gone := `day < ` + l.Add(of.before)
	if stay := slices.Concat(of.kept.Open, of.kept.Results, of.left); len(stay) > 0 {
		days := make([]string, len(stay))
		for i, day := range stay {
			days[i] = l.Add(day)
		}
		gone += ` AND day NOT IN (` + strings.Join(days, ", ") + `)`
	}
	err = sqldb.MapNoRows(s.db.Reader().QueryRowContext(ctx, `SELECT 1 FROM stored_days WHERE `+gone+`
		UNION ALL SELECT 1 FROM audit_days WHERE `+gone+` LIMIT 1`, l.Values...).Scan(&one))
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		audited, err := tx.Exec(ctx, `DELETE FROM audit_days WHERE (project_id, day) IN (SELECT project_id, day FROM audit_days
			WHERE `+gone+` ORDER BY day, project_id LIMIT `+strconv.Itoa(limit)+` `+s.db.SkipLocked+`)`, l.Values...)
		if err != nil {
			return err
		}
		n, err = s.subtractDays(ctx, tx, `DELETE FROM stored_days WHERE (project_id, day) IN (SELECT project_id, day FROM stored_days
			WHERE `+gone+` ORDER BY day, project_id LIMIT `+strconv.Itoa(limit)+` `+s.db.SkipLocked+`) RETURNING project_id, day, bytes`, l.Values...)
		n += int(audited)
		return err
	})
	if err != nil {
		return 0, sqldb.Wrap(err, "deleting the records of days") // nothing was deleted
	}
	return n, nil
}

// subtractDays deletes records of days with a statement, subtracts their stored bytes from the
// projects, and records that the days are deleted.
func (s *Store) subtractDays(ctx context.Context, tx *sqldb.Tx, statement string, args ...any) (n int, err error) {
	less, last := map[uuid.UUID]int64{}, map[uuid.UUID]int64{}
	err = sqldb.EachRow(ctx, tx, func(row sqldb.Scanner) (err error) {
		var (
			on     sqldb.ProjectDay
			stored int64
		)
		err = row.Scan(&on.Project, &on.Day, &stored)
		less[on.Project] -= stored
		last[on.Project] = max(last[on.Project], on.Day)
		n++
		return err
	}, statement, args...)
	if err == nil {
		err = storedbytes.Add(ctx, tx, less)
	}
	for _, project := range slices.SortedFunc(maps.Keys(last), sqldb.CompareIDs) {
		if err != nil {
			break
		}
		_, err = tx.Exec(ctx, `UPDATE stored_bytes SET gone_until = $2 WHERE project_id = $1 AND gone_until < $2`, project, last[project]+1)
	}
	return n, err
}

// dropBytes is the approximate number of blob bytes that one transaction deletes, because other
// writers wait for it.
const dropBytes = 16 << 20

// sizedBlob is a blob and its size.
type sizedBlob struct {
	store.Key
	size int64
}

func scanSized(row sqldb.Scanner) (b sizedBlob, err error) {
	err = row.Scan(&b.ProjectID, &b.ID, &b.size)
	return b, err
}

// firstBlobs returns the first of these blobs, as many as one transaction deletes.
func firstBlobs(blobs []sizedBlob) (keys []store.Key) {
	for total := int64(0); len(keys) < len(blobs) && total < dropBytes; {
		next := blobs[len(keys)]
		keys, total = append(keys, next.Key), total+next.size
	}
	return keys
}

// stillOpen is the condition that the project of a blob r has something open that may name it. A
// blob is written at most unmarkedBlobAge before the row that names it.
var stillOpen = func() string {
	var of []string
	for _, table := range []string{"open_runs", "open_connector_runs", "deliveries"} {
		of = append(of, `EXISTS (SELECT 1 FROM `+table+` o WHERE o.project_id = r.project_id AND o.id < id_at(r.created_at + `+sqldb.DayMicros+`))`)
	}
	return "(" + strings.Join(of, " OR ") + ")"
}()

// dropBlobsBefore deletes blobs of history that were written some days before a day, except:
//
//   - blobs that open rows may name;
//   - results of days from keep on that are still to be delivered;
//   - blobs that rows of existing partitions may name. Such a row was open for at most MaxOpen.
func (s *Store) dropBlobsBefore(ctx context.Context, of oldHistory, limit int) (n int, err error) {
	l := sqldb.Args{Values: []any{limit, sqldb.DayStart(of.before) - blobMargin.Microseconds()}}
	where := `r.mark = 'history' AND r.created_at < $2 AND NOT ` + stillOpen + s.exceptResults(of, &l)
	for _, written := range blobWritePeriods(of.left) {
		where += ` AND NOT (r.created_at >= ` + l.Add(written.From) + ` AND r.created_at < ` + l.Add(written.To) + `)`
	}
	n, err = s.sweepBlobs(ctx, &s.skipped.historyBlobs, where, limit, l.Values[1:]...)
	if err != nil && s.db.NoTable(err) { // a partition was deleted meanwhile: the next call reads the new state
		err = nil
	}
	return n, sqldb.Wrap(err, "deleting blobs of history")
}

// exceptResults excludes blobs r that are results of past days and still to be delivered. It names
// the partitions of these days, because the plan of a sweep would lock all partitions.
func (s *Store) exceptResults(of oldHistory, l *sqldb.Args) (text string) {
	days := []timewindow.Period{{From: sqldb.DayStart(of.keep), To: sqldb.DayStart(of.before)}}
	if of.parted {
		days = nil
		for _, d := range of.kept.Results {
			days = append(days, timewindow.Period{From: sqldb.DayStart(d), To: sqldb.DayStart(d + 1)})
		}
	}
	for _, p := range days {
		text += s.db.InPart(` AND (r.project_id, r.id) NOT IN (SELECT e.project_id, e.output_blob_id FROM deliveries d
			JOIN {ended_runs} e ON e.project_id = d.project_id AND e.id = d.run_id
			WHERE d.kind = 'result' AND e.output_blob_id IS NOT NULL`+timewindow.Condition("d.run_id", p, l)+timewindow.Condition("e.id", p, l)+`)`, sqldb.LeastID(p.From))
	}
	return text
}

// blobWritePeriods returns the times at which the blobs of some days were written.
func blobWritePeriods(days []int64) (written []timewindow.Period) {
	for _, of := range slices.Sorted(slices.Values(days)) {
		next := timewindow.Period{From: sqldb.DayStart(of) - blobMargin.Microseconds(), To: sqldb.DayStart(of+1) + (store.MaxOpen + blobMargin).Microseconds()}
		if last := len(written) - 1; last >= 0 && next.From <= written[last].To {
			written[last].To = next.To
			continue
		}
		written = append(written, next)
	}
	return written
}

// sweepBlobs deletes at most limit blobs r of a condition, oldest first. Its arguments begin at $2.
// A blob that cannot be deleted is skipped for some calls.
func (s *Store) sweepBlobs(ctx context.Context, skipped *sweep.Skipped, where string, limit int, args ...any) (int, error) {
	skipped.BeginCall()
	swept, err := sweep.OpenRows[sizedBlob]{
		DB: s.db, Skipped: skipped, Columns: `r.project_id, r.id, r.size`, Table: `blobs`, Where: where, Order: `r.created_at`, Args: args,
		Scan: scanSized, Key: func(blob sizedBlob) store.Key { return blob.Key },
		Move: func(ctx context.Context, tx *sqldb.Tx, blobs []sizedBlob) (store.Swept, error) {
			some := firstBlobs(blobs)
			return store.Swept{Cancelled: len(some)}, s.blobs.DropBlobs(ctx, tx, some)
		},
	}.Sweep(ctx, min(limit, sqldb.MaxIDs))
	return swept.Runs(), err
}
