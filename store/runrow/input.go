// SPDX-License-Identifier: Apache-2.0

package runrow

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Input is the input of a run. Data is nil if it is in a blob.
type Input struct {
	ID          uuid.UUID
	ContentType string
	Data        []byte
	Blob        *uuid.UUID
	Files       bool // whether it has attachments
	Headers     map[string]string
	Traceparent string
}

// AddTo sets the input of a claimed run.
func (in Input) AddTo(claimed *store.Claimed) {
	claimed.Input, claimed.InputBlob, claimed.ContentType, claimed.Files = in.Data, in.Blob, in.ContentType, in.Files
	claimed.Headers, claimed.Traceparent = in.Headers, in.Traceparent
}

const inputColumns = `id, content_type, data, blob_id, files IS NOT NULL, headers, COALESCE(traceparent, '')`

// InputStatement reads inputs of one partition by an array of IDs.
const InputStatement = `SELECT ` + inputColumns + ` FROM {inputs} WHERE project_id = $1 AND id = ANY($2::uuid[])`

// ScanInput reads an input.
func ScanInput(row interface{ Scan(dest ...any) error }) (in Input, err error) {
	err = row.Scan(&in.ID, &in.ContentType, &in.Data, &in.Blob, &in.Files, sqldb.ScanJSON(&in.Headers), &in.Traceparent)
	return in, err
}

// Inputs reads inputs of a project by ID.
func Inputs(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, project uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]Input, error) {
	out := map[uuid.UUID]Input{}
	for _, same := range db.IDsByPart("inputs", ids) {
		var l sqldb.Args
		rows, err := sqldb.PastRows(ctx, db, q, same[0], func(row sqldb.Scanner) (Input, error) { return ScanInput(row) },
			`SELECT `+inputColumns+` FROM {inputs} WHERE `+db.KeyCondition(&l, "id", sqldb.KeysFromIDs(project, same)), l.Values...)
		if err != nil {
			return nil, err
		}
		for _, in := range rows {
			out[in.ID] = in
		}
	}
	return out, nil
}

// AddInputs reads the inputs of claimed runs.
func AddInputs(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, project uuid.UUID, runs []store.Claimed, ids []uuid.UUID) error {
	found, err := Inputs(ctx, db, q, project, ids)
	for i := range runs {
		found[ids[i]].AddTo(&runs[i])
	}
	return sqldb.Wrap(err, "reading the inputs of claimed runs")
}

// FilesIn decodes the files in the row of an input.
func FilesIn(column string) (files []store.File, err error) {
	err = json.Unmarshal([]byte(column), &files)
	return files, sqldb.Wrap(err, "decoding files")
}

// FilesColumn returns an event's files for the row of its input, nil without any, and the total
// bytes of accepted files.
func FilesColumn(files []store.File) (text *string, size int64) {
	if len(files) == 0 {
		return nil, 0
	}
	for _, f := range files {
		size += f.Size
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(files) // always encodes
	column := sqldb.Text(out.String())
	return &column, size
}

// HeadersColumn returns an event's headers for the row of its input, nil without any.
func HeadersColumn(headers map[string]string) *string {
	if len(headers) == 0 {
		return nil
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(headers) // always encodes
	column := sqldb.Text(out.String())
	return &column
}

// TraceparentColumn returns a traceparent for a row, nil without one.
func TraceparentColumn(traceparent string) *string {
	if traceparent == "" {
		return nil
	}
	return &traceparent
}

// AddFileBlobs adds the blobs of the files of an input.
func AddFileBlobs(blobs []store.Key, project uuid.UUID, column string) ([]store.Key, error) {
	files, err := FilesIn(column)
	for _, file := range files {
		if file.Blob != nil {
			blobs = append(blobs, store.Key{ProjectID: project, ID: *file.Blob})
		}
	}
	return blobs, err
}
