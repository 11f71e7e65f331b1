// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/searchindex"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// erasure is a run that is being erased. Its statements name partitions, because a statement on a
// whole table would lock as many partitions as there are days. A partition may be deleted before
// the partition of the run.
type erasure struct {
	*sqldb.DB
	tx  *sqldb.Tx
	run store.Key
	// sent are the run's deliveries, except those created after the query.
	sent []store.Key
	// blobs are the blobs of erased values. less is the number of bytes to subtract, by row.
	blobs []store.Key
	less  map[store.Key]int64
}

// erasedRow has the values of the row of an erased run.
type erasedRow struct {
	input uuid.UUID
	event *uuid.UUID
	blob  *uuid.UUID
	bytes int64
}

// EraseRun implements store.Eraser. It is the only operation that changes history. The run's row
// stays for statistics, without its contents.
func (s *Store) EraseRun(ctx context.Context, run store.Key) error {
	sent, err := s.deliveriesSentBy(ctx, run)
	if err != nil {
		return sqldb.Wrap(err, "erasing run %s", run)
	}
	var e *erasure
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		e = &erasure{DB: s.db, tx: tx, run: run, sent: sent, less: map[store.Key]int64{}}
		return e.eraseContents(ctx)
	})
	if err == nil {
		s.blobs.DropUnmarked(ctx, e.blobs)
	}
	return sqldb.Wrap(err, "erasing run %s", run)
}

// deliveriesOf returns the open deliveries of a run.
func deliveriesOf(ctx context.Context, q sqldb.Queryer, run store.Key) ([]store.Key, error) {
	return sqldb.Collect(ctx, q, sqldb.ScanKey, `SELECT d.project_id, d.id FROM deliveries d WHERE d.project_id = $1 AND d.run_id = $2`, run.ProjectID, run.ID)
}

// deliveriesSentBy returns the deliveries of a run: the open ones first, because they may end meanwhile, then
// the ended ones. They can be on any day since the day of the run with history of the project. It reads
// outside of transactions, one day at a time, so that no day stays locked.
func (s *Store) deliveriesSentBy(ctx context.Context, run store.Key) (sent []store.Key, err error) {
	if sent, err = deliveriesOf(ctx, s.db.Reader(), run); err != nil {
		return nil, sqldb.Wrap(err, "reading its deliveries")
	}
	days, parted, err := s.db.ProjectDays(ctx, s.db.Lists(), "ended_connector_runs", run.ProjectID)
	if err != nil {
		return nil, err
	}
	within := []timewindow.Period{{From: sqldb.Instant(store.TimeOf(run.ID)), To: timewindow.Never}}
	if parted {
		within = nil
		for _, day := range days {
			if day >= sqldb.DayOf(run.ID) {
				within = append(within, timewindow.Period{From: sqldb.DayStart(day), To: sqldb.DayStart(day + 1)})
			}
		}
	}
	for _, of := range within {
		l := sqldb.Args{Values: []any{run.ProjectID, run.ID}}
		some, err := sqldb.Collect(ctx, s.db.Lists(), sqldb.ScanKey, `SELECT c.project_id, c.id FROM ended_connector_runs c
			WHERE c.project_id = $1 AND c.kind <> '' AND `+s.db.FirstElement("c.run_ids")+` = $2`+timewindow.Condition("c.id", of, &l), l.Values...)
		if err != nil {
			return nil, sqldb.Wrap(err, "reading its deliveries")
		}
		sent = append(sent, some...)
	}
	return sent, nil
}

// hasPart reports whether the partition of an ID exists. A transaction checks that before it names
// the partition.
func (e *erasure) hasPart(ctx context.Context, table string, id uuid.UUID) (bool, error) {
	return e.HasPart(ctx, e.tx, table, id)
}

func (e *erasure) eraseContents(ctx context.Context) error {
	var open bool
	err := e.tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM open_runs WHERE project_id = $1 AND id = $2)`, e.run.ProjectID, e.run.ID).Scan(&open)
	if err == nil && open {
		err = store.ErrConflict
	}
	if err != nil {
		return err
	}
	if err := e.LockPast(ctx, e.tx, e.run.ProjectID); err != nil {
		return err
	}
	row, err := e.stripContents(ctx)
	if err != nil {
		return err
	}
	words, err := searchindex.DropEntry(ctx, e.DB, e.tx, e.run)
	if err != nil {
		return err
	}
	e.recordRemoved(e.run, words, nil)
	if err := e.deleteJournal(ctx); err != nil {
		return err
	}
	if _, err := e.tx.Exec(ctx, `DELETE FROM outbox_traces WHERE project_id = $1 AND run_id = $2`, e.run.ProjectID, e.run.ID); err != nil {
		return err
	}
	last, err := e.isLastRun(ctx, row.event)
	if err != nil {
		return err
	}
	if last {
		if err := e.deleteInputs(ctx, []store.Key{{ProjectID: e.run.ProjectID, ID: row.input}}); err != nil {
			return err
		}
	}
	if err := e.erasePayloads(ctx); err != nil {
		return err
	}
	return e.subtractBytes(ctx)
}

// stripContents removes the contents from the run's row; ErrNotFound if there are none.
func (e *erasure) stripContents(ctx context.Context) (row erasedRow, err error) {
	if there, err := e.hasPart(ctx, "ended_runs", e.run.ID); err != nil || !there {
		return row, cmp.Or(err, store.ErrNotFound)
	}
	err = sqldb.MapNoRows(e.tx.QueryRowContext(ctx, e.InPart(`SELECT r.input_id, r.connector_run_id, r.output_blob_id, octet_length(r.output) + octet_length(r.error) + octet_length(r.context)
		FROM {ended_runs} r WHERE r.project_id = $1 AND r.id = $2`+sqldb.UnerasedCondition("r")+` `+e.Exclusive, e.run.ID), e.run.ProjectID, e.run.ID).
		Scan(&row.input, &row.event, &row.blob, &row.bytes))
	if err != nil {
		return row, err
	}
	e.recordRemoved(e.run, row.bytes, row.blob)
	_, err = e.tx.Exec(ctx, e.InPart(`UPDATE {ended_runs} SET output = '', error = '', context = '', output_blob_id = NULL, erased_at = now_us()
		WHERE project_id = $1 AND id = $2`, e.run.ID), e.run.ProjectID, e.run.ID)
	return row, err
}

// recordRemoved records the size of a removed value, and releases its blob.
func (e *erasure) recordRemoved(of store.Key, bytes int64, blob *uuid.UUID) {
	e.less[of] += bytes
	if blob != nil {
		e.blobs = append(e.blobs, store.Key{ProjectID: of.ProjectID, ID: *blob})
	}
}

// deleteJournal deletes the run's journal. The usage of its model calls has only numbers and stays.
func (e *erasure) deleteJournal(ctx context.Context) error {
	there, err := e.hasPart(ctx, "journal", e.run.ID)
	if err != nil || !there {
		return err
	}
	return sqldb.EachRow(ctx, e.tx, func(row sqldb.Scanner) (err error) {
		var (
			bytes int64
			blob  *uuid.UUID
		)
		err = row.Scan(&bytes, &blob)
		e.recordRemoved(e.run, bytes, blob)
		return err
	}, e.InPart(`DELETE FROM {journal} WHERE project_id = $1 AND run_id = $2
		RETURNING `+strconv.Itoa(store.EntryOverhead)+` + octet_length(kind) + COALESCE(octet_length(data), 0), blob_id`, e.run.ID), e.run.ProjectID, e.run.ID)
}

// isLastRun reports whether the run is the last existing run of its event. The event is locked, so if
// two runs are erased at once, one of them is the last.
func (e *erasure) isLastRun(ctx context.Context, event *uuid.UUID) (bool, error) {
	if event == nil {
		return true, nil
	}
	var runs []uuid.UUID
	for _, table := range []string{`open_connector_runs`, `{ended_connector_runs}`} {
		if table == `{ended_connector_runs}` {
			if there, err := e.hasPart(ctx, "ended_connector_runs", *event); err != nil || !there {
				return err == nil, err
			}
		}
		err := sqldb.MapNoRows(e.tx.QueryRowContext(ctx, e.InPart(`SELECT run_ids FROM `+table+` WHERE project_id = $1 AND id = $2 `+e.Exclusive, *event),
			e.run.ProjectID, *event).Scan(sqldb.ScanIDs(&runs)))
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
	l := sqldb.Args{Values: []any{e.run.ProjectID}}
	var left bool
	err := e.tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM open_runs o WHERE o.project_id = $1 AND o.id IN `+l.AddIDs(runs)+`)`, l.Values...).Scan(&left)
	for _, same := range e.IDsByPart("ended_runs", runs) {
		var there bool
		if err == nil && !left {
			there, err = e.hasPart(ctx, "ended_runs", same[0])
		}
		if there && err == nil {
			l := sqldb.Args{Values: []any{e.run.ProjectID}}
			err = e.tx.QueryRowContext(ctx, e.InPart(`SELECT EXISTS (SELECT 1 FROM {ended_runs} r WHERE r.project_id = $1 AND r.id IN `+l.AddIDs(same)+
				sqldb.UnerasedCondition("r")+`)`, same[0]), l.Values...).Scan(&left)
		}
	}
	return !left, err
}

// deleteInputs deletes the inputs of an event or of deliveries.
func (e *erasure) deleteInputs(ctx context.Context, ids []store.Key) error {
	return e.byParts(ctx, "inputs", ids, func(some []store.Key) error {
		var l sqldb.Args
		return sqldb.EachRow(ctx, e.tx, func(row sqldb.Scanner) (err error) {
			var (
				key   store.Key
				bytes int64
				blob  *uuid.UUID
				files *string
			)
			if err = row.Scan(&key.ProjectID, &key.ID, &bytes, &blob, &files); err != nil {
				return err
			}
			e.recordRemoved(key, bytes, blob)
			if files != nil {
				e.blobs, err = runrow.AddFileBlobs(e.blobs, key.ProjectID, *files)
			}
			return err
		}, e.InPart(`DELETE FROM {inputs} WHERE `+e.KeyCondition(&l, "id", some)+` RETURNING project_id, id, COALESCE(octet_length(data), 0), blob_id, files`, some[0].ID), l.Values...)
	})
}

// byParts calls do with keys of a history table, in batches of one partition. It skips deleted
// partitions.
func (e *erasure) byParts(ctx context.Context, table string, keys []store.Key, do func(some []store.Key) error) error {
	for _, same := range e.KeysByPart(table, keys) {
		if there, err := e.hasPart(ctx, table, same[0].ID); err != nil {
			return err
		} else if !there {
			continue
		}
		for some := range slices.Chunk(same, sqldb.MaxIDs) {
			if err := do(some); err != nil {
				return err
			}
		}
	}
	return nil
}

// erasePayloads erases the payloads of the run and the responses to them. The rows stay, also the rows of
// open deliveries: a claim finds nothing to send.
func (e *erasure) erasePayloads(ctx context.Context) error {
	open, err := deliveriesOf(ctx, e.tx, e.run)
	if err != nil {
		return err
	}
	made := slices.Concat(e.sent, open)
	slices.SortFunc(made, sqldb.CompareKeys)
	made = slices.Compact(made)
	if err := e.deleteInputs(ctx, made); err != nil {
		return err
	}
	return e.byParts(ctx, "delivery_attempts", made, func(some []store.Key) error {
		var had, l sqldb.Args
		if err := sqldb.EachRow(ctx, e.tx, func(row sqldb.Scanner) (err error) {
			var (
				key   store.Key
				bytes int64
			)
			err = row.Scan(&key.ProjectID, &key.ID, &bytes)
			e.less[key] += bytes
			return err
		}, e.InPart(`SELECT project_id, delivery_id, octet_length(response) FROM {delivery_attempts} WHERE `+e.KeyCondition(&had, "delivery_id", some), some[0].ID), had.Values...); err != nil {
			return err
		}
		_, err := e.tx.Exec(ctx, e.InPart(`UPDATE {delivery_attempts} SET response = '' WHERE response <> '' AND `+e.KeyCondition(&l, "delivery_id", some), some[0].ID), l.Values...)
		return err
	})
}

// subtractBytes releases the blobs and subtracts the stored bytes.
func (e *erasure) subtractBytes(ctx context.Context) error {
	for some := range slices.Chunk(e.blobs, sqldb.MaxIDs) {
		var l sqldb.Args
		if err := sqldb.EachRow(ctx, e.tx, func(row sqldb.Scanner) (err error) {
			var size int64
			err = row.Scan(&size)
			e.less[e.run] += size
			return err
		}, `UPDATE blobs SET mark = '' WHERE `+e.KeyCondition(&l, "id", some)+` RETURNING size`, l.Values...); err != nil {
			return sqldb.Wrap(err, "releasing blobs")
		}
	}
	more := map[store.Key]int64{}
	for key, bytes := range e.less {
		more[key] = -bytes
	}
	return storedbytes.Post(ctx, e.tx, slices.Collect(maps.Keys(more)), more)
}
