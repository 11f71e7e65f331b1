// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// shallow is how many rows a page of a list of connector runs reads before its first; what lies
// deeper is found by the numbers of whole hours.
const shallow = 200

// ListConnectorRuns implements store.History.
func (c *Core) ListConnectorRuns(ctx context.Context, q store.ConnectorRunQuery) (runs []store.ConnectorRun, total int64, err error) {
	if q.Run != uuid.Nil {
		runs, total, err = c.connectorRunsOf(ctx, q)
		return runs, total, wrap(err, "listing runs of connector %s for run %s", q.Connector, q.Run)
	}
	s := connectorRuns{Core: c, connector: q.Connector, status: q.Status, trigger: q.Trigger}
	err = c.engine.Snapshot(ctx, func(ctx context.Context, tx Queryer) error {
		if err := s.setWindow(ctx, tx, q); err != nil {
			return err
		}
		if err := s.count(ctx, tx); err != nil {
			return err
		}
		if total = s.total(); total <= int64(q.Offset) {
			return nil
		}
		left, within := q.Offset, period{0, never}
		if left > shallow && !s.ended.empty() {
			if left, within, err = s.skip(ctx, tx, q.Limit, left); err != nil {
				return err
			}
		}
		runs, err = s.page(ctx, tx, q.Limit, left, within)
		return err
	})
	if err == nil {
		err = c.addErrors(ctx, runs)
	}
	return runs, total, wrap(err, "listing runs of connector %s", q.Connector)
}

// ofConnector is a condition on the connector of connector runs that are wanted in the order of
// their connectors and ids: of equality a planner knows that the order of ids is enough, which the
// rows of all connectors of the project have too.
const ofConnector = `c.connector_id BETWEEN $2 AND $2`

// setWindow sets the window that ends now. Of history it begins where the oldest row is that the
// connector still has there and that may be read, for rollups tell of what is gone too.
func (s *connectorRuns) setWindow(ctx context.Context, q Queryer, of store.ConnectorRunQuery) error {
	if err := s.look(ctx, q); err != nil {
		return err
	}
	l := s.args()
	among := ` AND c.id >= id_at(` + l.add(s.seen) + `)`
	if of.Since > 0 {
		among += ` AND c.id >= id_at(now_us() - ` + l.add(of.Since.Microseconds()) + `)`
	}
	var (
		now    int64
		oldest *uuid.UUID
	)
	if err := q.QueryRowContext(ctx, `SELECT now_us(), (SELECT c.id FROM ended_connector_runs c WHERE c.project_id = $1 AND `+ofConnector+among+`
		ORDER BY c.connector_id, c.id LIMIT 1)`, l.args...).Scan(&now, &oldest); err != nil {
		return err
	}
	s.open = period{0, never}
	if of.Since > 0 {
		s.open.from = max(now-of.Since.Microseconds(), 0)
	}
	if oldest != nil {
		s.ended = period{max(s.open.from, store.TimeOf(*oldest).UnixMicro()), never}
	}
	s.narrowWindows()
	return nil
}

// skip passes over the newest whole hours that have no more than offset runs together: it returns
// how many are left to pass over in a period, which has the page too.
func (s *connectorRuns) skip(ctx context.Context, q Queryer, limit, offset int) (left int, within period, err error) {
	whole := period{hourly.ceil(s.ended.from), never}
	l := s.args()
	narrow := s.narrow(&l)
	hours := map[int64]int{}
	if _, err := collect(ctx, q, func(row scanner) (none struct{}, err error) {
		var (
			begin int64
			runs  int
		)
		err = row.Scan(&begin, &runs)
		hours[begin] += runs
		return none, err
	}, `SELECT c.begins_at, c.runs FROM connector_rollups c WHERE c.project_id = $1 AND c.connector_id = $2`+narrow+` AND c.grain = 'hour' AND c.begins_at >= `+l.add(whole.from), l.args...); err != nil {
		return 0, within, err
	}
	for _, run := range s.waiting {
		hours[hourOf(run.ID)]++
	}
	open, err := s.openIDs(ctx, q, whole)
	if err != nil {
		return 0, within, err
	}
	for _, id := range open {
		hours[hourOf(id)]++
	}
	left, within = offset, period{0, never}
	for seen, begin := range runsUntil(hours) {
		if seen <= offset {
			left, within.to = offset-seen, begin
		} else if seen >= offset+limit {
			within.from = begin
			break
		}
	}
	return left, within, nil
}

// runsUntil are how many runs there are in hours, from the newest to each one, with its beginning.
func runsUntil(hours map[int64]int) iter.Seq2[int, int64] {
	return func(yield func(int, int64) bool) {
		seen := 0
		for _, begin := range slices.Backward(slices.Sorted(maps.Keys(hours))) {
			if seen += hours[begin]; !yield(seen, begin) {
				return
			}
		}
	}
}

// openIDs are the ids of those of a period that are open.
func (s *connectorRuns) openIDs(ctx context.Context, q Queryer, of period) ([]uuid.UUID, error) {
	if s.open.empty() {
		return nil, nil
	}
	l := s.args()
	narrow := s.narrow(&l) + l.during(of)
	return collect(ctx, q, scanID, `SELECT c.id FROM open_connector_runs c WHERE c.project_id = $1 AND c.connector_id = $2`+narrow+`
		UNION ALL SELECT c.id FROM `+openDeliveries+` c WHERE c.project_id = $1 AND c.connector_id = $2`+narrow, l.args...)
}

// hourOf is when the hour began of the time in an id.
func hourOf(id uuid.UUID) int64 { return hourly.floor(store.TimeOf(id).UnixMicro()) }

// page reads runs of a period, newest first.
func (s *connectorRuns) page(ctx context.Context, q Queryer, limit, offset int, within period) ([]store.ConnectorRun, error) {
	l := s.args()
	narrow := s.narrow(&l)
	seen := l.add(offset + limit)
	of := func(columns, table, name string, window period) string {
		window = period{max(window.from, within.from), min(window.to, within.to)}
		return `SELECT * FROM (SELECT ` + columns + ` FROM ` + table + ` c WHERE c.project_id = $1 AND ` + ofConnector + narrow + l.during(window) + ` ORDER BY c.connector_id DESC, c.id DESC LIMIT ` + seen + `) AS ` + name
	}
	from := ``
	if !s.open.empty() {
		from = of(openConnectorRunColumns, `open_connector_runs`, `open`, s.open) + ` UNION ALL ` + of(openDeliveryColumns, openDeliveries, `due`, s.open)
	}
	if !s.open.empty() && !s.ended.empty() {
		from += ` UNION ALL `
	}
	if !s.ended.empty() {
		from += of(endedConnectorRunColumns, `ended_connector_runs`, `ended`, s.readable(s.ended))
	}
	return collect(ctx, q, scanConnectorRun, `SELECT x.* FROM (`+from+`) AS x WHERE x.project_id = $1
		ORDER BY x.id DESC LIMIT `+l.add(limit)+` OFFSET `+l.add(offset), l.args...)
}

// addErrors fills in why events have failed or were cancelled: with the error of the first of
// their runs, in the order of their links, that has ended so too and has one.
func (c *Core) addErrors(ctx context.Context, runs []store.ConnectorRun) error {
	var started []store.Key
	for _, run := range runs {
		if lacksError(run) {
			started = append(started, keysOf(run.ProjectID, run.RunIDs)...)
		}
	}
	type end struct{ status, text string }
	ends := map[store.Key]end{}
	for _, same := range c.keysByPart("ended_runs", started) {
		for some := range slices.Chunk(same, maxKeys) {
			var l list
			if _, err := pastRows(ctx, c, c.engine.Reader(), some[0].ID, func(row scanner) (none struct{}, err error) {
				var (
					key store.Key
					of  end
				)
				err = row.Scan(&key.ProjectID, &key.ID, &of.status, &of.text)
				ends[key] = of
				return none, err
			}, `SELECT r.project_id, r.id, r.status, r.error FROM {ended_runs} r WHERE `+c.keys(&l, "r.id", some)+failed+readable("r.project_id"), l.args...); err != nil {
				return err
			}
		}
	}
	for i := range runs {
		run := &runs[i]
		for _, key := range keysOf(run.ProjectID, run.RunIDs) {
			if of := ends[key]; lacksError(*run) && of.status == string(run.Status) {
				run.Error = of.text
			}
		}
	}
	return nil
}

// lacksError says that only the runs of an event tell why it ended as it did.
func lacksError(run store.ConnectorRun) bool {
	return run.Error == "" && run.Trigger != store.TriggerOutbound &&
		(run.Status == store.ConnectorRunFailed || run.Status == store.ConnectorRunCancelled)
}
