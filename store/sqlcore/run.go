// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Run implements store.History. It reads open runs first: a run that is no longer open is in
// history by then.
func (c *Core) Run(ctx context.Context, key store.Key) (store.Run, error) {
	runs, err := c.readRuns(ctx, c.engine.Reader(), key.ProjectID, []uuid.UUID{key.ID})
	if err == nil && len(runs) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.Run{}, sqldb.Wrap(err, "reading run %s", key)
	}
	return runs[0], nil
}

// readRuns reads runs of a project by ID, in that order, without missing ones.
func (c *Core) readRuns(ctx context.Context, q sqldb.Queryer, project uuid.UUID, ids []uuid.UUID) ([]store.Run, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var l sqldb.Args
	runs, err := sqldb.Collect(ctx, q, runrow.Scan, `SELECT `+runrow.OpenColumns+` FROM open_runs r WHERE `+c.KeyCondition(&l, "r.id", sqldb.KeysFromIDs(project, ids)), l.Values...)
	if err != nil || len(runs) == len(ids) {
		return inOrderOf(ids, runs), err
	}
	past := slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool {
		return slices.ContainsFunc(runs, func(open store.Run) bool { return open.ID == id })
	})
	for _, same := range c.IDsByPart("ended_runs", past) {
		var l sqldb.Args
		past, err := sqldb.PastRows(ctx, c.DB, q, same[0], runrow.ScanPast, `SELECT `+runrow.PastColumns+` FROM {ended_runs} r
			WHERE `+c.KeyCondition(&l, "r.id", sqldb.KeysFromIDs(project, same))+sqldb.ReadableCondition("r.project_id"), l.Values...)
		if err != nil {
			return nil, err
		}
		ended, err := runrow.WithOutputs(ctx, c.DB, q, project, past)
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
func (c *Core) RunEnvironments(ctx context.Context, project uuid.UUID, runs []uuid.UUID) (map[uuid.UUID]uuid.UUID, error) {
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
	_, err := sqldb.Collect(ctx, c.engine.Reader(), scan,
		`SELECT r.id, r.environment_id FROM open_runs r WHERE `+c.KeyCondition(&l, "r.id", sqldb.KeysFromIDs(project, runs)), l.Values...)
	past := slices.DeleteFunc(slices.Clone(runs), func(id uuid.UUID) bool { return found[id] != uuid.Nil })
	for _, same := range c.IDsByPart("ended_runs", past) {
		if err != nil {
			break
		}
		var l sqldb.Args
		_, err = sqldb.PastRows(ctx, c.DB, c.engine.Reader(), same[0], scan, `SELECT r.id, r.environment_id FROM {ended_runs} r
			WHERE `+c.KeyCondition(&l, "r.id", sqldb.KeysFromIDs(project, same))+sqldb.ReadableCondition("r.project_id"), l.Values...)
	}
	return found, sqldb.Wrap(err, "reading the environments of runs of project %s", project)
}

// Outcome implements store.History. Callers mostly know that the connector run has ended, so
// history is read first. Otherwise the connector run is read before its runs: if it has ended, so
// have they.
func (c *Core) Outcome(ctx context.Context, key store.Key) (outcome store.Outcome, err error) {
	reader := c.engine.Reader()
	var order []uuid.UUID
	past, err := sqldb.PastRows(ctx, c.DB, reader, key.ID, func(row sqldb.Scanner) (r runrow.PastRun, err error) {
		err = row.Scan(append(append([]any{&outcome.Status, sqldb.ScanIDs(&order)}, runrow.Fields(&r.Run)...), &r.Blob)...)
		return r, err
	}, `SELECT c.status, c.run_ids, `+runrow.PastColumns+` FROM {ended_connector_runs} c
		JOIN {ended_runs} r ON r.project_id = c.project_id AND r.id `+c.engine.Among("c.run_ids")+`
		WHERE c.project_id = $1 AND c.id = $2`+sqldb.SinceCondition("c.id", "$1")+sqldb.ReadableCondition("$1"), key.ProjectID, key.ID)
	if err == nil && len(past) > 0 && len(past) == len(order) { // they may be of two days
		runs, err := runrow.WithOutputs(ctx, c.DB, reader, key.ProjectID, past)
		outcome.Runs = inOrderOf(order, runs)
		return outcome, sqldb.Wrap(err, "reading the outcome of connector run %s", key)
	}
	if err != nil {
		return store.Outcome{}, sqldb.Wrap(err, "reading the outcome of connector run %s", key)
	}
	run, err := c.connectorRun(ctx, reader, key)
	if err != nil {
		return store.Outcome{}, sqldb.Wrap(err, "reading the outcome of connector run %s", key)
	}
	runs, err := c.readRuns(ctx, reader, key.ProjectID, run.RunIDs)
	return store.Outcome{Status: run.Status, Runs: runs}, sqldb.Wrap(err, "reading the outcome of connector run %s", key)
}

// RunInput implements store.History.
func (c *Core) RunInput(ctx context.Context, key store.Key) (string, io.ReadCloser, error) {
	input, err := c.inputOf(ctx, key)
	if err != nil {
		return "", nil, sqldb.Wrap(err, "reading the input of run %s", key)
	}
	rows, err := runrow.Inputs(ctx, c.DB, c.engine.Reader(), key.ProjectID, []uuid.UUID{input})
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
	body, err := c.OpenBlob(ctx, store.Key{ProjectID: key.ProjectID, ID: *in.Blob})
	return in.ContentType, body, sqldb.Wrap(err, "reading the input of run %s", key)
}

// Journal implements store.History.
func (c *Core) Journal(ctx context.Context, run store.Key) ([]store.JournalEntry, error) {
	return c.entries(ctx, run, `SELECT `+runrow.EntryColumns+` FROM {journal} j WHERE j.project_id = $1 AND j.run_id = $2`+sqldb.SinceOrOpenCondition("j.run_id", "$1")+`
		ORDER BY j.sequence`, run.ProjectID, run.ID)
}

// JournalAfter implements store.History. The database adds up the sizes, so that entries beyond the
// page are not read.
func (c *Core) JournalAfter(ctx context.Context, run store.Key, sequence int64, limit int) ([]store.JournalEntry, error) {
	return c.entries(ctx, run, `SELECT `+runrow.EntryAliases+` FROM (SELECT n.*, SUM(COALESCE(CASE WHEN n.blob_id IS NULL THEN octet_length(n.data)
			ELSE (SELECT b.size FROM blobs b WHERE b.project_id = $1 AND b.id = n.blob_id) END, 0))
			OVER (ORDER BY n.sequence ROWS UNBOUNDED PRECEDING) AS bytes
		FROM (SELECT `+runrow.EntryColumns+` FROM {journal} j WHERE j.project_id = $1 AND j.run_id = $2 AND j.sequence > $3`+sqldb.SinceOrOpenCondition("j.run_id", "$1")+`
			ORDER BY j.sequence LIMIT $4) AS n) AS j
		WHERE j.bytes <= `+strconv.Itoa(store.MaxJournalPage)+` ORDER BY j.sequence`, run.ProjectID, run.ID, sequence, limit)
}

// entries reads the journal entries that a statement selects.
func (c *Core) entries(ctx context.Context, run store.Key, statement string, args ...any) ([]store.JournalEntry, error) {
	reader := c.engine.Reader()
	past, err := sqldb.PastRows(ctx, c.DB, reader, run.ID, func(row sqldb.Scanner) (e runrow.PastEntry, err error) {
		err = row.Scan(&e.Sequence, &e.Kind, sqldb.ScanJSON(&e.Data), &e.Unsafe, &e.Blob, sqldb.ScanTime(&e.At))
		return e, err
	}, statement, args...)
	if err != nil {
		return nil, sqldb.Wrap(err, "reading the journal of run %s", run)
	}
	entries, err := runrow.WholeEntries(ctx, c.DB, reader, run.ProjectID, past)
	return entries, sqldb.Wrap(err, "reading the journal of run %s", run)
}

// ConnectorRun implements store.History.
func (c *Core) ConnectorRun(ctx context.Context, key store.Key) (store.ConnectorRun, error) {
	run, err := c.connectorRun(ctx, c.engine.Reader(), key)
	if err == nil {
		runs := []store.ConnectorRun{run}
		err = c.addErrors(ctx, runs)
		run = runs[0]
	}
	return run, sqldb.Wrap(err, "reading connector run %s", key)
}

func (c *Core) connectorRun(ctx context.Context, q sqldb.Queryer, key store.Key) (store.ConnectorRun, error) {
	run, err := runrow.ScanConnectorRun(q.QueryRowContext(ctx, `SELECT `+runrow.OpenConnectorRunColumns+` FROM open_connector_runs c
		WHERE c.project_id = $1 AND c.id = $2`, key.ProjectID, key.ID))
	if errors.Is(err, sql.ErrNoRows) {
		run, err = runrow.ScanConnectorRun(q.QueryRowContext(ctx, `SELECT `+runrow.OpenDeliveryColumns+` FROM `+runrow.OpenDeliveries+` c
			WHERE c.project_id = $1 AND c.id = $2`, key.ProjectID, key.ID))
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return run, err
	}
	past, err := sqldb.PastRows(ctx, c.DB, q, key.ID, runrow.ScanConnectorRun, `SELECT `+runrow.EndedConnectorRunColumns+` FROM {ended_connector_runs} c
		WHERE c.project_id = $1 AND c.id = $2`+sqldb.SinceCondition("c.id", "$1"), key.ProjectID, key.ID)
	if err == nil && len(past) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.ConnectorRun{}, err
	}
	return past[0], nil
}

// Ended implements store.History.
func (c *Core) Ended(ctx context.Context, connectorRuns []store.Key) (ended []store.Key, err error) {
	open := map[store.Key]bool{}
	for part := range slices.Chunk(connectorRuns, sqldb.MaxIDs) {
		var l sqldb.Args
		still, err := sqldb.Collect(ctx, c.engine.Reader(), sqldb.ScanKey, `SELECT project_id, id FROM open_connector_runs WHERE `+c.KeyCondition(&l, "id", part), l.Values...)
		if err != nil {
			return nil, sqldb.Wrap(err, "reading the ended connector runs")
		}
		for _, key := range still {
			open[key] = true
		}
	}
	for _, key := range connectorRuns {
		if !open[key] {
			ended = append(ended, key)
		}
	}
	return ended, nil
}
