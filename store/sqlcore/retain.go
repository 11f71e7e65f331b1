// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
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

// DropHistory implements store.Housekeeping. Blobs go after their days, and what objects have left
// that are gone after both. What stays for deliveries does so as long as one can be open and no
// longer, however often a result is delivered anew. Days that somebody reads keep nothing that comes
// before them.
func (c *Core) DropHistory(ctx context.Context, age time.Duration, limit int) (dropped store.Dropped, err error) {
	now, err := c.Now(ctx)
	if err != nil {
		return dropped, err
	}
	before := now.Add(-age).UnixMicro() / day.Microseconds()
	keep := before - int64(min(store.MaxOpen, age.Abs())/day)
	dropped, parted, err := c.engine.DropDays(ctx, before, keep, limit)
	var read error
	switch {
	case errors.Is(err, ErrBusy):
		return dropped, nil
	case errors.Is(err, ErrRead) && dropped.Count == 0:
		read = err
		var oldest int64
		if oldest, _, err = c.engine.OldestDay(ctx); err == nil {
			before = min(before, oldest)
			keep = min(keep, before)
		}
	}
	if err == nil && dropped.Count == 0 {
		dropped.Count, err = c.dropRest(ctx, age, before, keep, parted, limit)
	}
	return dropped, wrap(errors.Join(read, err), "dropping history")
}

// dropRest deletes what goes after the parts of days before one.
func (c *Core) dropRest(ctx context.Context, age time.Duration, before, keep int64, parted bool, limit int) (n int, err error) {
	if parted {
		n, err = c.forgetDays(ctx, before, limit)
	} else {
		n, err = c.deleteDays(ctx, before, keep, limit)
	}
	if err == nil && n == 0 {
		n, err = c.dropBlobsBefore(ctx, before, keep, limit)
	}
	if err == nil && n == 0 {
		n, err = c.dropDeparted(ctx, age, limit)
	}
	if err == nil && n == 0 {
		err = c.engine.Shrink(ctx)
	}
	return n, err
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
func (c *Core) forgetDays(ctx context.Context, before int64, limit int) (n int, err error) {
	var one int
	err = found(c.engine.Reader().QueryRowContext(ctx, `SELECT 1 FROM stored_days WHERE day < $1 LIMIT 1`, before).Scan(&one))
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) (err error) {
		n, err = c.subtract(ctx, tx, `DELETE FROM stored_days WHERE (project_id, day) IN (SELECT project_id, day FROM stored_days
			WHERE day < $1 ORDER BY day, project_id LIMIT $2 `+c.skipLocked+`) RETURNING project_id, day, bytes`, before, limit)
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

// dropBlobsBefore deletes blobs of history that were written some days before a day, but for
// results of days from keep on that are on their way.
func (c *Core) dropBlobsBefore(ctx context.Context, before, keep int64, limit int) (n int, err error) {
	const old = `SELECT b.project_id, b.id, b.size FROM blobs b WHERE b.mark = 'history' AND b.created_at < $1
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
