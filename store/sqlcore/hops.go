// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// start is what started a run.
type start struct{ run, input store.Key }

// countHops sets how many deliveries targets come by: one more than what started their runs,
// of which some are known.
func (c *Core) countHops(ctx context.Context, targets []target, starts []start) error {
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
	hops, err := c.hopsOf(ctx, c.engine.Reader(), slices.Concat(starts, more))
	for i, t := range targets {
		targets[i].hops = hops[t.run] + 1
	}
	return err
}

// nextHop is by how many deliveries comes what a run sends.
func (c *Core) nextHop(ctx context.Context, q Queryer, run store.Key) (int, error) {
	starts, err := c.startsOf(ctx, q, []store.Key{run})
	if err != nil {
		return 0, err
	}
	hops, err := c.hopsOf(ctx, q, starts)
	return hops[run] + 1, err
}

// startsOf are those of runs.
func (c *Core) startsOf(ctx context.Context, q Queryer, runs []store.Key) (starts []start, err error) {
	scan := func(row scanner) (s start, err error) {
		err = row.Scan(&s.run.ProjectID, &s.run.ID, &s.input.ID)
		s.input.ProjectID = s.run.ProjectID
		return s, err
	}
	for _, same := range c.keysByPart("ended_runs", runs) {
		var l list
		ended, err := pastRows(ctx, c, q, same[0].ID, scan, `SELECT project_id, id, input_id FROM {ended_runs} WHERE `+c.keys(&l, "id", same), l.args...)
		if err != nil {
			return nil, err
		}
		starts = append(starts, ended...)
	}
	if len(starts) < len(runs) {
		var l list
		open, err := collect(ctx, q, scan, `SELECT project_id, id, input_id FROM open_runs WHERE `+c.keys(&l, "id", runs), l.args...)
		if err != nil {
			return nil, err
		}
		starts = append(starts, open...)
	}
	return starts, nil
}

// hopsOf is how many deliveries the events have come by that started runs, by run, as far as
// their inputs are stored.
func (c *Core) hopsOf(ctx context.Context, q Queryer, starts []start) (map[store.Key]int, error) {
	inputs := make([]store.Key, len(starts))
	for i, s := range starts {
		inputs[i] = s.input
	}
	slices.SortFunc(inputs, CompareKeys)
	of := map[store.Key]int{}
	for _, same := range c.keysByPart("inputs", slices.Compact(inputs)) {
		var l list
		if _, err := pastRows(ctx, c, q, same[0].ID, func(row scanner) (id uuid.UUID, err error) {
			var (
				key  store.Key
				hops int
			)
			err = row.Scan(&key.ProjectID, &key.ID, &hops)
			of[key] = hops
			return id, err
		}, `SELECT project_id, id, hops FROM {inputs} WHERE `+c.keys(&l, "id", same), l.args...); err != nil {
			return nil, err
		}
	}
	hops := make(map[store.Key]int, len(starts))
	for _, s := range starts {
		hops[s.run] = of[s.input]
	}
	return hops, nil
}
