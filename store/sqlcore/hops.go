// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// countHops sets how many deliveries targets come by: one more than what started their runs.
func (c *Core) countHops(ctx context.Context, targets []target) error {
	runs := make([]store.Key, len(targets))
	for i, t := range targets {
		runs[i] = t.run
	}
	slices.SortFunc(runs, CompareKeys)
	hops, err := c.hopsOf(ctx, c.engine.Reader(), slices.Compact(runs))
	for i, t := range targets {
		targets[i].hops = hops[t.run] + 1
	}
	return err
}

// hopsOf is how many deliveries the events have come by that started runs, as far as their
// inputs are stored.
func (c *Core) hopsOf(ctx context.Context, q Queryer, runs []store.Key) (map[store.Key]int, error) {
	type start struct{ run, input store.Key }
	scan := func(row scanner) (s start, err error) {
		err = row.Scan(&s.run.ProjectID, &s.run.ID, &s.input.ID)
		s.input.ProjectID = s.run.ProjectID
		return s, err
	}
	var starts []start
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
	var inputs []store.Key
	for _, s := range starts {
		if !slices.Contains(inputs, s.input) {
			inputs = append(inputs, s.input)
		}
	}
	of := map[store.Key]int{}
	for _, same := range c.keysByPart("inputs", inputs) {
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
	hops := map[store.Key]int{}
	for _, s := range starts {
		hops[s.run] = of[s.input]
	}
	return hops, nil
}
