// SPDX-License-Identifier: Apache-2.0

package searchindex

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

func idsOfKeys(keys []store.Key) (ids []uuid.UUID) {
	for _, key := range keys {
		ids = append(ids, key.ID)
	}
	return ids
}

// searchedRun is a run that is read for a search.
type searchedRun struct {
	store.Searched
	input        uuid.UUID
	output, body *uuid.UUID // blobs
}

func scanSearched(row sqldb.Scanner) (r searchedRun, err error) {
	err = row.Scan(append(runrow.Fields(&r.Run), &r.input, &r.output)...)
	return r, err
}

// readSearched reads runs of a project by ID that exist and match a condition on open or ended runs
// r. They are found by key, whatever index the condition would have, because a planner without
// statistics might use that index.
func readSearched(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, project uuid.UUID, ids []uuid.UUID, narrow func(l *sqldb.Args, ended bool) string) (map[uuid.UUID]store.Searched, error) {
	var l sqldb.Args
	runs, err := sqldb.Collect(ctx, q, scanSearched, `WITH r AS MATERIALIZED (SELECT h.* FROM open_runs h WHERE `+db.KeyCondition(&l, "h.id", sqldb.KeysFromIDs(project, ids))+`)
		SELECT `+runrow.OpenColumns+`, r.input_id, NULL FROM r WHERE TRUE`+narrow(&l, false), l.Values...)
	if err != nil {
		return nil, err
	}
	open := make(map[uuid.UUID]bool, len(runs))
	for _, run := range runs {
		open[run.ID] = true
	}
	past := slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool { return open[id] })
	for _, same := range db.IDsByPart("ended_runs", past) {
		var l sqldb.Args
		ended, err := sqldb.PastRows(ctx, db, q, same[0], scanSearched, `WITH r AS MATERIALIZED (SELECT h.* FROM {ended_runs} h WHERE `+db.KeyCondition(&l, "h.id", sqldb.KeysFromIDs(project, same))+`)
			SELECT `+runrow.EndedColumns+`, r.input_id, r.output_blob_id FROM r WHERE TRUE`+sqldb.ReadableCondition("r.project_id")+narrow(&l, true), l.Values...)
		if err != nil {
			return nil, err
		}
		runs = append(runs, ended...)
	}
	return withTexts(ctx, db, q, project, runs)
}

// withTexts adds the inputs of runs, and the beginnings of large values.
func withTexts(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, project uuid.UUID, runs []searchedRun) (map[uuid.UUID]store.Searched, error) {
	var (
		inputs []uuid.UUID
		large  []store.Key
	)
	for _, run := range runs {
		inputs = append(inputs, run.input)
	}
	slices.SortFunc(inputs, sqldb.CompareIDs)
	given, err := runrow.Inputs(ctx, db, q, project, slices.Compact(inputs)) // some share an input
	if err != nil {
		return nil, err
	}
	for i := range runs {
		run := &runs[i]
		input := given[run.input]
		run.ContentType, run.Input, run.Headers, run.body = input.ContentType, input.Data, input.Headers, input.Blob
		for _, blob := range []*uuid.UUID{run.output, run.body} {
			if blob != nil {
				large = append(large, store.Key{ProjectID: project, ID: *blob})
			}
		}
	}
	heads, err := readHeads(ctx, db, q, large)
	if err != nil {
		return nil, err
	}
	out := make(map[uuid.UUID]store.Searched, len(runs))
	for _, run := range runs {
		if run.output != nil {
			run.Output = sqldb.Text(string(heads[*run.output])) // a character may be cut
		}
		if run.body != nil {
			run.Input = heads[*run.body]
		}
		out[run.ID] = run.Searched
	}
	return out, nil
}

// readHeads returns the beginnings of blobs.
func readHeads(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, blobs []store.Key) (map[uuid.UUID][]byte, error) {
	out := map[uuid.UUID][]byte{}
	if len(blobs) == 0 {
		return out, nil
	}
	l := sqldb.Args{Values: []any{store.MaxInlineText}}
	err := sqldb.CollectMap(ctx, q, out, func(row sqldb.Scanner) (id uuid.UUID, data []byte, err error) {
		err = row.Scan(&id, &data)
		return id, data, err
	}, `SELECT b.blob_id, substr(b.data, 1, $1) FROM blob_chunks b WHERE `+db.KeyCondition(&l, "b.blob_id", blobs)+` AND b.number = 0`, l.Values...)
	return out, err
}
