// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// blobMargin is how much longer a blob of history is kept than what is as old: a blob is written
// at most looseAge before what names it, and that goes with the whole of its day.
const blobMargin = 2 * day

// projectDay is a day of a project's history.
type projectDay struct {
	project uuid.UUID
	day     int64
}

func compareDays(a, b projectDay) int {
	return cmp.Or(compareIDs(a.project, b.project), cmp.Compare(a.day, b.day))
}

// DayOf is the day of the time in an id, in days since 1970.
func DayOf(id uuid.UUID) int64 {
	return store.TimeOf(id).UnixMilli() / day.Milliseconds()
}

// begin is when a day begins, in microseconds.
func begin(of int64) int64 { return of * day.Microseconds() }

// firstID is the least id of a day.
func firstID(of int64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], uint64(of*day.Milliseconds())<<16) //nolint:gosec // days since 1970
	return id
}

// addStoredOn adds to what projects have stored on days.
func addStoredOn(ctx context.Context, tx *Tx, more map[projectDay]int64) error {
	of := map[uuid.UUID]int64{}
	for _, on := range slices.SortedFunc(maps.Keys(more), compareDays) {
		of[on.project] += more[on]
		if _, err := tx.exec(ctx, `INSERT INTO stored_days AS s (project_id, day, bytes) VALUES ($1, $2, $3)
			ON CONFLICT (project_id, day) DO UPDATE SET bytes = s.bytes + excluded.bytes`, on.project, on.day, more[on]); err != nil {
			return err
		}
	}
	return addStored(ctx, tx, of)
}

// onItsWay says of a day of a project, s, that the result of a run of it is to be delivered yet.
// What a delivery of a result carries is the run's.
const onItsWay = `EXISTS (SELECT 1 FROM deliveries d WHERE d.kind = 'result' AND d.project_id = s.project_id
	AND d.run_id >= id_at(s.day * 86400000000) AND d.run_id < id_at((s.day + 1) * 86400000000))`

// DropHistory implements store.Housekeeping. Blobs go after their days, and the rest of departed objects
// after both. A result that is on its way keeps its run as long as a delivery can be open and no longer,
// however often it is delivered anew; other open things keep what is theirs until they end. Days that are
// being read keep nothing that comes before them.
func (c *Core) DropHistory(ctx context.Context, age time.Duration, limit int) (dropped store.Dropped, err error) {
	now, err := c.Now(ctx)
	if err != nil {
		return dropped, err
	}
	before := now.Add(-age).UnixMicro() / day.Microseconds()
	keep := before - int64(min(store.MaxOpen, age.Abs())/day)
	days, err := c.engine.DropDays(ctx, before, keep, limit)
	if dropped = days.Dropped; errors.Is(err, ErrBusy) {
		return dropped, nil
	}
	rest := past{before: before, keep: keep, age: age, parted: days.Parted, open: days.Open}
	if err != nil && dropped.Count == 0 { // then what is of parts that are still there stays with them
		oldest, _, failed := c.engine.OldestDay(ctx)
		if failed != nil {
			return dropped, wrap(errors.Join(err, failed), "dropping history")
		}
		rest.before = min(before, oldest)
		rest.keep = min(keep, rest.before)
	}
	if dropped.Count == 0 {
		var failed error
		dropped.Count, failed = c.dropRest(ctx, rest, limit)
		err = errors.Join(err, failed)
	}
	return dropped, wrap(err, "dropping history")
}

// past is what is too old: what is older than age, of days before one, which are over. The ended runs of
// days from keep on stay while their results are on their way; in parts those of open days do.
type past struct {
	before, keep int64
	age          time.Duration
	parted       bool
	open         []int64
}

// dropRest deletes what goes after the parts of days, one step after the other until one has deleted some.
// A step that fails keeps none of the others from being done.
func (c *Core) dropRest(ctx context.Context, of past, limit int) (n int, err error) {
	var failed []error
	for _, step := range []func() (int, error){
		func() (int, error) {
			if of.parted {
				return c.forgetDays(ctx, of, limit)
			}
			return c.deleteDays(ctx, of.before, of.keep, limit)
		},
		func() (int, error) { return c.dropBlobsBefore(ctx, of.before, of.keep, limit) },
		func() (int, error) { return c.dropDeparted(ctx, of.age, limit) },
		func() (int, error) { return 0, c.engine.Shrink(ctx) },
	} {
		n, err := step()
		failed = append(failed, err)
		if err == nil && n > 0 || ctx.Err() != nil {
			return n, errors.Join(failed...)
		}
	}
	return 0, errors.Join(failed...)
}

// OldestHistory implements store.Housekeeping.
func (c *Core) OldestHistory(ctx context.Context) (time.Time, error) {
	oldest, parted, err := c.engine.OldestDay(ctx)
	if err == nil && !parted {
		err = c.engine.Reader().QueryRowContext(ctx, `SELECT COALESCE((SELECT s.day FROM stored_days s
			WHERE NOT `+onItsWay+` ORDER BY s.day LIMIT 1), 0)`).Scan(&oldest)
	}
	if err != nil || oldest == 0 {
		return time.Time{}, wrap(err, "looking for the oldest day of history")
	}
	return time.UnixMicro(begin(oldest)).UTC(), nil
}

// forgetDays forgets days that are gone: what projects have stored is less by what went.
func (c *Core) forgetDays(ctx context.Context, of past, limit int) (n int, err error) {
	var (
		one int
		l   list
	)
	gone := `day < ` + l.add(of.before)
	if len(of.open) > 0 {
		days := make([]string, len(of.open))
		for i, day := range of.open {
			days[i] = l.add(day)
		}
		gone += ` AND day NOT IN (` + strings.Join(days, ", ") + `)`
	}
	err = found(c.engine.Reader().QueryRowContext(ctx, `SELECT 1 FROM stored_days WHERE `+gone+` LIMIT 1`, l.args...).Scan(&one))
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) (err error) {
		n, err = c.subtract(ctx, tx, `DELETE FROM stored_days WHERE (project_id, day) IN (SELECT project_id, day FROM stored_days
			WHERE `+gone+` ORDER BY day, project_id LIMIT `+strconv.Itoa(limit)+` `+c.skipLocked+`) RETURNING project_id, day, bytes`, l.args...)
		return err
	})
	return n, wrap(err, "forgetting days")
}

// subtract forgets days by a statement, takes what was stored on them from their projects, and notes
// that they have gone.
func (c *Core) subtract(ctx context.Context, tx *Tx, statement string, args ...any) (n int, err error) {
	less, last := map[uuid.UUID]int64{}, map[uuid.UUID]int64{}
	_, err = collect(ctx, tx, func(row scanner) (none struct{}, err error) {
		var (
			on     projectDay
			stored int64
		)
		err = row.Scan(&on.project, &on.day, &stored)
		less[on.project] -= stored
		last[on.project] = max(last[on.project], on.day)
		n++
		return none, err
	}, statement, args...)
	if err == nil {
		err = addStored(ctx, tx, less)
	}
	for _, project := range slices.SortedFunc(maps.Keys(last), compareIDs) {
		if err != nil {
			break
		}
		_, err = tx.exec(ctx, `UPDATE stored_bytes SET gone_until = $2 WHERE project_id = $1 AND gone_until < $2`, project, last[project]+1)
	}
	return n, err
}

// dropBytes is about how many bytes of blobs one transaction deletes: others wait for it.
const dropBytes = 16 << 20

// sizedBlob is a blob and its size.
type sizedBlob struct {
	store.Key
	size int64
}

func scanSized(row scanner) (b sizedBlob, err error) {
	err = row.Scan(&b.ProjectID, &b.ID, &b.size)
	return b, err
}

// someOf are the first of these blobs, as many as one transaction deletes.
func someOf(blobs []sizedBlob) (keys []store.Key) {
	for total := int64(0); len(keys) < len(blobs) && total < dropBytes; {
		next := blobs[len(keys)]
		keys, total = append(keys, next.Key), total+next.size
	}
	return keys
}

// stillOpen says of a blob of history, b, that its project has something open that may name it: a blob is
// written at most looseAge before the row that names it.
var stillOpen = func() string {
	var of []string
	for _, table := range []string{"open_runs", "open_connector_runs", "deliveries"} {
		of = append(of, `EXISTS (SELECT 1 FROM `+table+` o WHERE o.project_id = b.project_id AND o.id < id_at(b.created_at + `+dayUS+`))`)
	}
	return "(" + strings.Join(of, " OR ") + ")"
}()

// dropBlobsBefore deletes blobs of history that were written some days before a day, except those that
// something open may name, and results of days from keep on that are on their way.
func (c *Core) dropBlobsBefore(ctx context.Context, before, keep int64, limit int) (n int, err error) {
	old := `SELECT b.project_id, b.id, b.size FROM blobs b WHERE b.mark = 'history' AND b.created_at < $1 AND NOT ` + stillOpen + `
		AND (b.project_id, b.id) NOT IN (SELECT r.project_id, r.output_blob_id FROM deliveries d
			JOIN ended_runs r ON r.project_id = d.project_id AND r.id = d.run_id
			WHERE d.kind = 'result' AND d.run_id >= id_at($2) AND d.run_id < id_at($3)
				AND r.id >= id_at($2) AND r.id < id_at($3) AND r.output_blob_id IS NOT NULL)
		ORDER BY b.created_at LIMIT $4 `
	written := begin(before) - blobMargin.Microseconds()
	blobs, err := collect(ctx, c.engine.Reader(), scanSized, old, written, begin(keep), begin(before), 1)
	if err != nil || len(blobs) == 0 {
		return 0, err
	}
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		blobs, err := collect(ctx, tx, scanSized, old+c.skipLocked, written, begin(keep), begin(before), min(limit, chunk))
		if err != nil {
			return err
		}
		keys := someOf(blobs)
		n = len(keys)
		return c.dropBlobs(ctx, tx, keys)
	})
	return n, wrap(err, "deleting blobs of history")
}
