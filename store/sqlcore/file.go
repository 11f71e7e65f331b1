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
)

// FilesColumn are an event's files as the row of its input has them, nil without any, and
// how many bytes those have together that were accepted.
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
	_ = encoder.Encode(files) // can be encoded
	column := Text(out.String())
	return &column, size
}

// KeepFiles marks the blobs of events' accepted files, in the transaction that records
// the events. ErrNotFound where one is not there whole.
func (c *Core) KeepFiles(ctx context.Context, tx *Tx, events []store.Event) error {
	for _, e := range events {
		var blobs []store.Key
		for _, f := range e.Files {
			if f.Blob != nil {
				blobs = append(blobs, store.Key{ProjectID: e.ProjectID, ID: *f.Blob})
			}
		}
		if err := c.keep(ctx, tx, blobs); err != nil {
			return err
		}
	}
	return nil
}

// EventFiles implements store.Files.
func (c *Core) EventFiles(ctx context.Context, connectorRun store.Key) ([]store.File, error) {
	files, err := c.files(ctx, connectorRun, since("id", "$1"))
	return files, wrap(err, "reading the files of connector run %s", connectorRun)
}

// files are those of an input, which has the id of its connector run, if that is as narrow says.
func (c *Core) files(ctx context.Context, input store.Key, narrow string) ([]store.File, error) {
	var column *string
	err := c.inHistory(ctx, c.engine.Reader(), input, `SELECT files FROM {inputs} WHERE project_id = $1 AND id = $2`+narrow, &column)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && column == nil:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return filesIn(*column)
}

// filesIn are the files that the row of an input has.
func filesIn(column string) (files []store.File, err error) {
	err = json.Unmarshal([]byte(column), &files)
	return files, wrap(err, "decoding files")
}

// RunFiles implements store.Files.
func (c *Core) RunFiles(ctx context.Context, run store.Key) ([]store.File, error) {
	input, err := c.inputOf(ctx, run)
	if err != nil {
		return nil, wrap(err, "reading the files of run %s", run)
	}
	files, err := c.files(ctx, store.Key{ProjectID: run.ProjectID, ID: input}, ``)
	return files, wrap(err, "reading the files of run %s", run)
}

// inputOf is the input of a run.
func (c *Core) inputOf(ctx context.Context, run store.Key) (input uuid.UUID, err error) {
	err = found(c.engine.Reader().QueryRowContext(ctx, `SELECT input_id FROM open_runs WHERE project_id = $1 AND id = $2`,
		run.ProjectID, run.ID).Scan(&input))
	if errors.Is(err, store.ErrNotFound) {
		err = c.inHistory(ctx, c.engine.Reader(), run, `SELECT r.input_id FROM {ended_runs} r WHERE r.project_id = $1 AND r.id = $2`+readable("$1"), &input)
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
	return accepted[number], body, wrap(err, "reading file %d of run %s", number, run)
}
