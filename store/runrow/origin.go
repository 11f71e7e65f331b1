// SPDX-License-Identifier: Apache-2.0

package runrow

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Start identifies the event that started a run.
type Start struct{ Run, Input store.Key }

// Origin is the part of an event that deliveries of its runs repeat.
type Origin struct {
	Hops        int
	Traceparent string
}

// OriginOf returns the origin of a run.
func OriginOf(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, run store.Key) (Origin, error) {
	starts, err := StartsOf(ctx, db, q, []store.Key{run})
	if err != nil {
		return Origin{}, err
	}
	origins, err := OriginsByRun(ctx, db, q, starts)
	return origins[run], err
}

// StartsOf returns the starts of runs.
func StartsOf(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, runs []store.Key) (starts []Start, err error) {
	scan := func(row sqldb.Scanner) (s Start, err error) {
		err = row.Scan(&s.Run.ProjectID, &s.Run.ID, &s.Input.ID)
		s.Input.ProjectID = s.Run.ProjectID
		return s, err
	}
	for _, same := range db.KeysByPart("ended_runs", runs) {
		var l sqldb.Args
		ended, err := sqldb.PastRows(ctx, db, q, same[0].ID, scan, `SELECT project_id, id, input_id FROM {ended_runs} WHERE `+db.KeyCondition(&l, "id", same), l.Values...)
		if err != nil {
			return nil, err
		}
		starts = append(starts, ended...)
	}
	if len(starts) < len(runs) {
		var l sqldb.Args
		open, err := sqldb.Collect(ctx, q, scan, `SELECT project_id, id, input_id FROM open_runs WHERE `+db.KeyCondition(&l, "id", runs), l.Values...)
		if err != nil {
			return nil, err
		}
		starts = append(starts, open...)
	}
	return starts, nil
}

// OriginsByRun returns the origins of runs, by run, if their inputs are stored.
func OriginsByRun(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, starts []Start) (map[store.Key]Origin, error) {
	inputs := make([]store.Key, len(starts))
	for i, s := range starts {
		inputs[i] = s.Input
	}
	slices.SortFunc(inputs, sqldb.CompareKeys)
	of := map[store.Key]Origin{}
	for _, same := range db.KeysByPart("inputs", slices.Compact(inputs)) {
		var l sqldb.Args
		if _, err := sqldb.PastRows(ctx, db, q, same[0].ID, func(row sqldb.Scanner) (id uuid.UUID, err error) {
			var (
				key  store.Key
				from Origin
			)
			err = row.Scan(&key.ProjectID, &key.ID, &from.Hops, &from.Traceparent)
			of[key] = from
			return id, err
		}, `SELECT project_id, id, hops, COALESCE(traceparent, '') FROM {inputs} WHERE `+db.KeyCondition(&l, "id", same), l.Values...); err != nil {
			return nil, err
		}
	}
	origins := make(map[store.Key]Origin, len(starts))
	for _, s := range starts {
		origins[s.Run] = of[s.Input]
	}
	return origins, nil
}
