// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// pageAgrees compares a page of a connector's runs with a naive computation.
func (w *world) pageAgrees(all []pastConnectorRun, q store.ConnectorRunQuery, now time.Time) {
	page, total := w.listConnectorRuns(q)
	of := store.ConnectorStatisticsQuery{Connector: q.Connector, Statuses: q.Statuses, Trigger: q.Trigger}
	if q.Since > 0 {
		of.Since = now.Add(-q.Since)
	}
	match := slices.DeleteFunc(newestFirst(all), func(run pastConnectorRun) bool { return !run.matches(of) })
	what := fmt.Sprintf("%+v", q)
	w.EqualValues(len(match), total, what)
	match = match[min(q.Offset, len(match)):]
	match = match[:min(q.Limit, len(match))]
	w.Len(page, len(match), what)
	for i, run := range page {
		w.Equal(match[i].id, run.ID, what)
		w.Equal(match[i].error, run.Error, what)
		w.Equal(match[i].status, run.Status, what)
	}
}

// connectorPage draws a page whose window does not begin at one of these runs.
func (w *world) connectorPage(c dice, all []pastConnectorRun, now time.Time, connectors []uuid.UUID) store.ConnectorRunQuery {
	q := store.ConnectorRunQuery{
		Connector: w.key(drawOne(c, connectors...)), Since: drawOne(c, 0, 0, time.Hour, 30*24*time.Hour, 1+time.Duration(c.Int64N(int64(now.Sub(now.Truncate(24*time.Hour)))))),
		Statuses: connectorRunStatuses(c),
		Trigger:  drawOne(c, "", "", store.TriggerWebhook, store.TriggerCron, store.TriggerOutbound),
		Limit:    1 + c.IntN(40), Offset: drawOne(c, 0, c.IntN(30), c.IntN(700)),
	}
	for q.Since > 0 && slices.ContainsFunc(all, func(run pastConnectorRun) bool {
		return store.TimeOf(run.id).Sub(now.Add(-q.Since)).Abs() < 10*time.Second // the store reads the time a little later
	}) {
		q.Since += 11 * time.Second
	}
	return q
}

// openConnectorRuns inserts open events and deliveries between two times.
func (w *world) openConnectorRuns(c dice, n int, from, to time.Time, connectors []uuid.UUID) (all []pastConnectorRun) {
	for range n {
		run := pastConnectorRun{
			id: store.Stamp(newUUIDv7(), from.Add(time.Duration(c.Int64N(int64(to.Sub(from))))).UnixMicro(), 0), connector: drawOne(c, connectors...),
			trigger: drawOne(c, store.TriggerWebhook, store.TriggerCron, store.TriggerOutbound), status: store.ConnectorRunRunning,
		}
		args := []any{w.project.ID.String(), run.id.String(), w.environment.ID.String(), run.connector.String(), uuid.NewString()}
		statement := `INSERT INTO open_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type, input_size,
			run_ids, runs_left, runs_failed, runs_completed, started_at) VALUES ($1, $2, $3, $4, 'running', $6, '', 1, $5, 1, 0, 0, 1)`
		if run.trigger == store.TriggerOutbound {
			run.status = drawOne(c, store.ConnectorRunPending, store.ConnectorRunPending, store.ConnectorRunRunning)
			var lease any
			if run.status == store.ConnectorRunRunning {
				lease = 1
			}
			statement = `INSERT INTO deliveries (project_id, id, environment_id, connector_id, link_id, run_id, attempt, due_at, started_at, lease_until) VALUES ($1, $2, $3, $4, $5, $5, 0, 1, 1, $6)`
			args = append(args, lease)
		} else {
			args[4] = "{" + uuid.NewString() + "}"
			args = append(args, string(run.trigger))
		}
		w.execStatement(statement, args...)
		all = append(all, run)
	}
	return all
}

var connectorListPromises = []promise{
	{"any page of a connector's runs equals the naive list", func(w *world) {
		today, connectors := w.startOfToday(), []uuid.UUID{w.connector.ID, uuid.New()}
		c := dice{rand.New(rand.NewPCG(5, 6))} //nolint:gosec // a test is the same each time
		all := w.openConnectorRuns(c, 30, today, today.AddDate(0, 0, 3), connectors)
		check := func(n int) {
			for range n {
				now := w.readClock()
				w.pageAgrees(all, w.connectorPage(c, all, now, connectors), now)
			}
		}
		for range 4 {
			all = append(all, w.pastConnectorRuns(c, 150, today, today.AddDate(0, 0, 3), connectors[:1])...)
			all = append(all, w.pastConnectorRuns(c, 20, today.AddDate(0, 0, 1), today.AddDate(0, 0, days), connectors[1:])...)
			check(20)
			w.rollUpRows(c.IntN(120) + 1)
			check(20)
		}
		w.rollUpAll(100)
		check(60)
		gone := today.AddDate(0, 0, 2).Add(7 * time.Hour)
		for _, run := range all {
			if run.hasEnded() && store.TimeOf(run.id).Before(gone) {
				w.execStatement(`DELETE FROM ended_connector_runs WHERE project_id = $1 AND id = $2`, w.project.ID.String(), run.id.String())
			}
		}
		all = slices.DeleteFunc(all, func(run pastConnectorRun) bool {
			return run.hasEnded() && store.TimeOf(run.id).Before(gone)
		})
		check(60) // lists do not include the rollups of deleted runs
	}},
	{"a failed event is listed with its error", withAgents(func(w *world) {
		events := []store.Event{w.event(), w.singleEvent()}
		w.acceptAll(events)
		for _, claimed := range w.claim(3, lease) {
			done := completed(claimed)
			if claimed.Run.AgentName == "second" {
				done.Status, done.ErrorCode, done.Error = store.RunFailed, "x", "it has failed"
			}
			w.NoError(w.complete(done))
		}
		runs, _ := w.listConnectorRuns(store.ConnectorRunQuery{Connector: w.connector.Key(), Limit: 10})
		w.Len(runs, 2)
		w.Empty(runs[0].Error)
		w.Equal("it has failed", runs[1].Error)
		one, err := w.s.ConnectorRun(w.ctx, runs[1].Key())
		w.NoError(err)
		w.Equal(runs[1], one)
	})},
}
