// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

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

// KeepFiles marks the blobs of events' accepted files, in the accepting transaction. ErrNotFound if
// one is missing or incomplete.
func (c *Core) KeepFiles(ctx context.Context, tx *sqldb.Tx, events []store.Event) error {
	for _, e := range events {
		var blobs []store.Key
		for _, f := range e.Files {
			if f.Blob != nil {
				blobs = append(blobs, store.Key{ProjectID: e.ProjectID, ID: *f.Blob})
			}
		}
		if err := c.MarkBlobs(ctx, tx, blobs); err != nil {
			return err
		}
	}
	return nil
}

// EventFiles implements store.Files.
func (c *Core) EventFiles(ctx context.Context, connectorRun store.Key) ([]store.File, error) {
	files, err := c.inputFiles(ctx, connectorRun, sqldb.SinceCondition("id", "$1"))
	return files, sqldb.Wrap(err, "reading the files of connector run %s", connectorRun)
}

// inputFiles returns the files of an input, which has the ID of its connector run, if narrow matches.
func (c *Core) inputFiles(ctx context.Context, input store.Key, narrow string) ([]store.File, error) {
	var column *string
	err := c.ReadHistory(ctx, c.engine.Reader(), input, `SELECT files FROM {inputs} WHERE project_id = $1 AND id = $2`+narrow, &column)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && column == nil:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return filesIn(*column)
}

// filesIn decodes the files in the row of an input.
func filesIn(column string) (files []store.File, err error) {
	err = json.Unmarshal([]byte(column), &files)
	return files, sqldb.Wrap(err, "decoding files")
}

// RunFiles implements store.Files.
func (c *Core) RunFiles(ctx context.Context, run store.Key) ([]store.File, error) {
	input, err := c.inputOf(ctx, run)
	if err != nil {
		return nil, sqldb.Wrap(err, "reading the files of run %s", run)
	}
	files, err := c.inputFiles(ctx, store.Key{ProjectID: run.ProjectID, ID: input}, ``)
	return files, sqldb.Wrap(err, "reading the files of run %s", run)
}

// inputOf returns the input of a run.
func (c *Core) inputOf(ctx context.Context, run store.Key) (input uuid.UUID, err error) {
	err = sqldb.MapNoRows(c.engine.Reader().QueryRowContext(ctx, `SELECT input_id FROM open_runs WHERE project_id = $1 AND id = $2`,
		run.ProjectID, run.ID).Scan(&input))
	if errors.Is(err, store.ErrNotFound) {
		err = c.ReadHistory(ctx, c.engine.Reader(), run, `SELECT r.input_id FROM {ended_runs} r WHERE r.project_id = $1 AND r.id = $2`+sqldb.ReadableCondition("$1"), &input)
	}
	return input, err
}

// OpenRunFile implements store.Files.
func (c *Core) OpenRunFile(ctx context.Context, run store.Key, number int) (store.File, io.ReadCloser, error) {
	files, err := c.RunFiles(ctx, run)
	if err != nil {
		return store.File{}, nil, err
	}
	accepted, _ := store.SplitFiles(files)
	if number < 0 || number >= len(accepted) {
		return store.File{}, nil, fmt.Errorf("file %d of run %s: %w", number, run, store.ErrNotFound)
	}
	body, err := c.OpenBlob(ctx, store.Key{ProjectID: run.ProjectID, ID: *accepted[number].Blob})
	return accepted[number], body, sqldb.Wrap(err, "reading file %d of run %s", number, run)
}
