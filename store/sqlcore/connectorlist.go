// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// shallow is how many ids a page of a list of connector runs passes over; what lies deeper is found
// by the numbers of hours.
const shallow = 200

// ListConnectorRuns implements store.History.
func (c *Core) ListConnectorRuns(ctx context.Context, q store.ConnectorRunQuery) (runs []store.ConnectorRun, total int64, err error) {
	if q.Run != uuid.Nil {
		runs, total, err = c.connectorRunsOf(ctx, q)
		return runs, total, wrap(err, "listing runs of connector %s for run %s", q.Connector, q.Run)
	}
	s := connectorRuns{Core: c, connector: q.Connector, statuses: q.Statuses, trigger: q.Trigger}
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
		runs, err = s.list(ctx, tx, q.Limit, q.Offset)
		return err
	})
	if err == nil {
		err = c.addErrors(ctx, runs)
	}
	return runs, total, wrap(err, "listing runs of connector %s", q.Connector)
}

// ofConnector are conditions on the connector and the ids of connector runs of a period that are
// wanted in the order of both.
func (s *connectorRuns) ofConnector(l *list, of period) string {
	if s.oneAsRange {
		return `c.connector_id BETWEEN $2 AND $2` + l.during(of)
	}
	return `c.connector_id = $2` + l.during(of)
}

// setWindow sets the window that ends now. Of history it begins where the oldest row is that the
// connector still has there and that may be read, for rollups tell of what is gone too; what is
// left of a day that has gone has no part in it.
func (s *connectorRuns) setWindow(ctx context.Context, q Queryer, of store.ConnectorRunQuery) error {
	if err := s.look(ctx, q); err != nil {
		return err
	}
	var now, gone int64
	if err := q.QueryRowContext(ctx, `SELECT now_us(), COALESCE((SELECT s.gone_until FROM stored_bytes s WHERE s.project_id = $1), 0)`,
		s.connector.ProjectID).Scan(&now, &gone); err != nil {
		return err
	}
	from := max(s.seen, begin(gone))
	s.open = period{0, never}
	if of.Since > 0 {
		s.open.from = max(now-of.Since.Microseconds(), 0)
	}
	l := s.args()
	oldest, err := scanID(q.QueryRowContext(ctx, `SELECT c.id FROM ended_connector_runs c WHERE c.project_id = $1 AND `+
		s.ofConnector(&l, period{max(from, s.open.from), never})+` ORDER BY c.connector_id, c.id LIMIT 1`, l.args...))
	switch err = found(err); {
	case err == nil:
		s.ended = period{max(s.open.from, store.TimeOf(oldest).UnixMicro()), never}
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	s.narrowWindows()
	return nil
}

// list reads so many of them from an offset on, newest first. What lies deep, or is a part of what
// the connector has, is read of the hours that have some: else all would be read that lies between.
func (s *connectorRuns) list(ctx context.Context, q Queryer, limit, offset int) (runs []store.ConnectorRun, err error) {
	if s.ended.empty() || offset <= shallow && len(s.statuses) == 0 && s.trigger == "" {
		return s.page(ctx, q, limit, offset, period{0, never})
	}
	hours, err := s.hours(ctx, q, limit+offset)
	if err == nil {
		err = s.addOpen(ctx, q, limit+offset, hours)
	}
	if err != nil {
		return nil, err
	}
	left, times := timesOf(hours, limit, offset)
	for _, within := range times {
		some, err := s.page(ctx, q, limit-len(runs), left, within)
		if runs, left = append(runs, some...), 0; err != nil || len(runs) == limit {
			return runs, err
		}
	}
	return runs, nil
}

// hours are how many have ended in each hour that has some, by its beginning; of hours before those
// that have the newest ones, so many of them, it need not tell.
func (s *connectorRuns) hours(ctx context.Context, q Queryer, newest int) (map[int64]int64, error) {
	hours := maps.Clone(s.ragged)
	whole, _ := split(s.ended)
	if len(whole) > 0 {
		l := s.args()
		narrow := s.narrow(&l)
		if _, err := collect(ctx, q, func(row scanner) (none struct{}, err error) {
			var begin, runs int64
			err = row.Scan(&begin, &runs)
			hours[begin] += runs
			return none, err
		}, `SELECT c.begins_at, c.runs FROM connector_rollups c WHERE c.project_id = $1 AND c.connector_id = $2`+narrow+` AND c.grain = 'hour' AND c.begins_at >= `+
			l.add(whole[0].from)+` AND c.begins_at < `+l.add(whole[len(whole)-1].to)+` ORDER BY c.begins_at DESC LIMIT `+l.add(newest), l.args...); err != nil {
			return nil, err
		}
	}
	for _, run := range s.waiting {
		hours[hourOf(run.ID)]++
	}
	return hours, nil
}

// addOpen adds to hours those that are open, among them the newest ones, so many of them.
func (s *connectorRuns) addOpen(ctx context.Context, q Queryer, newest int, hours map[int64]int64) error {
	if s.open.empty() {
		return nil
	}
	l := s.args()
	narrow := s.ofConnector(&l, s.open) + s.narrow(&l)
	last := ` ORDER BY c.connector_id DESC, c.id DESC LIMIT ` + l.add(newest)
	_, err := collect(ctx, q, func(row scanner) (none struct{}, err error) {
		id, err := scanID(row)
		hours[hourOf(id)]++
		return none, err
	}, `SELECT o.id FROM (SELECT c.id FROM open_connector_runs c WHERE c.project_id = $1 AND `+narrow+s.openEvents()+last+`) AS o
		UNION ALL SELECT d.id FROM (SELECT c.id FROM `+openDeliveries+` c WHERE c.project_id = $1 AND `+narrow+s.leased()+last+`) AS d`, l.args...)
	return err
}

// timesOf are the times of those hours that come after the newest ones with no more than offset
// runs together, newest first: hours in a row, until they hold a page. It returns how many of the
// first time are left to pass over.
func timesOf(hours map[int64]int64, limit, offset int) (left int, times []period) {
	room := int64(0) // of a page, after what the last time holds
	for _, begin := range slices.Backward(slices.Sorted(maps.Keys(hours))) {
		runs, end := hours[begin], begin+time.Hour.Microseconds()
		switch last := len(times) - 1; {
		case last < 0 && runs <= int64(offset):
			offset -= int(runs)
			continue
		case last < 0:
			times, room = []period{{begin, end}}, int64(limit+offset)
		case room > 0 && times[last].from == end:
			times[last].from = begin
		default:
			times, room = append(times, period{begin, end}), int64(limit)
		}
		room -= runs
	}
	return offset, times
}

// hourOf is when the hour began of the time in an id.
func hourOf(id uuid.UUID) int64 { return hourly.floor(store.TimeOf(id).UnixMicro()) }

// page reads runs of a period, newest first; of those that an offset passes over the ids alone.
func (s *connectorRuns) page(ctx context.Context, q Queryer, limit, offset int, within period) ([]store.ConnectorRun, error) {
	l := s.args()
	narrow := s.narrow(&l)
	if offset > 0 {
		ids, err := s.pageIDs(ctx, q, limit, offset, within)
		if err != nil || len(ids) == 0 {
			return nil, err
		}
		narrow += ` AND c.id <= ` + l.add(ids[0]) + ` AND c.id >= ` + l.add(ids[len(ids)-1])
	}
	return collect(ctx, q, scanConnectorRun, `SELECT x.* FROM (`+s.newest(&l, narrow, limit, within, openConnectorRunColumns, openDeliveryColumns, endedConnectorRunColumns)+`) AS x
		WHERE x.project_id = $1 ORDER BY x.id DESC LIMIT `+l.add(limit), l.args...)
}

// pageIDs are the ids of those of a page.
func (s *connectorRuns) pageIDs(ctx context.Context, q Queryer, limit, offset int, within period) ([]uuid.UUID, error) {
	const id = `c.connector_id, c.id`
	l := s.args()
	narrow := s.narrow(&l)
	return collect(ctx, q, scanID, `SELECT x.id FROM (`+s.newest(&l, narrow, offset+limit, within, id, id, id)+`) AS x ORDER BY x.id DESC LIMIT `+l.add(limit)+` OFFSET `+l.add(offset), l.args...)
}

// newest selects these columns of the newest ones of a period, at most so many of each kind: of
// those that are open, of deliveries and of those that have ended.
func (s *connectorRuns) newest(l *list, narrow string, most int, within period, open, due, ended string) string {
	some := l.add(most)
	of := func(columns, table, name, among string, window period) string {
		window = period{max(window.from, within.from), min(window.to, within.to)}
		return `SELECT * FROM (SELECT ` + columns + ` FROM ` + table + ` c WHERE c.project_id = $1 AND ` + s.ofConnector(l, window) + narrow + among + ` ORDER BY c.connector_id DESC, c.id DESC LIMIT ` + some + `) AS ` + name
	}
	var from []string
	if !s.open.empty() {
		from = append(from, of(open, `open_connector_runs`, `open`, s.openEvents(), s.open)+` UNION ALL `+of(due, openDeliveries, `due`, s.leased(), s.open))
	}
	if !s.ended.empty() {
		from = append(from, of(ended, `ended_connector_runs`, `ended`, ``, s.readable(s.ended)))
	}
	return strings.Join(from, ` UNION ALL `)
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
