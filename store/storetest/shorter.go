// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// keepsSince sets the project's retention so that history is kept from a time, which moves with the
// clock.
func (w *world) keepsSince(at time.Time) {
	now := w.readClock()
	w.execStatement(`UPDATE projects SET history_us = $1 WHERE project_id = $2`, now.Sub(at).Microseconds(), w.project.ID)
}

// everyTenMinutes inserts a connector run every ten minutes for three days, with rollups.
func (w *world) everyTenMinutes(first time.Time) (all []pastConnectorRun) {
	for n := range 3 * 24 * 6 {
		run := pastConnectorRun{
			id:        store.Stamp(newUUIDv7(), first.Add(time.Duration(n)*10*time.Minute).UnixMicro(), 0),
			connector: w.connector.ID, trigger: store.TriggerWebhook, status: store.ConnectorRunCompleted, took: time.Second,
		}
		if n%3 == 0 {
			run.status = store.ConnectorRunFailed
		}
		run.insertInto(w)
		all = append(all, run)
		if n%(24*6) == 0 {
			w.storedOn(store.TimeOf(run.id))
		}
	}
	w.rollUpAll(100)
	return all
}

// storedOn records stored bytes of the project on a day, as counting does.
func (w *world) storedOn(day time.Time) {
	w.NoError(errorOf(w.db.ExecContext(w.ctx, `INSERT INTO stored_days (project_id, day, bytes) VALUES ($1, $2, 1)
		ON CONFLICT (project_id, day) DO UPDATE SET bytes = 1`, w.project.ID.String(), day.Unix()/(24*3600))))
}

// recordDay records a day on which the project has history.
func (w *world) recordDay(day time.Time) {
	w.NoError(errorOf(w.db.ExecContext(w.ctx, `INSERT INTO stored_days (project_id, day, bytes) VALUES ($1, $2, 0)
		ON CONFLICT (project_id, day) DO NOTHING`, w.project.ID.String(), day.Unix()/(24*3600))))
}

// countListed returns the total of the connector run list, and the number of its rows in history.
func (w *world) countListed() (total, rows int64) {
	_, total = w.listConnectorRuns(store.ConnectorRunQuery{Connector: w.connector.Key(), Limit: 10})
	return total, w.queryCount(`SELECT count(*) FROM ended_connector_runs WHERE project_id = $1`)
}

// rebuildKeeps checks that a rebuild changes no rollup of the connector.
func (w *world) rebuildKeeps() {
	before := w.connectorTotals(w.connector.Key())
	w.rebuild()
	w.Equal(before, w.connectorTotals(w.connector.Key()))
}

var shorterPromises = []promise{
	{"a page and total cover the project's retention", func(w *world) {
		first := w.startOfToday().AddDate(0, 0, 1)
		all := w.everyTenMinutes(first)
		for _, edge := range []time.Time{first.Add(5*time.Hour + 35*time.Minute), first.Add(25*time.Hour + 55*time.Minute), first.Add(80 * time.Hour)} {
			w.keepsSince(edge)
			all = slices.DeleteFunc(all, func(run pastConnectorRun) bool { return store.TimeOf(run.id).Before(edge) })
			c := dice{rand.New(rand.NewPCG(11, 12))} //nolint:gosec // a test is the same each time
			for range 40 {
				now := w.readClock()
				w.pageAgrees(all, w.connectorPage(c, all, now, []uuid.UUID{w.connector.ID}), now)
			}
		}
	}},
	{"connector statistics outlast the retention, except parts of hours", func(w *world) {
		first := w.startOfToday().AddDate(0, 0, 1)
		all := w.everyTenMinutes(first)
		edge := first.Add(5*time.Hour + 35*time.Minute)
		w.keepsSince(edge)
		w.connectorAgrees(all, store.ConnectorStatisticsQuery{Connector: w.connector.Key()})
		seen := slices.DeleteFunc(slices.Clone(all), func(run pastConnectorRun) bool { return store.TimeOf(run.id).Before(edge) })
		w.connectorAgrees(seen, store.ConnectorStatisticsQuery{Connector: w.connector.Key(), Since: first.Add(5*time.Hour + 5*time.Minute)})
		gone := store.ConnectorStatisticsQuery{Connector: w.connector.Key(), Since: first, Until: first.Add(time.Hour)}
		got := w.connectorStatistics(gone)
		want := connectorNaively(all, gone)
		want.Last = ""
		w.Equal(want, got)
	}},
	{"days beyond the retention are deleted oldest first", func(w *world) {
		first := w.startOfToday().AddDate(0, 0, 1)
		w.everyTenMinutes(first)
		for {
			w.keepsSince(first.AddDate(0, 0, 4))
			total, rows := w.countListed()
			w.Zero(total)
			n := w.trimHistory(50)
			w.keepsSince(first.AddDate(0, 0, -1))
			total, left := w.countListed()
			w.Equal(left, total)
			w.LessOrEqual(rows-left, int64(n))
			if n == 0 {
				w.Zero(left)
				break
			}
		}
	}},
	{"a later end on a deleted day brings no counts back to a list", func(w *world) {
		first := w.startOfToday().AddDate(0, 0, 1)
		w.everyTenMinutes(first)
		w.keepsSince(first.AddDate(0, 0, 2))
		w.untilTrimmed(50)
		pastConnectorRun{
			id: store.Stamp(newUUIDv7(), first.Add(5*time.Hour).UnixMicro(), 0), connector: w.connector.ID, trigger: store.TriggerWebhook, status: store.ConnectorRunFailed,
		}.insertInto(w)
		w.storedOn(first)
		w.EqualValues(1, w.rollUpRows(100))
		w.keepsSince(first.AddDate(0, 0, -1))
		total, rows := w.countListed()
		w.EqualValues(24*6, total)
		w.EqualValues(24*6+1, rows)
		for _, statuses := range [][]store.ConnectorRunStatus{nil, {store.ConnectorRunFailed}} {
			q := store.ConnectorRunQuery{Connector: w.connector.Key(), Statuses: statuses, Limit: 500}
			listed, total := w.listConnectorRuns(q)
			w.Len(listed, int(total))
			q.Offset = int(total)
			listed, _ = w.listConnectorRuns(q)
			w.Empty(listed)
		}
	}},
	{"a rebuild keeps rollups beyond the retention", func(w *world) {
		first := w.startOfToday().AddDate(0, 0, 1)
		w.everyTenMinutes(first)
		w.keepsSince(first.Add(29 * time.Hour)) // of the second day
		w.rebuildKeeps()
		w.Equal(20, w.trimHistory(20), "some of the first day")
		w.rebuildKeeps()
		w.execStatement(`UPDATE connector_rollups SET runs = runs + 3 WHERE project_id = $1 AND grain = 'hour' AND begins_at >= $2`,
			w.project.ID.String(), first.AddDate(0, 0, 2).UnixMicro())
		w.rebuildKeeps() // days and months still match the hours
		w.EqualValues(3*24*6, w.queryCount(`SELECT sum(runs) FROM connector_rollups WHERE project_id = $1 AND grain = 'hour'`))
	}},
	{"a rebuild keeps rollups beyond a retention set meanwhile", func(w *world) {
		first := w.startOfToday().AddDate(0, 0, 1)
		w.everyTenMinutes(first)
		trimmed := 0
		w.NoError(w.s.RebuildRollups(w.ctx, func(store.RollupHour) {
			if trimmed > 0 {
				return
			}
			w.keepsSince(first.Add(49 * time.Hour)) // of the third day
			trimmed = w.untilTrimmed(50)
		}))
		w.NotZero(trimmed)
		for _, grain := range []string{"hour", "day", "month"} {
			w.EqualValues(3*24*6, w.queryCount(`SELECT sum(runs) FROM connector_rollups WHERE project_id = $1 AND grain = '`+grain+`'`), grain)
		}
	}},
}
