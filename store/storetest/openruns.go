// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// openRuns inserts open runs in each state, for today and the next days.
func (w *world) openRuns(c dice, n int, today time.Time, environments, deployments []uuid.UUID) (all []pastRun) {
	for range n {
		run := pastRun{
			id: store.Stamp(newUUIDv7(), today.Add(time.Duration(c.Int64N(int64(days*24*time.Hour)))).UnixMicro(), 0), environment: drawOne(c, environments...),
			agent: drawOne(c, "first", "second"), began: c.IntN(2) == 0, status: drawOne(c, store.RunQueued, store.RunQueued, store.RunRunning, store.RunAwaitingApproval),
		}
		blocked := run.status == store.RunQueued && c.IntN(3) == 0
		if run.began = run.began || run.status != store.RunQueued; run.began {
			run.testName, run.deployment = drawOne(c, "", "short", "long"), drawOne(c, deployments...)
		}
		var deployment, started, until, wake, key any = nil, nil, nil, nil, ""
		at := store.TimeOf(run.id).UnixMicro()
		if run.began {
			deployment, started = run.deployment.String(), at+time.Second.Microseconds()
		}
		switch {
		case blocked:
			key = "same"
		case run.status == store.RunRunning:
			until = at
		case run.status == store.RunAwaitingApproval:
			wake = at
		}
		w.execStatement(`INSERT INTO open_runs (project_id, id, environment_id, agent_name, input_id, status, class, fresh, deployment_id, attempt, lease_until,
				wake_at, concurrency_key, blocked, test_name, queued_at, started_at)
			VALUES ($1, $2, $3, $4, $2, $5, $6, $7, $8, 1, $9, $10, $11, $12, $13, $14, $15)`,
			w.project.ID.String(), run.id.String(), run.environment.String(), run.agent, string(run.status), c.IntN(3), !run.began, deployment, until,
			wake, key, blocked, run.testName, at, started)
		all = append(all, run)
	}
	return all
}

// lastActivity returns when a run was queued or started.
func lastActivity(run pastRun) time.Time {
	at := store.TimeOf(run.id)
	if run.began {
		at = at.Add(time.Second)
	}
	return at
}

// manyQueued inserts queued runs of the second agent after a time, a millisecond apart.
func (w *world) manyQueued(after time.Time, n int) {
	for written := 0; written < n; {
		var rows []string
		for ; written < n && len(rows) < 1000; written++ {
			at := after.Add(time.Duration(written+1) * time.Millisecond).UnixMicro()
			id := store.Stamp(newUUIDv7(), at, 0)
			rows = append(rows, fmt.Sprintf(`('%s', '%s', '%s', 'second', '%s', 'queued', 1, %d)`, w.project.ID, id, w.environment.ID, id, at))
		}
		w.execStatement(`INSERT INTO open_runs (project_id, id, environment_id, agent_name, input_id, status, class, queued_at) VALUES ` +
			strings.Join(rows, ", "))
	}
}

var openRunPromises = []promise{
	{"unrolled runs of a deleted day do not break statistics", withAgent(func(w *world) {
		w.endEvents(1)
		gone := store.Stamp(newUUIDv7(), w.startOfToday().AddDate(-1, 0, 0).UnixMicro(), 0).String()
		w.execStatement(`INSERT INTO outbox_rollups (project_id, ended_id, posted_at, run_ids, connector_run_ids) VALUES ($1, $2, 1, $3, $3)`,
			w.project.ID.String(), gone, "{"+gone+"}")
		w.EqualValues(1, w.runStatistics(store.StatisticsQuery{Environment: w.environment.Key(), AgentName: "first"}).Total())
		runs, _ := w.runCount("first")
		w.EqualValues(1, runs)
		has, err := w.s.HasRuns(w.ctx, w.environment.Key())
		w.NoError(err)
		w.True(has)
		w.EqualValues(1, w.connectorTotals(w.connector.Key())[store.ConnectorRunCompleted])
		listed, total := w.listConnectorRuns(store.ConnectorRunQuery{Connector: w.connector.Key(), Limit: 10})
		w.Len(listed, 1)
		w.EqualValues(1, total)
		w.rollUpAll(10)
	})},
	{"open runs are counted in every state, by every filter", func(w *world) {
		today := w.startOfToday()
		other := w.newEnvironment("staging", origin)
		w.NoError(w.s.PutEnvironment(w.ctx, other))
		environments, deployments := []uuid.UUID{w.environment.ID, other.ID}, []uuid.UUID{uuid.New(), uuid.New()}
		c := dice{rand.New(rand.NewPCG(5, 6))} //nolint:gosec // a test is the same each time
		all := w.openRuns(c, 300, today, environments, deployments)
		for range 200 {
			q := w.drawQuery(c, today, environments, deployments)
			q.Statuses = drawSome(c, store.RunQueued, store.RunRunning, store.RunAwaitingApproval, store.RunFailed)
			w.agreesOn(all, q)
		}
		for _, environment := range environments {
			listed := map[string]store.AgentSummary{}
			for _, agent := range w.agentsOf(w.key(environment)) {
				listed[agent.Name] = agent
			}
			for _, name := range []string{"first", "second"} {
				want := store.AgentSummary{Name: name, HasInboundConnector: environment == w.environment.ID}
				for _, run := range all {
					if run.environment != environment || run.agent != name {
						continue
					}
					want.RunCount++
					if run.status == store.RunQueued {
						want.QueueCount++
					}
					if last := lastActivity(run); want.LastActivityAt == nil || last.After(*want.LastActivityAt) {
						want.LastActivityAt = &last
					}
				}
				w.Equal(want, listed[name])
				one, err := w.s.Agent(w.ctx, w.key(environment), name)
				w.NoError(err)
				w.Equal(want, one)
			}
		}
	}},
}

// agreesOn compares the number of open runs with the naive count.
func (w *world) agreesOn(all []pastRun, q store.StatisticsQuery) {
	got := w.runStatistics(q)
	want, _ := naively(all, q)
	w.Equal(want.Runs, got.Runs, fmt.Sprintf("%+v", q))
}
