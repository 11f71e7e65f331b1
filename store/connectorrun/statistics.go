// SPDX-License-Identifier: Apache-2.0

package connectorrun

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/statistics"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// ConnectorStatistics implements store.Statistics, like RunStatistics.
func (s *Store) ConnectorStatistics(ctx context.Context, q store.ConnectorStatisticsQuery) (out store.ConnectorStatistics, err error) {
	window := timewindow.Between(q.Since, q.Until)
	window.From = max(window.From, 0)
	of := selection{db: s.db, connector: q.Connector, statuses: q.Statuses, trigger: q.Trigger, open: window, ended: window}
	of.emptyImpossiblePeriods()
	err = s.db.Snapshot(ctx, func(ctx context.Context, q sqldb.Queryer) error {
		if err := of.readReadableFrom(ctx, q); err != nil {
			return err
		}
		if err := of.countRuns(ctx, q); err != nil {
			return err
		}
		if of.totalCount() == 0 {
			return nil
		}
		newest, err := of.listPage(ctx, q, 1, 0)
		for _, run := range newest {
			out.Last = run.Status
		}
		return err
	})
	out.Runs = map[store.ConnectorRunStatus]int64{}
	var timed statistics.ConnectorRunSum
	for status, n := range of.countByStatus {
		out.Runs[status] = n.Runs
		if status == store.ConnectorRunCompleted || status == store.ConnectorRunFailed {
			timed = timed.Plus(n)
		}
	}
	if timed.Runs > 0 {
		average := time.Duration(timed.Micros/timed.Runs) * time.Microsecond
		out.AverageDuration = &average
	}
	return out, sqldb.Wrap(err, "counting runs of connector %s", q.Connector)
}

// selection selects runs of a connector, which are counted and listed.
type selection struct {
	db        *sqldb.DB
	connector store.Key
	// statuses and trigger filter unless empty.
	statuses []store.ConnectorRunStatus
	trigger  store.TriggerType
	// open and ended are the start periods of open and ended connector runs.
	open, ended timewindow.Period
	// readableFrom is the time from which history is readable.
	readableFrom int64

	// countByStatus has the counts by status.
	countByStatus map[store.ConnectorRunStatus]statistics.ConnectorRunSum
	// partialHours has the counts of ended runs in hours that are only partly in the window.
	partialHours map[int64]int64
	// waiting are ended runs in whole hours that are not rolled up yet.
	waiting []statistics.EndedConnectorRun
}

// readReadableFrom sets the time from which history is readable.
func (s *selection) readReadableFrom(ctx context.Context, q sqldb.Queryer) (err error) {
	s.readableFrom, err = s.db.ReadableSince(ctx, q, s.connector.ProjectID)
	return err
}

// readable returns the readable part of a period.
func (s *selection) readable(of timewindow.Period) timewindow.Period {
	return timewindow.Period{From: max(of.From, s.readableFrom), To: of.To}
}

// emptyImpossiblePeriods empties the periods without runs of a requested status.
func (s *selection) emptyImpossiblePeriods() {
	if !runrow.CanHaveEnded(s.statuses) {
		s.ended = timewindow.Period{}
	}
	if !runrow.CanBeOpen(s.statuses) {
		s.open = timewindow.Period{}
	}
}

// totalCount returns the total count.
func (s *selection) totalCount() (n int64) {
	for _, of := range s.countByStatus {
		n += of.Runs
	}
	return n
}

// filterCondition returns the conditions on the columns of rollups and of ended and open connector runs c.
// The connector is in the first two arguments.
func (s *selection) filterCondition(l *sqldb.Args) (text string) {
	if len(s.statuses) > 0 {
		text += ` AND c.status IN ` + sqldb.AddTexts(l, s.statuses)
	}
	if !s.wantsStatus(store.ConnectorRunCompleted) {
		text += ` AND c.status <> 'completed'` // as in an index of history
	}
	if s.trigger != "" {
		text += ` AND c.trigger_type = ` + l.Add(string(s.trigger))
	}
	return text
}

// wantsStatus reports whether connector runs of a status are requested.
func (s *selection) wantsStatus(status store.ConnectorRunStatus) bool {
	return len(s.statuses) == 0 || slices.Contains(s.statuses, status)
}

// openEvents narrows open runs of events. All are running, and a search for pending ones would read
// all of them.
func (s *selection) openEvents() string {
	if s.wantsStatus(store.ConnectorRunRunning) {
		return ``
	}
	return ` AND FALSE`
}

func (s *selection) baseArgs() sqldb.Args {
	return sqldb.Args{Values: []any{s.connector.ProjectID, s.connector.ID}}
}

// countRuns counts whole hours, days and months by rollups, and parts of hours and open runs by rows.
func (s *selection) countRuns(ctx context.Context, q sqldb.Queryer) error {
	whole, rest := timewindow.Split(s.ended)
	l := s.baseArgs()
	narrow := s.filterCondition(&l)
	var of []string
	for _, stretch := range whole {
		of = append(of, `SELECT c.status, c.runs, c.duration_us AS us, 0 AS ragged FROM connector_rollups c
			WHERE c.project_id = $1 AND c.connector_id = $2 AND c.grain = `+l.Add(string(stretch.Grain))+narrow+` AND c.begins_at >= `+l.Add(stretch.From)+` AND c.begins_at < `+l.Add(stretch.To))
	}
	for _, end := range rest {
		of = append(of, `SELECT c.status, count(*) AS runs, SUM(c.ended_at - c.started_at) AS us, CAST(`+l.Add(timewindow.Hourly.FloorTime(end.From))+` AS bigint) AS ragged FROM ended_connector_runs c
			WHERE c.project_id = $1 AND c.connector_id = $2`+narrow+timewindow.Condition("c.id", s.readable(end), &l)+` GROUP BY c.status`)
	}
	if !s.open.IsEmpty() {
		of = append(of, s.countOpen(narrow+s.openEvents()+timewindow.Condition("c.id", s.open, &l)), s.countDeliveries(timewindow.Condition("c.id", s.open, &l)))
	}
	if len(of) == 0 {
		return nil
	}
	s.countByStatus, s.partialHours = map[store.ConnectorRunStatus]statistics.ConnectorRunSum{}, map[int64]int64{}
	err := sqldb.EachRow(ctx, q, func(row sqldb.Scanner) (err error) {
		var (
			status store.ConnectorRunStatus
			more   statistics.ConnectorRunSum
			hour   int64
		)
		err = row.Scan(&status, &more.Runs, &more.Micros, &hour)
		s.countByStatus[status] = s.countByStatus[status].Plus(more)
		if hour != 0 {
			s.partialHours[hour] += more.Runs
		}
		return err
	}, `SELECT x.status, CAST(SUM(x.runs) AS bigint), CAST(SUM(x.us) AS bigint), x.ragged FROM (`+strings.Join(of, ` UNION ALL `)+`) AS x GROUP BY x.status, x.ragged HAVING SUM(x.runs) > 0`, l.Values...)
	if err != nil || len(whole) == 0 {
		return err
	}
	return s.addWaiting(ctx, q, timewindow.Period{From: whole[0].From, To: whole[len(whole)-1].To})
}

// Open rows are counted for both possible statuses at once, because grouping by a column doubles
// the cost of counting.
const openStatuses = `(SELECT 'pending' AS status UNION ALL SELECT 'running') AS h`

// countOpen counts open runs of events.
func (s *selection) countOpen(among string) string {
	return `SELECT h.status, CASE h.status WHEN 'pending' THEN n.pending ELSE n.running END AS runs, 0 AS us, 0 AS ragged
		FROM (SELECT count(*) FILTER (WHERE c.status = 'pending') AS pending, count(*) FILTER (WHERE c.status = 'running') AS running
			FROM open_connector_runs c WHERE c.project_id = $1 AND c.connector_id = $2` + among + `) AS n, ` + openStatuses
}

// countDeliveries counts open deliveries by indexes only, because a destination that is down for
// long may have any number of them.
func (s *selection) countDeliveries(among string) string {
	if s.trigger != "" && s.trigger != store.TriggerOutbound {
		among += ` AND FALSE`
	}
	if !s.wantsStatus(store.ConnectorRunPending) {
		return `SELECT 'running' AS status, count(*) AS runs, 0 AS us, 0 AS ragged FROM deliveries c
			WHERE c.project_id = $1 AND c.connector_id = $2 AND c.lease_until IS NOT NULL` + among
	}
	counted := `SELECT h.status, CASE h.status WHEN 'pending' THEN n.known - n.leased ELSE n.leased END AS runs, 0 AS us, 0 AS ragged
		FROM (SELECT (SELECT count(*) FROM deliveries c WHERE c.project_id = $1 AND c.connector_id = $2` + among + `) AS known,
			(SELECT count(*) FROM deliveries c WHERE c.project_id = $1 AND c.connector_id = $2 AND c.lease_until IS NOT NULL` + among + `) AS leased) AS n, ` + openStatuses
	if !s.wantsStatus(store.ConnectorRunRunning) {
		counted += ` WHERE h.status = 'pending'`
	}
	return counted
}

// leasedCondition narrows deliveries to those in progress if only these are requested. They are few and have
// an index.
func (s *selection) leasedCondition() string {
	if s.wantsStatus(store.ConnectorRunPending) {
		return ``
	}
	return ` AND c.lease_until IS NOT NULL`
}

// addWaiting adds ended runs of a period that are not rolled up yet, of the project's newest.
func (s *selection) addWaiting(ctx context.Context, q sqldb.Queryer, of timewindow.Period) error {
	ended, err := statistics.WaitingConnectorRuns(ctx, s.db, q, s.connector.ProjectID, of)
	s.waiting = slices.DeleteFunc(ended, func(run statistics.EndedConnectorRun) bool {
		return run.Connector != s.connector.ID || !s.wantsStatus(run.Status) || s.trigger != "" && run.Trigger != s.trigger
	})
	for _, run := range s.waiting {
		s.countByStatus[run.Status] = s.countByStatus[run.Status].PlusRun(run)
	}
	return err
}
