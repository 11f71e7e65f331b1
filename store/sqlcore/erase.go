// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// erasure is a run that is being erased. Its statements name the tables of history whole: parts of
// those that hold the run's event and deliveries may be gone before the run's.
type erasure struct {
	*Core
	tx  *Tx
	run store.Key
	// blobs are those that held what is erased, less how many bytes are stored no more, by the
	// row that had them.
	blobs []store.Key
	less  map[store.Key]int64
}

// erasedRow is what the row of a run that is erased says.
type erasedRow struct {
	input uuid.UUID
	event *uuid.UUID
	blob  *uuid.UUID
	bytes int64
}

// EraseRun implements store.Eraser. It is the one thing that changes history: the run's row stays
// without its contents, for numbers.
func (c *Core) EraseRun(ctx context.Context, run store.Key) error {
	var e *erasure
	err := c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		e = &erasure{Core: c, tx: tx, run: run, less: map[store.Key]int64{}}
		return e.all(ctx)
	})
	if err == nil {
		c.dropLoose(ctx, e.blobs)
	}
	return wrap(err, "erasing run %s", run)
}

func (e *erasure) all(ctx context.Context) error {
	var open bool
	err := e.tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM open_runs WHERE project_id = $1 AND id = $2)`, e.run.ProjectID, e.run.ID).Scan(&open)
	if err == nil && open {
		err = store.ErrConflict
	}
	if err != nil {
		return err
	}
	if err := e.lockPast(ctx, e.tx, e.run.ProjectID); err != nil {
		return err
	}
	row, err := e.strip(ctx)
	if err != nil {
		return err
	}
	if _, err := e.tx.exec(ctx, `DELETE FROM run_words WHERE project_id = $1 AND run_id = $2`, e.run.ProjectID, e.run.ID); err != nil {
		return err
	}
	if err := e.journal(ctx); err != nil {
		return err
	}
	last, err := e.isLast(ctx, row.event)
	if err != nil {
		return err
	}
	if last {
		if err := e.inputs(ctx, []store.Key{{ProjectID: e.run.ProjectID, ID: row.input}}); err != nil {
			return err
		}
	}
	if err := e.deliveries(ctx); err != nil {
		return err
	}
	return e.uncount(ctx)
}

// strip takes its contents from the run's row; ErrNotFound where it has none.
func (e *erasure) strip(ctx context.Context) (row erasedRow, err error) {
	err = found(e.tx.QueryRowContext(ctx, `SELECT r.input_id, r.connector_run_id, r.output_blob_id, octet_length(r.output) + octet_length(r.error)
		FROM ended_runs r WHERE r.project_id = $1 AND r.id = $2`+unerased("r")+` `+e.exclusive, e.run.ProjectID, e.run.ID).
		Scan(&row.input, &row.event, &row.blob, &row.bytes))
	if err != nil {
		return row, err
	}
	e.took(e.run, row.bytes, row.blob)
	_, err = e.tx.exec(ctx, `UPDATE ended_runs SET output = '', error = '', output_blob_id = NULL, erased_at = now_us()
		WHERE project_id = $1 AND id = $2`, e.run.ProjectID, e.run.ID)
	return row, err
}

// took notes what a row had, and lets its blob go with it.
func (e *erasure) took(of store.Key, bytes int64, blob *uuid.UUID) {
	e.less[of] += bytes
	if blob != nil {
		e.blobs = append(e.blobs, store.Key{ProjectID: of.ProjectID, ID: *blob})
	}
}

// journal deletes the run's. What its models' calls cost is numbers alone.
func (e *erasure) journal(ctx context.Context) error {
	_, err := collect(ctx, e.tx, func(row scanner) (none struct{}, err error) {
		var (
			bytes int64
			blob  *uuid.UUID
		)
		err = row.Scan(&bytes, &blob)
		e.took(e.run, bytes, blob)
		return none, err
	}, `DELETE FROM journal WHERE project_id = $1 AND run_id = $2
		RETURNING `+strconv.Itoa(store.EntryOverhead)+` + octet_length(kind) + COALESCE(octet_length(data), 0), blob_id`, e.run.ProjectID, e.run.ID)
	return err
}

// isLast says whether the run is the last of its event that is there. The event is locked, so
// that of two that are erased at once one is.
func (e *erasure) isLast(ctx context.Context, event *uuid.UUID) (bool, error) {
	if event == nil {
		return true, nil
	}
	var runs []uuid.UUID
	for _, table := range []string{`open_connector_runs`, `ended_connector_runs`} {
		err := found(e.tx.QueryRowContext(ctx, `SELECT run_ids FROM `+table+` WHERE project_id = $1 AND id = $2 `+e.exclusive,
			e.run.ProjectID, *event).Scan(idList{&runs}))
		if err == nil {
			break
		}
		if !errors.Is(err, store.ErrNotFound) {
			return false, err
		}
	}
	runs = slices.DeleteFunc(runs, func(id uuid.UUID) bool { return id == e.run.ID })
	if len(runs) == 0 {
		return true, nil
	}
	var left bool
	l := list{args: []any{e.run.ProjectID}}
	among := l.ids(runs)
	err := e.tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM open_runs o WHERE o.project_id = $1 AND o.id IN `+among+`)
		OR EXISTS (SELECT 1 FROM ended_runs r WHERE r.project_id = $1 AND r.id IN `+among+unerased("r")+`)`, l.args...).Scan(&left)
	return !left, err
}

// inputs deletes those of an event, or of deliveries.
func (e *erasure) inputs(ctx context.Context, ids []store.Key) error {
	for some := range slices.Chunk(ids, chunk) {
		var l list
		if _, err := collect(ctx, e.tx, func(row scanner) (none struct{}, err error) {
			var (
				key   store.Key
				bytes int64
				blob  *uuid.UUID
				files *string
			)
			if err = row.Scan(&key.ProjectID, &key.ID, &bytes, &blob, &files); err != nil {
				return none, err
			}
			e.took(key, bytes, blob)
			if files != nil {
				e.blobs, err = addFiles(e.blobs, key.ProjectID, *files)
			}
			return none, err
		}, `DELETE FROM inputs WHERE `+e.keys(&l, "id", some)+` RETURNING project_id, id, COALESCE(octet_length(data), 0), blob_id, files`, l.args...); err != nil {
			return err
		}
	}
	return nil
}

// deliveries erases what the run has sent, and what was answered. Their rows stay, those of open
// ones too: whoever takes one finds nothing to send.
func (e *erasure) deliveries(ctx context.Context) error {
	made, err := collect(ctx, e.tx, scanKey, `SELECT c.project_id, c.id FROM ended_connector_runs c
			WHERE c.project_id = $1 AND c.id >= id_at($3) AND c.kind <> '' AND `+e.engine.First("c.run_ids")+` = $2
		UNION ALL
		SELECT d.project_id, d.id FROM deliveries d WHERE d.project_id = $1 AND d.run_id = $2`,
		e.run.ProjectID, e.run.ID, Instant(store.TimeOf(e.run.ID)))
	if err != nil {
		return err
	}
	if err := e.inputs(ctx, made); err != nil {
		return err
	}
	for some := range slices.Chunk(made, chunk) {
		var had, l list
		if _, err := collect(ctx, e.tx, func(row scanner) (none struct{}, err error) {
			var (
				key   store.Key
				bytes int64
			)
			err = row.Scan(&key.ProjectID, &key.ID, &bytes)
			e.less[key] += bytes
			return none, err
		}, `SELECT project_id, delivery_id, octet_length(response) FROM delivery_attempts WHERE `+e.keys(&had, "delivery_id", some), had.args...); err != nil {
			return err
		}
		if _, err := e.tx.exec(ctx, `UPDATE delivery_attempts SET response = '' WHERE response <> '' AND `+e.keys(&l, "delivery_id", some), l.args...); err != nil {
			return err
		}
	}
	return nil
}

// uncount lets the blobs go, and what was stored be counted no more.
func (e *erasure) uncount(ctx context.Context) error {
	for some := range slices.Chunk(e.blobs, chunk) {
		var l list
		if _, err := collect(ctx, e.tx, func(row scanner) (none struct{}, err error) {
			var size int64
			err = row.Scan(&size)
			e.less[e.run] += size
			return none, err
		}, `UPDATE blobs SET mark = '' WHERE `+e.keys(&l, "id", some)+` RETURNING size`, l.args...); err != nil {
			return wrap(err, "letting go of blobs")
		}
	}
	more := map[store.Key]int64{}
	for key, bytes := range e.less {
		more[key] = -bytes
	}
	return countMore(ctx, e.tx, slices.Collect(maps.Keys(more)), more)
}
