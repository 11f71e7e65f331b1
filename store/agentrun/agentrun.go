// SPDX-License-Identifier: Apache-2.0

// Package agentrun reads agent runs: their states, inputs, files, journals and results.
package agentrun

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/blob"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Store reads open and ended runs.
type Store struct {
	db    *sqldb.DB
	blobs *blob.Store
	// search is ListRuns for a query with a search.
	search func(ctx context.Context, q store.RunQuery) (runs []store.Run, next *uuid.UUID, err error)
}

// New returns a Store.
func New(
	db *sqldb.DB, blobs *blob.Store, search func(ctx context.Context, q store.RunQuery) (runs []store.Run, next *uuid.UUID, err error),
) *Store {
	return &Store{db: db, blobs: blobs, search: search}
}

// Run implements store.History. It reads open runs first: a run that is no longer open is in
// history by then.
func (s *Store) Run(ctx context.Context, key store.Key) (store.Run, error) {
	runs, err := readRuns(ctx, s.db, s.db.Reader(), key.ProjectID, []uuid.UUID{key.ID})
	if err == nil && len(runs) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.Run{}, sqldb.Wrap(err, "reading run %s", key)
	}
	return runs[0], nil
}

// readRuns reads runs of a project by ID, in that order, without missing ones.
func readRuns(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, project uuid.UUID, ids []uuid.UUID) ([]store.Run, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var l sqldb.Args
	runs, err := sqldb.Collect(ctx, q, runrow.Scan, `SELECT `+runrow.OpenColumns+` FROM open_runs r WHERE `+db.KeyCondition(&l, "r.id", sqldb.KeysFromIDs(project, ids)), l.Values...)
	if err != nil || len(runs) == len(ids) {
		return inOrderOf(ids, runs), err
	}
	past := slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool {
		return slices.ContainsFunc(runs, func(open store.Run) bool { return open.ID == id })
	})
	for _, same := range db.IDsByPart("ended_runs", past) {
		var l sqldb.Args
		past, err := sqldb.PastRows(ctx, db, q, same[0], runrow.ScanPast, `SELECT `+runrow.PastColumns+` FROM {ended_runs} r
			WHERE `+db.KeyCondition(&l, "r.id", sqldb.KeysFromIDs(project, same))+sqldb.ReadableCondition("r.project_id"), l.Values...)
		if err != nil {
			return nil, err
		}
		ended, err := runrow.WithOutputs(ctx, db, q, project, past)
		if err != nil {
			return nil, err
		}
		runs = append(runs, ended...)
	}
	return inOrderOf(ids, runs), nil
}

func inOrderOf(ids []uuid.UUID, runs []store.Run) []store.Run {
	slices.SortFunc(runs, func(a, b store.Run) int { return slices.Index(ids, a.ID) - slices.Index(ids, b.ID) })
	return runs
}

// RunEnvironments implements store.History. It reads open runs first, like Run.
func (s *Store) RunEnvironments(ctx context.Context, project uuid.UUID, runs []uuid.UUID) (map[uuid.UUID]uuid.UUID, error) {
	found := map[uuid.UUID]uuid.UUID{}
	if len(runs) == 0 {
		return found, nil
	}
	scan := func(row sqldb.Scanner) (none struct{}, err error) {
		var run, environment uuid.UUID
		err = row.Scan(&run, &environment)
		found[run] = environment
		return none, err
	}
	var l sqldb.Args
	_, err := sqldb.Collect(ctx, s.db.Reader(), scan,
		`SELECT r.id, r.environment_id FROM open_runs r WHERE `+s.db.KeyCondition(&l, "r.id", sqldb.KeysFromIDs(project, runs)), l.Values...)
	past := slices.DeleteFunc(slices.Clone(runs), func(id uuid.UUID) bool { return found[id] != uuid.Nil })
	for _, same := range s.db.IDsByPart("ended_runs", past) {
		if err != nil {
			break
		}
		var l sqldb.Args
		_, err = sqldb.PastRows(ctx, s.db, s.db.Reader(), same[0], scan, `SELECT r.id, r.environment_id FROM {ended_runs} r
			WHERE `+s.db.KeyCondition(&l, "r.id", sqldb.KeysFromIDs(project, same))+sqldb.ReadableCondition("r.project_id"), l.Values...)
	}
	return found, sqldb.Wrap(err, "reading the environments of runs of project %s", project)
}

// Outcome implements store.History. Callers mostly know that the connector run has ended, so
// history is read first. Otherwise the connector run is read before its runs: if it has ended, so
// have they.
func (s *Store) Outcome(ctx context.Context, key store.Key) (outcome store.Outcome, err error) {
	reader := s.db.Reader()
	var order []uuid.UUID
	past, err := sqldb.PastRows(ctx, s.db, reader, key.ID, func(row sqldb.Scanner) (r runrow.PastRun, err error) {
		err = row.Scan(append(append([]any{&outcome.Status, sqldb.ScanIDs(&order)}, runrow.Fields(&r.Run)...), &r.Blob)...)
		return r, err
	}, `SELECT c.status, c.run_ids, `+runrow.PastColumns+` FROM {ended_connector_runs} c
		JOIN {ended_runs} r ON r.project_id = c.project_id AND r.id `+s.db.Among("c.run_ids")+`
		WHERE c.project_id = $1 AND c.id = $2`+sqldb.SinceCondition("c.id", "$1")+sqldb.ReadableCondition("$1"), key.ProjectID, key.ID)
	if err == nil && len(past) > 0 && len(past) == len(order) { // they may be of two days
		runs, err := runrow.WithOutputs(ctx, s.db, reader, key.ProjectID, past)
		outcome.Runs = inOrderOf(order, runs)
		return outcome, sqldb.Wrap(err, "reading the outcome of connector run %s", key)
	}
	if err != nil {
		return store.Outcome{}, sqldb.Wrap(err, "reading the outcome of connector run %s", key)
	}
	run, err := runrow.ReadConnectorRun(ctx, s.db, reader, key)
	if err != nil {
		return store.Outcome{}, sqldb.Wrap(err, "reading the outcome of connector run %s", key)
	}
	runs, err := readRuns(ctx, s.db, reader, key.ProjectID, run.RunIDs)
	return store.Outcome{Status: run.Status, Runs: runs}, sqldb.Wrap(err, "reading the outcome of connector run %s", key)
}

// RunInput implements store.History.
func (s *Store) RunInput(ctx context.Context, key store.Key) (string, io.ReadCloser, error) {
	input, err := inputOf(ctx, s.db, key)
	if err != nil {
		return "", nil, sqldb.Wrap(err, "reading the input of run %s", key)
	}
	rows, err := runrow.Inputs(ctx, s.db, s.db.Reader(), key.ProjectID, []uuid.UUID{input})
	in, ok := rows[input]
	switch {
	case err == nil && !ok:
		err = store.ErrNotFound
		fallthrough
	case err != nil:
		return "", nil, sqldb.Wrap(err, "reading the input of run %s", key)
	case in.Blob == nil:
		return in.ContentType, io.NopCloser(bytes.NewReader(in.Data)), nil
	}
	body, err := s.blobs.OpenBlob(ctx, store.Key{ProjectID: key.ProjectID, ID: *in.Blob})
	return in.ContentType, body, sqldb.Wrap(err, "reading the input of run %s", key)
}

// Journal implements store.History.
func (s *Store) Journal(ctx context.Context, run store.Key) ([]store.JournalEntry, error) {
	return entries(ctx, s.db, run, `SELECT `+runrow.EntryColumns+` FROM {journal} j WHERE j.project_id = $1 AND j.run_id = $2`+sqldb.SinceOrOpenCondition("j.run_id", "$1")+`
		ORDER BY j.sequence`, run.ProjectID, run.ID)
}

// JournalAfter implements store.History. The database adds up the sizes, so that entries beyond the
// page are not read.
func (s *Store) JournalAfter(ctx context.Context, run store.Key, sequence int64, limit int) ([]store.JournalEntry, error) {
	return entries(ctx, s.db, run, `SELECT `+runrow.EntryAliases+` FROM (SELECT n.*, SUM(COALESCE(CASE WHEN n.blob_id IS NULL THEN octet_length(n.data)
			ELSE (SELECT b.size FROM blobs b WHERE b.project_id = $1 AND b.id = n.blob_id) END, 0))
			OVER (ORDER BY n.sequence ROWS UNBOUNDED PRECEDING) AS bytes
		FROM (SELECT `+runrow.EntryColumns+` FROM {journal} j WHERE j.project_id = $1 AND j.run_id = $2 AND j.sequence > $3`+sqldb.SinceOrOpenCondition("j.run_id", "$1")+`
			ORDER BY j.sequence LIMIT $4) AS n) AS j
		WHERE j.bytes <= `+strconv.Itoa(store.MaxJournalPage)+` ORDER BY j.sequence`, run.ProjectID, run.ID, sequence, limit)
}

// entries reads the journal entries that a statement selects.
func entries(ctx context.Context, db *sqldb.DB, run store.Key, statement string, args ...any) ([]store.JournalEntry, error) {
	reader := db.Reader()
	past, err := sqldb.PastRows(ctx, db, reader, run.ID, func(row sqldb.Scanner) (e runrow.PastEntry, err error) {
		err = row.Scan(&e.Sequence, &e.Kind, sqldb.ScanJSON(&e.Data), &e.Unsafe, &e.Blob, sqldb.ScanTime(&e.At))
		return e, err
	}, statement, args...)
	if err != nil {
		return nil, sqldb.Wrap(err, "reading the journal of run %s", run)
	}
	entries, err := runrow.WholeEntries(ctx, db, reader, run.ProjectID, past)
	return entries, sqldb.Wrap(err, "reading the journal of run %s", run)
}

// RunHeaders implements store.History.
func (s *Store) RunHeaders(ctx context.Context, run store.Key) (headers map[string]string, err error) {
	input, err := inputOf(ctx, s.db, run)
	if err == nil {
		err = s.db.ReadHistory(ctx, s.db.Reader(), store.Key{ProjectID: run.ProjectID, ID: input},
			`SELECT headers FROM {inputs} WHERE project_id = $1 AND id = $2`, sqldb.ScanJSON(&headers))
		if errors.Is(err, store.ErrNotFound) {
			return nil, nil // the run exists, but its input is no longer kept
		}
	}
	return headers, sqldb.Wrap(err, "reading the headers of run %s", run)
}
