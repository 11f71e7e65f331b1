// SPDX-License-Identifier: Apache-2.0

package agentrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// EventInput implements store.Replays.
func (s *Store) EventInput(ctx context.Context, connectorRun store.Key) (in store.EventInput, err error) {
	var files *string
	found, err := sqldb.PastRows(ctx, s.db, s.db.Reader(), connectorRun.ID, func(row sqldb.Scanner) (in store.EventInput, err error) {
		return in, row.Scan(&in.ContentType, &in.Data, &in.Blob, &files, sqldb.ScanJSON(&in.Headers), &in.Hops)
	}, `SELECT content_type, data, blob_id, files, headers, hops FROM {inputs} WHERE project_id = $1 AND id = $2`+sqldb.SinceCondition("id", "$1"), connectorRun.ProjectID, connectorRun.ID)
	switch {
	case err == nil && len(found) == 0:
		err = store.ErrNotFound
	case err == nil:
		in = found[0]
	}
	if err == nil && files != nil {
		err = json.Unmarshal([]byte(*files), &in.Files)
	}
	return in, sqldb.Wrap(err, "reading the input of connector run %s", connectorRun)
}

// EventFiles implements store.Files.
func (s *Store) EventFiles(ctx context.Context, connectorRun store.Key) ([]store.File, error) {
	files, err := inputFiles(ctx, s.db, connectorRun, sqldb.SinceCondition("id", "$1"))
	return files, sqldb.Wrap(err, "reading the files of connector run %s", connectorRun)
}

// inputFiles returns the files of an input, which has the ID of its connector run, if narrow matches.
func inputFiles(ctx context.Context, db *sqldb.DB, input store.Key, narrow string) ([]store.File, error) {
	var column *string
	err := db.ReadHistory(ctx, db.Reader(), input, `SELECT files FROM {inputs} WHERE project_id = $1 AND id = $2`+narrow, &column)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && column == nil:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return runrow.FilesIn(*column)
}

// RunFiles implements store.Files.
func (s *Store) RunFiles(ctx context.Context, run store.Key) ([]store.File, error) {
	input, err := inputOf(ctx, s.db, run)
	if err != nil {
		return nil, sqldb.Wrap(err, "reading the files of run %s", run)
	}
	files, err := inputFiles(ctx, s.db, store.Key{ProjectID: run.ProjectID, ID: input}, ``)
	return files, sqldb.Wrap(err, "reading the files of run %s", run)
}

// inputOf returns the input of a run.
func inputOf(ctx context.Context, db *sqldb.DB, run store.Key) (input uuid.UUID, err error) {
	err = sqldb.MapNoRows(db.Reader().QueryRowContext(ctx, `SELECT input_id FROM open_runs WHERE project_id = $1 AND id = $2`,
		run.ProjectID, run.ID).Scan(&input))
	if errors.Is(err, store.ErrNotFound) {
		err = db.ReadHistory(ctx, db.Reader(), run, `SELECT r.input_id FROM {ended_runs} r WHERE r.project_id = $1 AND r.id = $2`+sqldb.ReadableCondition("$1"), &input)
	}
	return input, err
}

// OpenRunFile implements store.Files.
func (s *Store) OpenRunFile(ctx context.Context, run store.Key, number int) (store.File, io.ReadCloser, error) {
	files, err := s.RunFiles(ctx, run)
	if err != nil {
		return store.File{}, nil, err
	}
	accepted, _ := store.SplitFiles(files)
	if number < 0 || number >= len(accepted) {
		return store.File{}, nil, fmt.Errorf("file %d of run %s: %w", number, run, store.ErrNotFound)
	}
	body, err := s.blobs.OpenBlob(ctx, store.Key{ProjectID: run.ProjectID, ID: *accepted[number].Blob})
	return accepted[number], body, sqldb.Wrap(err, "reading file %d of run %s", number, run)
}

// RunSavedFiles implements store.SavedFiles.
func (s *Store) RunSavedFiles(ctx context.Context, run store.Key) ([]store.SavedFile, error) {
	found, err := readableFiles(ctx, s.db, run)
	files := make([]store.SavedFile, len(found))
	for i, f := range found {
		files[i] = f.SavedFile
	}
	return files, sqldb.Wrap(err, "reading the saved files of run %s", run)
}

// readableFiles returns the files of a run that the retention of its project keeps. An erased run has none.
func readableFiles(ctx context.Context, db *sqldb.DB, run store.Key) ([]runrow.SavedFile, error) {
	return runrow.SavedFiles(ctx, db, db.Reader(), run, sqldb.SinceOrOpenCondition("j.run_id", "$1"))
}

// OpenSavedFile implements store.SavedFiles.
func (s *Store) OpenSavedFile(ctx context.Context, run store.Key, id string, offset int64) (store.SavedFile, io.ReadCloser, error) {
	found, err := readableFiles(ctx, s.db, run)
	at := slices.IndexFunc(found, func(f runrow.SavedFile) bool { return f.ID == id })
	if err == nil && (at < 0 || offset < 0) {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.SavedFile{}, nil, sqldb.Wrap(err, "reading a saved file of run %s", run)
	}
	body, err := s.blobs.OpenBlobAt(ctx, store.Key{ProjectID: run.ProjectID, ID: found[at].Blob}, offset)
	return found[at].SavedFile, body, sqldb.Wrap(err, "reading a saved file of run %s", run)
}
