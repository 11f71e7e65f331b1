// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// start identifies the event that started a run.
type start struct{ run, input store.Key }

// origin is the part of an event that deliveries of its runs repeat.
type origin struct {
	hops        int
	traceparent string
}

// addOrigins sets the hops of targets, one more than the events that started their runs, and the traceparents. Some starts
// are known.
func (c *Core) addOrigins(ctx context.Context, targets []target, starts []start) error {
	known := make(map[store.Key]bool, len(starts))
	for _, s := range starts {
		known[s.run] = true
	}
	var others []store.Key
	for _, t := range targets {
		if !known[t.run] {
			known[t.run], others = true, append(others, t.run)
		}
	}
	more, err := c.startsOf(ctx, c.engine.Reader(), others)
	if err != nil {
		return err
	}
	origins, err := c.originsByRun(ctx, c.engine.Reader(), slices.Concat(starts, more))
	for i, t := range targets {
		from := origins[t.run]
		targets[i].hops, targets[i].traceparent = from.hops+1, from.traceparent
	}
	return err
}

// originOf returns the origin of a run.
func (c *Core) originOf(ctx context.Context, q sqldb.Queryer, run store.Key) (origin, error) {
	starts, err := c.startsOf(ctx, q, []store.Key{run})
	if err != nil {
		return origin{}, err
	}
	origins, err := c.originsByRun(ctx, q, starts)
	return origins[run], err
}

// startsOf returns the starts of runs.
func (c *Core) startsOf(ctx context.Context, q sqldb.Queryer, runs []store.Key) (starts []start, err error) {
	scan := func(row sqldb.Scanner) (s start, err error) {
		err = row.Scan(&s.run.ProjectID, &s.run.ID, &s.input.ID)
		s.input.ProjectID = s.run.ProjectID
		return s, err
	}
	for _, same := range c.KeysByPart("ended_runs", runs) {
		var l sqldb.Args
		ended, err := sqldb.PastRows(ctx, c.DB, q, same[0].ID, scan, `SELECT project_id, id, input_id FROM {ended_runs} WHERE `+c.KeyCondition(&l, "id", same), l.Values...)
		if err != nil {
			return nil, err
		}
		starts = append(starts, ended...)
	}
	if len(starts) < len(runs) {
		var l sqldb.Args
		open, err := sqldb.Collect(ctx, q, scan, `SELECT project_id, id, input_id FROM open_runs WHERE `+c.KeyCondition(&l, "id", runs), l.Values...)
		if err != nil {
			return nil, err
		}
		starts = append(starts, open...)
	}
	return starts, nil
}

// originsByRun returns the origins of runs, by run, if their inputs are stored.
func (c *Core) originsByRun(ctx context.Context, q sqldb.Queryer, starts []start) (map[store.Key]origin, error) {
	inputs := make([]store.Key, len(starts))
	for i, s := range starts {
		inputs[i] = s.input
	}
	slices.SortFunc(inputs, sqldb.CompareKeys)
	of := map[store.Key]origin{}
	for _, same := range c.KeysByPart("inputs", slices.Compact(inputs)) {
		var l sqldb.Args
		if _, err := sqldb.PastRows(ctx, c.DB, q, same[0].ID, func(row sqldb.Scanner) (id uuid.UUID, err error) {
			var (
				key  store.Key
				from origin
			)
			err = row.Scan(&key.ProjectID, &key.ID, &from.hops, &from.traceparent)
			of[key] = from
			return id, err
		}, `SELECT project_id, id, hops, COALESCE(traceparent, '') FROM {inputs} WHERE `+c.KeyCondition(&l, "id", same), l.Values...); err != nil {
			return nil, err
		}
	}
	origins := make(map[store.Key]origin, len(starts))
	for _, s := range starts {
		origins[s.run] = of[s.input]
	}
	return origins, nil
}
