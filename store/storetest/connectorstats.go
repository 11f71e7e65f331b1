// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// pastConnectorRun is an ended connector run that a test inserts for another time.
type pastConnectorRun struct {
	id, connector uuid.UUID
	trigger       store.TriggerType
	status        store.ConnectorRunStatus
	error         string
	took          time.Duration
}

// insertInto inserts the row that the end of the connector run inserts.
func (p pastConnectorRun) insertInto(w *world) {
	started := store.TimeOf(p.id)
	w.execStatement(`INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type,
			run_ids, error, started_at, ended_at) VALUES ($1, $2, $3, $4, $5, $6, '', $7, $8, $9, $10)`,
		w.project.ID.String(), p.id.String(), w.environment.ID.String(), p.connector.String(), string(p.status), string(p.trigger), "{}", p.error,
		started.UnixMicro(), started.Add(p.took).UnixMicro())
	w.recordDay(started)
	w.execStatement(`INSERT INTO outbox_rollups (project_id, ended_id, posted_at, connector_run_ids) VALUES ($1, $2, 1, $3)`,
		w.project.ID.String(), p.id.String(), "{"+p.id.String()+"}")
}

// pastConnectorRuns inserts runs of two connectors, between two times.
func (w *world) pastConnectorRuns(c dice, n int, from, to time.Time, connectors []uuid.UUID) (all []pastConnectorRun) {
	for range n {
		at := from.Add(time.Duration(c.Int64N(int64(to.Sub(from)))))
		if hour := at.Truncate(time.Hour); c.IntN(4) == 0 && !hour.Before(from) {
			at = hour // where windows begin and end
		}
		run := pastConnectorRun{
			id: store.Stamp(newUUIDv7(), at.UnixMicro(), 0), connector: drawOne(c, connectors...), trigger: drawOne(c, store.TriggerWebhook, store.TriggerWebhook, store.TriggerCron),
			status: drawOne(c, store.ConnectorRunCompleted, store.ConnectorRunCompleted, store.ConnectorRunFailed, store.ConnectorRunSkipped),
			took:   time.Duration(c.Int64N(int64(time.Minute))).Truncate(time.Microsecond),
		}
		if run.status != store.ConnectorRunCompleted {
			run.error = "because of " + run.id.String()
		}
		run.insertInto(w)
		all = append(all, run)
	}
	return all
}

// hasEnded reports whether the connector run has ended.
func (p pastConnectorRun) hasEnded() bool {
	return p.status != store.ConnectorRunRunning && p.status != store.ConnectorRunPending
}

// matches reports whether a query includes it.
func (p pastConnectorRun) matches(q store.ConnectorStatisticsQuery) bool {
	at := store.TimeOf(p.id)
	return p.connector == q.Connector.ID && (q.Since.IsZero() || !at.Before(q.Since)) && (q.Until.IsZero() || at.Before(q.Until)) &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, p.status)) && (q.Trigger == "" || q.Trigger == p.trigger)
}

// connectorNaively counts connector runs one by one.
func connectorNaively(all []pastConnectorRun, q store.ConnectorStatisticsQuery) (s store.ConnectorStatistics) {
	s.Runs = map[store.ConnectorRunStatus]int64{}
	var sum time.Duration
	for _, run := range newestFirst(all) {
		if !run.matches(q) {
			continue
		}
		s.Runs[run.status]++
		s.Last = cmp.Or(s.Last, run.status)
		if run.status != store.ConnectorRunSkipped {
			sum += run.took
		}
	}
	if timed := s.Runs[store.ConnectorRunCompleted] + s.Runs[store.ConnectorRunFailed]; timed > 0 {
		average := (sum / time.Duration(timed)).Truncate(time.Microsecond)
		s.AverageDuration = &average
	}
	return s
}

func newestFirst(all []pastConnectorRun) []pastConnectorRun {
	return slices.SortedFunc(slices.Values(all), func(a, b pastConnectorRun) int { return cmp.Compare(b.id.String(), a.id.String()) })
}

// connectorAgrees compares statistics with the naive count.
func (w *world) connectorAgrees(all []pastConnectorRun, q store.ConnectorStatisticsQuery) {
	got := w.connectorStatistics(q)
	w.Equal(connectorNaively(all, q), got, fmt.Sprintf("%+v", q))
}

// connectorWindow draws a query.
func (w *world) connectorWindow(c dice, today time.Time, connectors []uuid.UUID) store.ConnectorStatisticsQuery {
	q := store.ConnectorStatisticsQuery{
		Connector: w.key(drawOne(c, connectors...)), Statuses: connectorRunStatuses(c),
		Trigger: drawOne(c, "", "", store.TriggerWebhook, store.TriggerCron, store.TriggerOutbound),
	}
	q.Since, q.Until = drawWindow(c, today)
	return q
}

// connectorRunStatuses draws the statuses of a query: none, one or several.
func connectorRunStatuses(c dice) []store.ConnectorRunStatus {
	return drawOne(c, nil, []store.ConnectorRunStatus{drawOne(c, everyConnectorRunStatus...)}, drawSome(c, everyConnectorRunStatus...))
}

var everyConnectorRunStatus = []store.ConnectorRunStatus{
	store.ConnectorRunPending, store.ConnectorRunRunning, store.ConnectorRunCompleted, store.ConnectorRunFailed, store.ConnectorRunSkipped,
	store.ConnectorRunCancelled,
}

// startOfToday returns the start of the day of the store's clock. The next days have partitions.
func (w *world) startOfToday() time.Time {
	w.NoError(errorOf(w.s.EnsurePartitions(w.ctx, days+1)))
	return w.readClock().UTC().Truncate(24 * time.Hour)
}

// connectorTotals returns the counts of a connector's runs of all times.
func (w *world) connectorTotals(connector store.Key) map[store.ConnectorRunStatus]int64 {
	return w.connectorStatistics(store.ConnectorStatisticsQuery{Connector: connector}).Runs
}

var connectorStatisticsPromises = []promise{
	{"connector statistics equal a naive count", func(w *world) {
		today, connectors := w.startOfToday(), []uuid.UUID{w.connector.ID, uuid.New()}
		c := dice{rand.New(rand.NewPCG(3, 4))} //nolint:gosec // a test is the same each time
		var all []pastConnectorRun
		for range 6 {
			all = append(all, w.pastConnectorRuns(c, 60, today, today.AddDate(0, 0, days), connectors)...)
			for range 12 {
				w.connectorAgrees(all, w.connectorWindow(c, today, connectors))
				w.rollUpRows(c.IntN(12) + 1)
			}
		}
		w.rollUpAll(50)
		for range 60 {
			w.connectorAgrees(all, w.connectorWindow(c, today, connectors))
		}
	}},
	{"an ended connector run is counted at once, and once", withAgent(func(w *world) {
		runs := func() map[store.ConnectorRunStatus]int64 { return w.connectorTotals(w.connector.Key()) }
		w.Empty(runs())
		w.singles(4)
		w.Equal(map[store.ConnectorRunStatus]int64{store.ConnectorRunRunning: 4}, runs())
		claimed := w.claim(2, lease)
		w.NoError(w.complete(completed(claimed[0])))
		w.NoError(w.complete(completed(claimed[0])), "again")
		failed := completed(claimed[1])
		failed.Status, failed.ErrorCode = store.RunFailed, "x"
		w.NoError(w.complete(failed))
		none := w.event()
		none.Runs = nil
		w.accept(&none)
		skipped := w.event()
		skipped.Runs, skipped.Skipped = nil, "no reader"
		w.accept(&skipped)
		want := map[store.ConnectorRunStatus]int64{
			store.ConnectorRunRunning: 2, store.ConnectorRunCompleted: 2, store.ConnectorRunFailed: 1, store.ConnectorRunSkipped: 1,
		}
		w.Equal(want, runs())
		w.Positive(w.rollUpRows(1))
		w.Equal(want, runs())
		w.rollUpAll(10)
		w.Equal(want, runs())
		w.EqualValues(4, w.queryCount(`SELECT sum(runs) FROM connector_rollups WHERE grain = 'hour' AND project_id = $1`), "nothing is left to roll up")
		s := w.connectorStatistics(store.ConnectorStatisticsQuery{Connector: w.connector.Key()})
		w.NotNil(s.AverageDuration)
		w.Equal(store.ConnectorRunSkipped, s.Last)
	})},
	{"deliveries are counted for every outcome", withAgents(func(w *world) {
		c := w.outboundTo("results", automatic)
		totals := func() map[store.ConnectorRunStatus]int64 { return w.connectorTotals(c.Key()) }
		w.endEvents(4)
		w.Equal(4, w.postDeliveries())
		w.makeAllDue()
		taken := w.takeDue(10, 10)
		w.Len(taken, 4)
		w.recordAttempts(attempted(taken[0], store.DeliveryDone), attempted(taken[1], store.DeliveryDone))
		w.recordAttempts(attempted(taken[2], store.DeliveryFailed))
		want := map[store.ConnectorRunStatus]int64{store.ConnectorRunCompleted: 2, store.ConnectorRunFailed: 1, store.ConnectorRunRunning: 1}
		w.Equal(want, totals())
		w.recordAttempts(attempted(taken[3], store.DeliveryRetry))
		c.Enabled = false
		c.Ref.Generation++
		w.NoError(w.s.PutConnector(w.ctx, c))
		w.endEvents(1)
		w.postDeliveries()
		w.makeAllDue()
		w.takeDue(10, 10)
		want[store.ConnectorRunSkipped] = 2
		delete(want, store.ConnectorRunRunning)
		w.Equal(want, totals())
		w.rollUpAll(10)
		w.Equal(want, totals())
		w.EqualValues(5, w.queryCount(`SELECT sum(runs) FROM connector_rollups WHERE grain = 'day' AND trigger_type = 'outbound' AND project_id = $1`))
	})},
}
