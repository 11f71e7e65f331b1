// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// queueFigures returns the open runs by state over all classes, without ages, and the ages in minutes.
func (w *world) queueFigures() (runs map[store.QueueState]int64, minutes map[store.QueueState]int, running int64) {
	figures := w.readFigures()
	w.Len(figures.Queued, len(store.QueueStates))
	runs, minutes = map[store.QueueState]int64{}, map[store.QueueState]int{}
	for state, classes := range figures.Queued {
		w.Len(classes, store.Classes)
		for _, depth := range classes {
			runs[state] += depth.Runs
			minutes[state] = max(minutes[state], int(depth.Oldest.Minutes()))
		}
	}
	return runs, minutes, figures.Running
}

// queueDepths returns the counts of the three states.
func queueDepths(claimable, noRunner, noDeployment int64) map[store.QueueState]int64 {
	return map[store.QueueState]int64{
		store.QueueClaimable: claimable, store.QueueNoRunner: noRunner, store.QueueNoDeployment: noDeployment,
	}
}

var queuePromises = []promise{
	{"an empty store has nothing open", func(w *world) {
		runs, minutes, running := w.queueFigures()
		w.Equal(queueDepths(0, 0, 0), runs)
		w.Equal(map[store.QueueState]int{store.QueueClaimable: 0, store.QueueNoRunner: 0, store.QueueNoDeployment: 0}, minutes)
		w.Zero(running)
	}},
	{"runs are counted by state and class, over all projects", func(w *world) {
		twin := w.twinProject()
		e := w.event()
		e.Class = store.ClassInbound
		w.accept(&e)
		twin.acceptEvent(twin.singleEvent())
		figures := w.readFigures()
		w.EqualValues(1, figures.Queued[store.QueueNoDeployment][store.ClassSync].Runs)
		w.EqualValues(2, figures.Queued[store.QueueNoDeployment][store.ClassInbound].Runs)

		w.deploy("one", "first", "second")
		runs, _, _ := w.queueFigures()
		w.Equal(queueDepths(0, 2, 1), runs)

		w.Len(w.claim(1, lease), 1, "by a runner with one slot")
		runs, _, running := w.queueFigures()
		w.Equal(queueDepths(1, 0, 1), runs)
		w.EqualValues(1, running)

		w.execStatement(`UPDATE runners SET seen_at = seen_at - $1`, (2 * store.RunnerPresence).Microseconds())
		runs, _, running = w.queueFigures()
		w.Equal(queueDepths(0, 1, 1), runs, "the runner is gone")
		w.EqualValues(1, running)
	}},
	{"held concurrency keys and blocked runs are counted", func(w *world) {
		keys := func() [2]int64 {
			figures := w.readFigures()
			return [2]int64{figures.KeysHeld, figures.Blocked}
		}
		w.Equal([2]int64{}, keys())
		w.deployKeyed("one", keyedBy{"first": {Expression: "input.key"}}, "first")
		runs := w.contenders("a", "b", "a", "a", "")
		w.Equal([2]int64{2, 2}, keys())
		w.completeTogether(w.underWay(runs[0], runs[1], runs[4])...)
		w.Equal([2]int64{1, 1}, keys())
		runsOf, _, _ := w.queueFigures()
		w.Equal(queueDepths(1, 0, 0), runsOf, "a blocked run waits for no runner")
	}},
	{"each state has the age of its oldest run", func(w *world) {
		twin := w.twinProject()
		for i, of := range []*world{w, twin} {
			first, second := of.singleEvent(), of.singleEvent()
			of.accept(&first)
			of.accept(&second)
			for id, age := range map[string]time.Duration{first.Runs[0].ID.String(): 10 * time.Minute, second.Runs[0].ID.String(): 5 * time.Minute} {
				w.execStatement(`UPDATE open_runs SET queued_at = queued_at - $1 WHERE project_id = $2 AND id = $3`,
					(time.Duration(i+1) * age).Microseconds(), of.project.ID.String(), id)
			}
		}
		_, minutes, _ := w.queueFigures()
		w.Equal(20, minutes[store.QueueNoDeployment])
		twin.deploy("one", "first")
		_, minutes, _ = w.queueFigures()
		w.Equal(map[store.QueueState]int{store.QueueClaimable: 0, store.QueueNoRunner: 20, store.QueueNoDeployment: 10}, minutes)
	}},
	{"the age of the oldest outbox row is reported by consumer", func(w *world) {
		minutes := func() map[store.OutboxConsumer]int {
			figures := w.readFigures()
			out := map[store.OutboxConsumer]int{}
			for consumer, age := range figures.OutboxAges {
				out[consumer] = int(age.Minutes())
			}
			return out
		}
		ages := map[store.OutboxConsumer]int{store.ConsumerStorage: 0, store.ConsumerDeliveries: 0, store.ConsumerRollups: 0, store.ConsumerWords: 0, store.ConsumerTraces: 0}
		w.Equal(ages, minutes())
		for i, row := range []struct {
			consumer store.OutboxConsumer
			insert   string
			more     []any
		}{
			{store.ConsumerStorage, `INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at) VALUES ($1, 'storage', $1, 0, $2)`, nil},
			{store.ConsumerRollups, `INSERT INTO outbox_rollups (project_id, ended_id, posted_at) VALUES ($1, $1, $2)`, nil},
			{store.ConsumerWords, `INSERT INTO outbox_words (project_id, ended_id, run_ids, posted_at) VALUES ($1, $1, $3, $2)`, []any{`{}`}},
			{store.ConsumerTraces, `INSERT INTO outbox_traces (project_id, run_id, ended_at, due_at) VALUES ($1, $1, $2, 0)`, nil},
			{store.ConsumerDeliveries, `INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at) VALUES ($1, 'failures', $1, 0, $2)`, nil},
			{store.ConsumerDeliveries, `INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at) VALUES ($1, 'deliveries', $1, 0, $2)`, nil},
		} {
			ages[row.consumer] = 10 * (i + 1)
			now := w.readClock()
			args := []any{w.project.ID.String(), now.Add(-time.Duration(ages[row.consumer])*time.Minute - 30*time.Second).UnixMicro()}
			w.execStatement(row.insert, append(args, row.more...)...)
			w.Equal(ages, minutes())
		}
	}},
	{"a figure that cannot be measured hides no other", func(w *world) {
		w.singles(2)
		for table, figure := range map[string]store.QueueFigure{
			"environments": store.FigureQueued, "concurrency_slots": store.FigureKeys, "outbox_words": store.FigureOutbox, "cron_ticks": store.FigureTicks,
		} {
			w.missing(table, func() {
				figures, err := w.s.QueueFigures(w.ctx)
				w.ErrorContains(err, string(figure))
				w.Contains(figures.Missing, figure)
				w.NotContains(figures.Missing, store.FigureRunning)
				w.Less(len(figures.Missing), 3, "%v", figures.Missing)
			})
		}
		w.Empty(w.readFigures().Missing)
	}},
}
