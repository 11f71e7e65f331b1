// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlcore"
)

// queue returns what is open; ages are left out, and in minutes beside.
func (w *world) queue() (figures store.QueueFigures, minutes map[store.QueueState]int) {
	figures, err := w.s.QueueFigures(w.ctx)
	w.NoError(err)
	w.Len(figures.Queued, len(store.QueueStates))
	minutes = map[store.QueueState]int{}
	for state, depth := range figures.Queued {
		minutes[state] = int(depth.Oldest.Minutes())
		depth.Oldest = 0
		figures.Queued[state] = depth
	}
	return figures, minutes
}

// depths are those of the three states.
func depths(claimable, noRunner, noDeployment int64) map[store.QueueState]store.QueueDepth {
	return map[store.QueueState]store.QueueDepth{
		store.QueueClaimable: {Runs: claimable}, store.QueueNoRunner: {Runs: noRunner}, store.QueueNoDeployment: {Runs: noDeployment},
	}
}

var queuePromises = []promise{
	{"nothing is open in an empty store", func(w *world) {
		figures, minutes := w.queue()
		w.Equal(store.QueueFigures{Queued: depths(0, 0, 0)}, figures)
		w.Equal(map[store.QueueState]int{store.QueueClaimable: 0, store.QueueNoRunner: 0, store.QueueNoDeployment: 0}, minutes)
	}},
	{"runs are counted by what they wait for, over all projects", func(w *world) {
		twin := w.twin()
		w.accept(w.event())
		twin.accept(twin.single())
		figures, _ := w.queue()
		w.Equal(depths(0, 0, 3), figures.Queued)

		w.deploy("one", "first", "second")
		figures, _ = w.queue()
		w.Equal(depths(0, 2, 1), figures.Queued)

		w.Len(w.claim(1, lease), 1, "by a runner that has one place")
		figures, _ = w.queue()
		w.Equal(store.QueueFigures{Queued: depths(1, 0, 1), Running: 1}, figures)

		_, err := w.db.ExecContext(w.ctx, `UPDATE runners SET seen_at = seen_at - $1`, (2 * store.RunnerPresence).Microseconds())
		w.NoError(err)
		figures, _ = w.queue()
		w.Equal(store.QueueFigures{Queued: depths(0, 1, 1), Running: 1}, figures, "the runner has gone")
	}},
	{"the oldest run of each state says how long it waits", func(w *world) {
		twin := w.twin()
		for i, of := range []*world{w, twin} {
			first, second := of.single(), of.single()
			of.accept(first)
			of.accept(second)
			for id, age := range map[string]time.Duration{first.Runs[0].ID.String(): 10 * time.Minute, second.Runs[0].ID.String(): 5 * time.Minute} {
				_, err := w.db.ExecContext(w.ctx, `UPDATE agent_runs SET queued_at = queued_at - $1 WHERE project_id = $2 AND id = $3`,
					(time.Duration(i+1) * age).Microseconds(), of.project.ID.String(), id)
				w.NoError(err)
			}
		}
		_, minutes := w.queue()
		w.Equal(20, minutes[store.QueueNoDeployment])
		twin.deploy("one", "first")
		_, minutes = w.queue()
		w.Equal(map[store.QueueState]int{store.QueueClaimable: 0, store.QueueNoRunner: 20, store.QueueNoDeployment: 10}, minutes)
	}},
	{"what is stored costs no look at what is open", func(w *world) {
		w.accept(w.event())
		tx, err := w.db.BeginTx(w.ctx, nil)
		w.NoError(err)
		for range 3000 {
			_, err := tx.ExecContext(w.ctx, `INSERT INTO agent_runs (project_id, id, environment_id, position, agent_name, status, queued_at, ended_at)
				VALUES ($1, $2, $3, 0, 'first', 'completed', 1, 1)`, w.project.ID.String(), v7().String(), w.environment.ID.String())
			w.NoError(err)
		}
		w.NoError(tx.Commit())
		_, err = w.db.ExecContext(w.ctx, `ANALYZE`)
		w.NoError(err)
		figures, _ := w.queue()
		w.Equal(store.QueueFigures{Queued: depths(0, 0, 2)}, figures)
		for statement, args := range map[string][]any{
			sqlcore.QueueStatement: {store.RunnerPresence.Microseconds(), store.MaxQueueCount}, sqlcore.RunningStatement: nil,
		} {
			plan := w.plan(statement, args...)
			w.Regexp(`agent_runs_(queued|running)`, plan)
			w.NotRegexp(`Seq Scan on agent_runs|SCAN r(?:\s+$|\n)|agent_runs_(pkey|agent)|sqlite_autoindex_agent_runs`, plan)
		}
	}},
}

// plan is how the database would carry a statement out; the time is a function of
// the store's own connections.
func (w *world) plan(statement string, args ...any) string {
	statement = strings.ReplaceAll(statement, "now_us()", "1")
	rows, err := w.db.QueryContext(w.ctx, `EXPLAIN QUERY PLAN `+statement, args...)
	if err != nil {
		rows, err = w.db.QueryContext(w.ctx, `EXPLAIN `+statement, args...)
	}
	w.NoError(err)
	defer rows.Close()
	columns, err := rows.Columns()
	w.NoError(err)
	var out strings.Builder
	for rows.Next() {
		line := make([]any, len(columns))
		for i := range line {
			line[i] = new(any)
		}
		w.NoError(rows.Scan(line...))
		fmt.Fprintln(&out, *line[len(line)-1].(*any))
	}
	w.NoError(rows.Err())
	return out.String()
}
