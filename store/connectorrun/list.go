// SPDX-License-Identifier: Apache-2.0

package connectorrun

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// maxShallowOffset is the maximum offset for skipping IDs. Deeper pages are located by hourly counts.
const maxShallowOffset = 200

// ListConnectorRuns implements store.History.
func (s *Store) ListConnectorRuns(ctx context.Context, q store.ConnectorRunQuery) (runs []store.ConnectorRun, total int64, err error) {
	if q.Run != uuid.Nil {
		runs, total, err = s.connectorRunsOf(ctx, q)
		return runs, total, sqldb.Wrap(err, "listing runs of connector %s for run %s", q.Connector, q.Run)
	}
	of := selection{db: s.db, connector: q.Connector, statuses: q.Statuses, trigger: q.Trigger}
	err = s.db.Snapshot(ctx, func(ctx context.Context, tx sqldb.Queryer) error {
		if err := of.setWindow(ctx, tx, q); err != nil {
			return err
		}
		if err := of.countRuns(ctx, tx); err != nil {
			return err
		}
		if total = of.totalCount(); total <= int64(q.Offset) {
			return nil
		}
		runs, err = of.listPage(ctx, tx, q.Limit, q.Offset)
		return err
	})
	if err == nil {
		err = s.addErrors(ctx, runs)
	}
	return runs, total, sqldb.Wrap(err, "listing runs of connector %s", q.Connector)
}

// ofConnector returns the condition on the connector, for rows in the order of their IDs.
func (s *selection) ofConnector() string {
	if s.db.OneAsRange {
		return `c.connector_id BETWEEN $2 AND $2`
	}
	return `c.connector_id = $2`
}

// setWindow sets the window, which ends now. In history it begins at the connector's oldest
// readable row, because rollups also count deleted rows. The rest of a deleted day is not included.
func (s *selection) setWindow(ctx context.Context, q sqldb.Queryer, of store.ConnectorRunQuery) error {
	if err := s.readReadableFrom(ctx, q); err != nil {
		return err
	}
	var now, gone int64
	if err := q.QueryRowContext(ctx, `SELECT now_us(), COALESCE((SELECT s.gone_until FROM stored_bytes s WHERE s.project_id = $1), 0)`,
		s.connector.ProjectID).Scan(&now, &gone); err != nil {
		return err
	}
	from := max(s.readableFrom, sqldb.DayStart(gone))
	s.open = timewindow.Period{From: 0, To: timewindow.Never}
	if of.Since > 0 {
		s.open.From = max(now-of.Since.Microseconds(), 0)
	}
	windows, err := timewindow.OfHistory(ctx, s.db, q, "ended_connector_runs", s.connector.ProjectID, timewindow.Period{From: max(from, s.open.From), To: timewindow.Never})
	for _, window := range windows {
		l := s.baseArgs()
		oldest, err := sqldb.Collect(ctx, q, sqldb.ScanUUID, `SELECT c.id FROM ended_connector_runs c WHERE c.project_id = $1 AND `+
			s.ofConnector()+timewindow.DaysCondition("c.id", window, &l)+` ORDER BY c.connector_id, c.id LIMIT 1`, l.Values...)
		if err != nil {
			return err
		}
		if len(oldest) > 0 {
			s.ended = timewindow.Period{From: max(s.open.From, store.TimeOf(oldest[0]).UnixMicro()), To: timewindow.Never}
			break
		}
	}
	s.emptyImpossiblePeriods()
	return err
}

// listPage reads a page from an offset, newest first. A deep page, or a page of a filtered list, reads
// only hours with matches. Otherwise it would read all rows in between.
func (s *selection) listPage(ctx context.Context, q sqldb.Queryer, limit, offset int) (runs []store.ConnectorRun, err error) {
	if s.ended.IsEmpty() || offset <= maxShallowOffset && len(s.statuses) == 0 && s.trigger == "" {
		windows, err := s.windows(ctx, q)
		if err != nil {
			return nil, err
		}
		return s.readPage(ctx, q, limit, offset, windows)
	}
	hours, err := s.hourlyCounts(ctx, q, limit+offset)
	if err == nil {
		err = s.addOpen(ctx, q, limit+offset, hours)
	}
	if err != nil {
		return nil, err
	}
	left, times := hoursOfPage(hours, limit, offset)
	for _, within := range times {
		some, err := s.readPage(ctx, q, limit-len(runs), left, []timewindow.Window{{All: within, History: []timewindow.Period{within}}})
		if runs, left = append(runs, some...), 0; err != nil || len(runs) == limit {
			return runs, err
		}
	}
	return runs, nil
}

// windows returns the windows of the open and ended connector runs, newest first.
func (s *selection) windows(ctx context.Context, q sqldb.Queryer) ([]timewindow.Window, error) {
	if s.ended.IsEmpty() {
		return []timewindow.Window{{All: s.open}}, nil
	}
	of := s.readable(s.ended)
	if !s.open.IsEmpty() {
		of = timewindow.Period{From: min(of.From, s.open.From), To: max(of.To, s.open.To)}
	}
	return timewindow.List(ctx, s.db, q, "ended_connector_runs", s.connector.ProjectID, of, nil)
}

// hourlyCounts returns the number of ended connector runs per hour with any, by its start. It may omit
// hourlyCounts before those with the newest runs.
func (s *selection) hourlyCounts(ctx context.Context, q sqldb.Queryer, newest int) (map[int64]int64, error) {
	hours := maps.Clone(s.partialHours)
	whole, _ := timewindow.Split(s.ended)
	if len(whole) > 0 {
		l := s.baseArgs()
		narrow := s.filterCondition(&l)
		if err := sqldb.EachRow(ctx, q, func(row sqldb.Scanner) (err error) {
			var begin, runs int64
			err = row.Scan(&begin, &runs)
			hours[begin] += runs
			return err
		}, `SELECT c.begins_at, c.runs FROM connector_rollups c WHERE c.project_id = $1 AND c.connector_id = $2`+narrow+` AND c.grain = 'hour' AND c.begins_at >= `+
			l.Add(whole[0].From)+` AND c.begins_at < `+l.Add(whole[len(whole)-1].To)+` ORDER BY c.begins_at DESC LIMIT `+l.Add(newest), l.Values...); err != nil {
			return nil, err
		}
	}
	for _, run := range s.waiting {
		hours[hourStart(run.ID)]++
	}
	return hours, nil
}

// addOpen adds open connector runs to the hours, up to the newest ones.
func (s *selection) addOpen(ctx context.Context, q sqldb.Queryer, newest int, hours map[int64]int64) error {
	if s.open.IsEmpty() {
		return nil
	}
	l := s.baseArgs()
	narrow := s.ofConnector() + timewindow.Condition("c.id", s.open, &l) + s.filterCondition(&l)
	last := ` ORDER BY c.connector_id DESC, c.id DESC LIMIT ` + l.Add(newest)
	return sqldb.EachRow(ctx, q, func(row sqldb.Scanner) error {
		id, err := sqldb.ScanUUID(row)
		hours[hourStart(id)]++
		return err
	}, `SELECT o.id FROM (SELECT c.id FROM open_connector_runs c WHERE c.project_id = $1 AND `+narrow+s.openEvents()+last+`) AS o
		UNION ALL SELECT d.id FROM (SELECT c.id FROM `+runrow.OpenDeliveries+` c WHERE c.project_id = $1 AND `+narrow+s.leasedCondition()+last+`) AS d`, l.Values...)
}

// hoursOfPage skips the newest hours with at most offset runs together, and returns the periods of the
// next hours, newest first, until they fill a page. It returns how many runs of the first period
// are left to skip.
func hoursOfPage(hours map[int64]int64, limit, offset int) (left int, times []timewindow.Period) {
	room := int64(0) // of a page, after the runs of the last period
	for _, begin := range slices.Backward(slices.Sorted(maps.Keys(hours))) {
		runs, end := hours[begin], begin+time.Hour.Microseconds()
		switch last := len(times) - 1; {
		case last < 0 && runs <= int64(offset):
			offset -= int(runs)
			continue
		case last < 0:
			times, room = []timewindow.Period{{From: begin, To: end}}, int64(limit+offset)
		case room > 0 && times[last].From == end:
			times[last].From = begin
		default:
			times, room = append(times, timewindow.Period{From: begin, To: end}), int64(limit)
		}
		room -= runs
	}
	return offset, times
}

// hourStart returns the start of the hour of an ID.
func hourStart(id uuid.UUID) int64 { return timewindow.Hourly.FloorTime(store.TimeOf(id).UnixMicro()) }

// readPage reads runs of windows, newest first. It reads only the IDs of skipped runs.
func (s *selection) readPage(ctx context.Context, q sqldb.Queryer, limit, offset int, windows []timewindow.Window) (runs []store.ConnectorRun, err error) {
	if offset > 0 {
		ids, err := s.pageIDs(ctx, q, limit, offset, windows)
		if err != nil || len(ids) == 0 {
			return nil, err
		}
		return s.readRuns(ctx, q, limit, windowOf(windows, ids), ids)
	}
	for _, window := range windows {
		some, err := s.readRuns(ctx, q, limit-len(runs), window, nil)
		if runs = append(runs, some...); err != nil || len(runs) == limit {
			return runs, err
		}
	}
	return runs, nil
}

// windowOf returns the part of windows that has these IDs, which are ordered like the windows,
// newest first.
func windowOf(windows []timewindow.Window, ids []uuid.UUID) timewindow.Window {
	newest, oldest := store.TimeOf(ids[0]).Truncate(time.Millisecond), store.TimeOf(ids[len(ids)-1])
	of := timewindow.Window{All: timewindow.Period{From: oldest.UnixMicro(), To: newest.Add(time.Millisecond).UnixMicro()}}
	for _, window := range slices.Backward(windows) {
		of.History = append(of.History, timewindow.Clip(window.History, of.All)...)
	}
	return of
}

// readRuns reads runs of a window, newest first. If there are ids, it reads only runs from the first to the
// last of them.
func (s *selection) readRuns(ctx context.Context, q sqldb.Queryer, limit int, window timewindow.Window, ids []uuid.UUID) ([]store.ConnectorRun, error) {
	l := s.baseArgs()
	narrow := s.filterCondition(&l)
	if len(ids) > 0 {
		narrow += ` AND c.id <= ` + l.Add(ids[0]) + ` AND c.id >= ` + l.Add(ids[len(ids)-1])
	}
	from := s.selectNewest(&l, narrow, limit, window, runrow.OpenConnectorRunColumns, runrow.OpenDeliveryColumns, runrow.EndedConnectorRunColumns)
	if from == "" {
		return nil, nil
	}
	return sqldb.Collect(ctx, q, runrow.ScanConnectorRun, `SELECT x.* FROM (`+from+`) AS x WHERE x.project_id = $1 ORDER BY x.id DESC LIMIT `+l.Add(limit), l.Values...)
}

// pageIDs returns the IDs of a page.
func (s *selection) pageIDs(ctx context.Context, q sqldb.Queryer, limit, offset int, windows []timewindow.Window) (ids []uuid.UUID, err error) {
	const id = `c.connector_id, c.id`
	for _, window := range windows {
		l := s.baseArgs()
		left := offset + limit - len(ids)
		from := s.selectNewest(&l, s.filterCondition(&l), left, window, id, id, id)
		if from == "" {
			continue
		}
		some, err := sqldb.Collect(ctx, q, sqldb.ScanUUID, `SELECT x.id FROM (`+from+`) AS x ORDER BY x.id DESC LIMIT `+l.Add(left), l.Values...)
		if ids = append(ids, some...); err != nil || len(ids) == offset+limit {
			return ids[min(offset, len(ids)):], err
		}
	}
	return ids[min(offset, len(ids)):], nil
}

// endedWindow returns the part of a window that can have readable ended runs. Without a lower bound,
// the planner does not search an older window by its bounds, which has runs of all connectors.
func (s *selection) endedWindow(window timewindow.Window) timewindow.Window {
	within := s.readable(s.ended).Overlap(window.All)
	of := timewindow.Window{All: within, History: timewindow.Clip(window.History, within)}
	if window.All.To != timewindow.Never && !slices.Contains(window.History, window.All) {
		of.All.From = 0
	}
	return of
}

// selectNewest selects columns of the newest connector runs of a window, at most so many of each kind:
// open ones, deliveries, and ended ones. It returns "" if there can be none.
func (s *selection) selectNewest(l *sqldb.Args, narrow string, most int, window timewindow.Window, open, due, ended string) string {
	some := l.Add(most)
	of := func(columns, table, name, among string) string {
		return `SELECT * FROM (SELECT ` + columns + ` FROM ` + table + ` c WHERE c.project_id = $1 AND ` + s.ofConnector() + narrow + among + ` ORDER BY c.connector_id DESC, c.id DESC LIMIT ` + some + `) AS ` + name
	}
	var from []string
	if within := s.open.Overlap(window.All); !within.IsEmpty() {
		during := timewindow.Condition("c.id", within, l)
		from = append(from, of(open, `open_connector_runs`, `open`, s.openEvents()+during)+` UNION ALL `+of(due, runrow.OpenDeliveries, `due`, s.leasedCondition()+during))
	}
	if within := s.endedWindow(window); len(within.History) > 0 {
		from = append(from, of(ended, `ended_connector_runs`, `ended`, timewindow.DaysCondition("c.id", within, l)))
	}
	return strings.Join(from, ` UNION ALL `)
}

// addErrors fills in the errors of failed or cancelled events. The error is from the first run, in link
// order, with the same outcome and an error.
func (s *Store) addErrors(ctx context.Context, runs []store.ConnectorRun) error {
	var started []store.Key
	for _, run := range runs {
		if lacksError(run) {
			started = append(started, sqldb.KeysFromIDs(run.ProjectID, run.RunIDs)...)
		}
	}
	type end struct{ status, text string }
	ends := map[store.Key]end{}
	for _, same := range s.db.KeysByPart("ended_runs", started) {
		for some := range slices.Chunk(same, sqldb.MaxKeys) {
			var l sqldb.Args
			if _, err := sqldb.PastRows(ctx, s.db, s.db.Reader(), some[0].ID, func(row sqldb.Scanner) (none struct{}, err error) {
				var (
					key store.Key
					of  end
				)
				err = row.Scan(&key.ProjectID, &key.ID, &of.status, &of.text)
				ends[key] = of
				return none, err
			}, `SELECT r.project_id, r.id, r.status, r.error FROM {ended_runs} r WHERE `+s.db.KeyCondition(&l, "r.id", some)+runrow.NotCompleted+sqldb.ReadableCondition("r.project_id"), l.Values...); err != nil {
				return err
			}
		}
	}
	for i := range runs {
		run := &runs[i]
		for _, key := range sqldb.KeysFromIDs(run.ProjectID, run.RunIDs) {
			if of := ends[key]; lacksError(*run) && of.status == string(run.Status) {
				run.Error = of.text
			}
		}
	}
	return nil
}

// lacksError reports whether only the runs of an event explain its outcome.
func lacksError(run store.ConnectorRun) bool {
	return run.Error == "" && run.Trigger != store.TriggerOutbound &&
		(run.Status == store.ConnectorRunFailed || run.Status == store.ConnectorRunCancelled)
}
