// SPDX-License-Identifier: Apache-2.0

package runrow

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// PastRun is an ended run whose output may be in a blob.
type PastRun struct {
	store.Run
	Blob *uuid.UUID
}

// PastEntry is a journal entry whose data may be in a blob.
type PastEntry struct {
	store.JournalEntry
	Blob *uuid.UUID
}

// PastColumns are columns of an ended run with the blob of its output.
const PastColumns = EndedColumns + `, r.output_blob_id`

// ScanPast reads an ended run with the blob of its output.
func ScanPast(row sqldb.Scanner) (r PastRun, err error) {
	err = row.Scan(append(Fields(&r.Run), &r.Blob)...)
	return r, err
}

// EntryColumns are columns of a journal row j. The blob of a saved file is no part of its entry. EntryAliases are the same
// columns of a row j that a query with these columns returns.
const (
	EntryColumns = `j.sequence, j.kind, j.data, j.unsafe, CASE WHEN j.data IS NULL THEN j.blob_id END AS blob_id, j.at`
	EntryAliases = `j.sequence, j.kind, j.data, j.unsafe, j.blob_id, j.at`
)

// WithOutputs returns runs of a project with their outputs.
func WithOutputs(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, project uuid.UUID, past []PastRun) ([]store.Run, error) {
	if len(past) == 0 {
		return nil, nil
	}
	var blobs []store.Key
	runs := make([]store.Run, len(past))
	for i, run := range past {
		if runs[i] = run.Run; run.Blob != nil {
			blobs = append(blobs, store.Key{ProjectID: project, ID: *run.Blob})
		}
	}
	texts, err := readBlobs(ctx, db, q, blobs)
	if err != nil {
		return nil, err
	}
	for i, run := range past {
		if run.Blob != nil {
			runs[i].Output = string(texts[*run.Blob])
		}
	}
	return runs, nil
}

// WholeEntries returns entries of a run with their data.
func WholeEntries(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, project uuid.UUID, past []PastEntry) ([]store.JournalEntry, error) {
	if len(past) == 0 {
		return nil, nil
	}
	var blobs []store.Key
	entries := make([]store.JournalEntry, len(past))
	for i, e := range past {
		if entries[i] = e.JournalEntry; e.Blob != nil {
			blobs = append(blobs, store.Key{ProjectID: project, ID: *e.Blob})
		}
	}
	texts, err := readBlobs(ctx, db, q, blobs)
	if err != nil {
		return nil, err
	}
	for i, e := range past {
		if e.Blob != nil {
			entries[i].Data = texts[*e.Blob]
		}
	}
	return entries, nil
}

// readBlobs reads blobs completely, in one statement.
func readBlobs(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, blobs []store.Key) (map[uuid.UUID][]byte, error) {
	if len(blobs) == 0 {
		return nil, nil
	}
	var l sqldb.Args
	texts, sizes := map[uuid.UUID][]byte{}, map[uuid.UUID]int{}
	if err := sqldb.EachRow(ctx, q, func(row sqldb.Scanner) (err error) {
		var (
			id   uuid.UUID
			data []byte
			size int
		)
		err = row.Scan(&id, &data, &size)
		if sizes[id] == 0 {
			texts[id] = make([]byte, 0, size)
		}
		texts[id], sizes[id] = append(texts[id], data...), size
		return err
	}, `SELECT c.blob_id, c.data, b.size FROM blob_chunks c JOIN blobs b ON b.project_id = c.project_id AND b.id = c.blob_id
		WHERE `+db.KeyCondition(&l, "c.blob_id", blobs)+` ORDER BY c.blob_id, c.number`, l.Values...); err != nil {
		return nil, sqldb.Wrap(err, "reading blobs")
	}
	for _, blob := range blobs {
		if len(texts[blob.ID]) == 0 || len(texts[blob.ID]) != sizes[blob.ID] {
			return nil, fmt.Errorf("blob %s is incomplete: %w", blob, store.ErrNotFound)
		}
	}
	return texts, nil
}
