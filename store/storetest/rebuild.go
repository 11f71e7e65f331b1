// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// rebuild rebuilds all rollups.
func (w *world) rebuild() (hours []store.RollupHour) {
	w.NoError(w.s.RebuildRollups(w.ctx, func(h store.RollupHour) { hours = append(hours, h) }))
	return hours
}

// corruptRollups makes rollups wrong: it deletes some, increases some, and inserts some without runs.
func (w *world) corruptRollups() {
	for _, statement := range []string{
		`DELETE FROM run_rollups WHERE project_id = $1 AND runs = 1`,
		`UPDATE run_rollups SET runs = runs + 3, duration_us = 0, input_tokens = 1 WHERE project_id = $1`,
		`UPDATE run_rollups SET begins_at = begins_at + 7200000000 WHERE project_id = $1 AND grain = 'hour' AND status = 'failed'`,
		`UPDATE agent_totals SET runs = 1 WHERE project_id = $1`,
		`DELETE FROM usage_rollups WHERE project_id = $1 AND calls = 1 AND grain = 'hour'`,
		`UPDATE usage_rollups SET calls = calls + 3, cost_nanos = 5, total_tokens = 1 WHERE project_id = $1`,
		`UPDATE usage_rollups SET day = day + 1 WHERE project_id = $1 AND grain = 'hour' AND status = 'failed'`,
		`DELETE FROM agent_totals WHERE project_id = $1 AND agent_name = 'first'`,
		`DELETE FROM connector_rollups WHERE project_id = $1 AND runs = 1 AND status = 'completed'`,
		`UPDATE connector_rollups SET runs = runs + 3, duration_us = 0 WHERE project_id = $1`,
		`UPDATE connector_rollups SET trigger_type = 'outbound' WHERE project_id = $1 AND trigger_type = 'cron' AND grain <> 'hour'`,
	} {
		w.execStatement(statement, w.project.ID.String())
	}
}

// numbersAgree compares rollups and lists with the naive count.
func (w *world) numbersAgree(c dice, runs []pastRun, connectorRuns []pastConnectorRun, today time.Time, environments, connectors []uuid.UUID) {
	for range 10 {
		w.compareStatistics(runs, w.drawQuery(c, today, environments, nil))
		w.connectorAgrees(connectorRuns, w.connectorWindow(c, today, connectors))
	}
	for _, environment := range environments {
		for _, a := range w.agentsOf(w.key(environment)) {
			want, _ := naively(runs, store.StatisticsQuery{Environment: w.key(environment), AgentName: a.Name})
			w.Equal(want.Total(), a.RunCount, a.Name)
		}
	}
}

var rebuildPromises = []promise{
	{"wrong rollups are right after a rebuild, while runs end", func(w *world) {
		today := w.startOfToday()
		environments, connectors := []uuid.UUID{w.environment.ID}, []uuid.UUID{w.connector.ID}
		c := dice{rand.New(rand.NewPCG(7, 8))} //nolint:gosec // a test is the same each time
		runs := w.pastRuns(c, 120, today, environments, nil)
		connectorRuns := w.pastConnectorRuns(c, 80, today, today.AddDate(0, 0, days), connectors)
		w.rollUpAll(100)
		w.corruptRollups()
		var (
			ending  sync.WaitGroup
			failed  error
			stopped = make(chan struct{})
		)
		ending.Go(func() { // a consumer, as in each gateway
			for failed == nil {
				select {
				case <-stopped:
					return
				default:
				}
				_, err := w.s.RollUp(w.ctx, 7)
				failed = errors.Join(failed, err)
			}
		})
		hours := 0
		w.NoError(w.s.RebuildRollups(w.ctx, func(store.RollupHour) {
			if hours++; hours%3 == 0 {
				runs = append(runs, w.pastRuns(c, 1, today, environments, nil)...)
				connectorRuns = append(connectorRuns, w.pastConnectorRuns(c, 1, today, today.AddDate(0, 0, days), connectors)...)
			}
		}))
		close(stopped)
		ending.Wait()
		w.NoError(failed)
		w.numbersAgree(c, runs, connectorRuns, today, environments, connectors)
		w.rollUpAll(100)
		w.numbersAgree(c, runs, connectorRuns, today, environments, connectors)
		numbers := func() string {
			return fmt.Sprint(w.queryCount(`SELECT sum(runs) FROM run_rollups WHERE project_id = $1`), w.queryCount(`SELECT count(*) FROM run_rollups WHERE project_id = $1`),
				w.queryCount(`SELECT sum(cost_nanos) FROM usage_rollups WHERE project_id = $1`), w.queryCount(`SELECT count(*) FROM usage_rollups WHERE project_id = $1`),
				w.queryCount(`SELECT sum(runs) FROM connector_rollups WHERE project_id = $1`), w.queryCount(`SELECT sum(duration_us) FROM connector_rollups WHERE project_id = $1`))
		}
		before := numbers()
		w.NotEmpty(w.rebuild())
		w.Equal(before, numbers(), "again")
	}},
	{"an interrupted rebuild starts again", func(w *world) {
		today, connectors := w.startOfToday(), []uuid.UUID{w.connector.ID}
		c := dice{rand.New(rand.NewPCG(9, 10))} //nolint:gosec // a test is the same each time
		runs := w.pastRuns(c, 60, today, []uuid.UUID{w.environment.ID}, nil)
		connectorRuns := w.pastConnectorRuns(c, 60, today, today.AddDate(0, 0, days), connectors)
		w.rollUpAll(100)
		w.corruptRollups()
		// These wait in the outbox all the time.
		runs = append(runs, w.pastRuns(c, 20, today, []uuid.UUID{w.environment.ID}, nil)...)
		connectorRuns = append(connectorRuns, w.pastConnectorRuns(c, 20, today, today.AddDate(0, 0, days), connectors)...)
		ctx, stop := context.WithCancel(w.ctx)
		hours := 0
		err := w.s.RebuildRollups(ctx, func(store.RollupHour) {
			if hours++; hours == 9 {
				stop()
			}
		})
		w.Error(err)
		w.NotEmpty(w.rebuild())
		w.numbersAgree(c, runs, connectorRuns, today, []uuid.UUID{w.environment.ID}, connectors)
		w.rollUpAll(100)
		w.numbersAgree(c, runs, connectorRuns, today, []uuid.UUID{w.environment.ID}, connectors)
	}},
	{"a rebuild keeps hours whose rows may be deleted", func(w *world) {
		today := w.startOfToday()
		old := today.AddDate(0, 0, -9).UnixMicro()
		w.deploy("one", "first")
		w.endEvents(3)
		w.rollUpAll(100)
		w.execStatement(`INSERT INTO connector_rollups (project_id, connector_id, grain, begins_at, trigger_type, status, runs, duration_us)
			VALUES ($1, $2, 'hour', $3, 'webhook', 'completed', 5, 5)`, w.project.ID.String(), w.connector.ID.String(), old)
		counted := int64(0)
		for _, hour := range w.rebuild() {
			counted += hour.Runs
			w.False(hour.Begin.Before(today))
		}
		w.EqualValues(3+3, counted, "runs and connector runs")
		w.EqualValues(8, w.queryCount(`SELECT sum(runs) FROM connector_rollups WHERE project_id = $1 AND grain = 'hour'`))
	}},
}
