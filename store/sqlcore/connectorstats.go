// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// ConnectorStatistics implements store.Statistics, in the manner of RunStatistics.
func (c *Core) ConnectorStatistics(ctx context.Context, q store.ConnectorStatisticsQuery) (out store.ConnectorStatistics, err error) {
	window := period{max(boundOf(q.Since, 0), 0), boundOf(q.Until, never)}
	s := connectorRuns{Core: c, connector: q.Connector, statuses: q.Statuses, trigger: q.Trigger, open: window, ended: window}
	s.narrowWindows()
	err = c.engine.Snapshot(ctx, func(ctx context.Context, q Queryer) error {
		if err := s.look(ctx, q); err != nil {
			return err
		}
		if err := s.count(ctx, q); err != nil {
			return err
		}
		if s.total() == 0 {
			return nil
		}
		newest, err := s.list(ctx, q, 1, 0)
		for _, run := range newest {
			out.Last = run.Status
		}
		return err
	})
	out.Runs = map[store.ConnectorRunStatus]int64{}
	var timed summed
	for status, n := range s.counted {
		out.Runs[status] = n.runs
		if status == store.ConnectorRunCompleted || status == store.ConnectorRunFailed {
			timed = summed{timed.runs + n.runs, timed.us + n.us}
		}
	}
	if timed.runs > 0 {
		average := time.Duration(timed.us/timed.runs) * time.Microsecond
		out.AverageDuration = &average
	}
	return out, wrap(err, "counting runs of connector %s", q.Connector)
}

// connectorRuns are runs of a connector that are counted and listed.
type connectorRuns struct {
	*Core
	connector store.Key
	// statuses and trigger narrow, unless they are empty.
	statuses []store.ConnectorRunStatus
	trigger  store.TriggerType
	// open and ended are when those started that are open, and those that have ended.
	open, ended period
	// seen is since when rows of history may be read.
	seen int64

	// counted are their numbers by status.
	counted map[store.ConnectorRunStatus]summed
	// ragged are the numbers of those that have ended in hours that the window has only a part of.
	ragged map[int64]int64
	// waiting are those that have ended in whole hours and are not rolled up yet.
	waiting []endedConnectorRun
}

// look sets since when rows of history may be read.
func (s *connectorRuns) look(ctx context.Context, q Queryer) (err error) {
	s.seen, err = s.seenSince(ctx, q, s.connector.ProjectID)
	return err
}

// readable is of a period what rows of history may be read of.
func (s *connectorRuns) readable(of period) period { return period{max(of.from, s.seen), of.to} }

// narrowWindows looks for no status where there is none of it.
func (s *connectorRuns) narrowWindows() {
	if !canHaveEnded(s.statuses) {
		s.ended = period{}
	}
	if !canBeOpen(s.statuses) {
		s.open = period{}
	}
}

// total is how many were counted.
func (s *connectorRuns) total() (n int64) {
	for _, of := range s.counted {
		n += of.runs
	}
	return n
}

// narrow are the conditions on the columns of rollups, ended and open connector runs c, beside
// those on the connector, which are the first two arguments.
func (s *connectorRuns) narrow(l *list) (text string) {
	if len(s.statuses) > 0 {
		text += ` AND c.status IN ` + texts(l, s.statuses)
	}
	if !s.wants(store.ConnectorRunCompleted) {
		text += ` AND c.status <> 'completed'` // as an index of history has it
	}
	if s.trigger != "" {
		text += ` AND c.trigger_type = ` + l.add(string(s.trigger))
	}
	return text
}

// wants says that connector runs of a status are counted and listed.
func (s *connectorRuns) wants(status store.ConnectorRunStatus) bool {
	return len(s.statuses) == 0 || slices.Contains(s.statuses, status)
}

// openEvents narrows open runs of events, which are all running: to look among them for pending ones
// would read all of them.
func (s *connectorRuns) openEvents() string {
	if s.wants(store.ConnectorRunRunning) {
		return ``
	}
	return ` AND FALSE`
}

func (s *connectorRuns) args() list { return list{args: []any{s.connector.ProjectID, s.connector.ID}} }

// during are the conditions on the ids of a period. One that narrows nothing is left out: to compare
// it with each id costs a third of what it does to count a row.
func (l *list) during(p period) (text string) {
	if p.from > 0 {
		text += ` AND c.id >= id_at(` + l.add(p.from) + `)`
	}
	if p.to != never {
		text += ` AND c.id < id_at(` + l.add(p.to) + `)`
	}
	return text
}

// count counts them: whole hours, days and months by their rollups, what is left of an hour at
// the ends of the window, and what is open, row by row.
func (s *connectorRuns) count(ctx context.Context, q Queryer) error {
	whole, rest := split(s.ended)
	l := s.args()
	narrow := s.narrow(&l)
	var of []string
	for _, stretch := range whole {
		of = append(of, `SELECT c.status, c.runs, c.duration_us AS us, 0 AS ragged FROM connector_rollups c
			WHERE c.project_id = $1 AND c.connector_id = $2 AND c.grain = `+l.add(string(stretch.grain))+narrow+` AND c.begins_at >= `+l.add(stretch.from)+` AND c.begins_at < `+l.add(stretch.to))
	}
	for _, end := range rest {
		of = append(of, `SELECT c.status, count(*) AS runs, SUM(c.ended_at - c.started_at) AS us, CAST(`+l.add(hourly.floor(end.from))+` AS bigint) AS ragged FROM ended_connector_runs c
			WHERE c.project_id = $1 AND c.connector_id = $2`+narrow+l.during(s.readable(end))+` GROUP BY c.status`)
	}
	if !s.open.empty() {
		of = append(of, s.countOpen(narrow+s.openEvents()+l.during(s.open)), s.countDeliveries(l.during(s.open)))
	}
	if len(of) == 0 {
		return nil
	}
	s.counted, s.ragged = map[store.ConnectorRunStatus]summed{}, map[int64]int64{}
	_, err := collect(ctx, q, func(row scanner) (none struct{}, err error) {
		var (
			status store.ConnectorRunStatus
			more   summed
			hour   int64
		)
		err = row.Scan(&status, &more.runs, &more.us, &hour)
		s.counted[status] = summed{s.counted[status].runs + more.runs, s.counted[status].us + more.us}
		if hour != 0 {
			s.ragged[hour] += more.runs
		}
		return none, err
	}, `SELECT x.status, CAST(SUM(x.runs) AS bigint), CAST(SUM(x.us) AS bigint), x.ragged FROM (`+strings.Join(of, ` UNION ALL `)+`) AS x GROUP BY x.status, x.ragged HAVING SUM(x.runs) > 0`, l.args...)
	if err != nil || len(whole) == 0 {
		return err
	}
	return s.addWaiting(ctx, q, period{whole[0].from, whole[len(whole)-1].to})
}

// Open ones are counted at once of both statuses that they may have: to group them by a column
// costs as much again as to count them.
const openStatuses = `(SELECT 'pending' AS status UNION ALL SELECT 'running') AS h`

// countOpen counts open runs of events.
func (s *connectorRuns) countOpen(among string) string {
	return `SELECT h.status, CASE h.status WHEN 'pending' THEN n.pending ELSE n.running END AS runs, 0 AS us, 0 AS ragged
		FROM (SELECT count(*) FILTER (WHERE c.status = 'pending') AS pending, count(*) FILTER (WHERE c.status = 'running') AS running
			FROM open_connector_runs c WHERE c.project_id = $1 AND c.connector_id = $2` + among + `) AS n, ` + openStatuses
}

// countDeliveries counts open deliveries: by indexes alone, for of one whose destination is away for
// long there is no limit how many wait.
func (s *connectorRuns) countDeliveries(among string) string {
	if s.trigger != "" && s.trigger != store.TriggerOutbound {
		among += ` AND FALSE`
	}
	if !s.wants(store.ConnectorRunPending) {
		return `SELECT 'running' AS status, count(*) AS runs, 0 AS us, 0 AS ragged FROM deliveries c
			WHERE c.project_id = $1 AND c.connector_id = $2 AND c.lease_until IS NOT NULL` + among
	}
	counted := `SELECT h.status, CASE h.status WHEN 'pending' THEN n.known - n.leased ELSE n.leased END AS runs, 0 AS us, 0 AS ragged
		FROM (SELECT (SELECT count(*) FROM deliveries c WHERE c.project_id = $1 AND c.connector_id = $2` + among + `) AS known,
			(SELECT count(*) FROM deliveries c WHERE c.project_id = $1 AND c.connector_id = $2 AND c.lease_until IS NOT NULL` + among + `) AS leased) AS n, ` + openStatuses
	if !s.wants(store.ConnectorRunRunning) {
		counted += ` WHERE h.status = 'pending'`
	}
	return counted
}

// leased narrows deliveries to those that are being sent, where only these are asked for: of them
// there are few, and an index.
func (s *connectorRuns) leased() string {
	if s.wants(store.ConnectorRunPending) {
		return ``
	}
	return ` AND c.lease_until IS NOT NULL`
}

// addWaiting adds what has ended of a period and is not rolled up yet, of the project's newest.
func (s *connectorRuns) addWaiting(ctx context.Context, q Queryer, of period) error {
	waiting, _, err := connectorRunsToRollUp.newest(ctx, q, s.connector.ProjectID, store.MaxWaiting)
	if err != nil {
		return err
	}
	within := slices.DeleteFunc(waiting, func(run store.Key) bool {
		at := store.TimeOf(run.ID).UnixMicro()
		return at < of.from || at >= of.to
	})
	ended, err := s.endedConnectorRuns(ctx, q, within)
	s.waiting = slices.DeleteFunc(ended, func(run endedConnectorRun) bool {
		return run.connector != s.connector.ID || !s.wants(run.status) || s.trigger != "" && run.trigger != s.trigger
	})
	for _, run := range s.waiting {
		s.counted[run.status] = s.counted[run.status].with(run)
	}
	return err
}
