// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// pastRun is an ended run that a test inserts for another time.
type pastRun struct {
	id, environment, deployment, connector uuid.UUID
	agent, testName, outcome               string
	status                                 store.RunStatus
	// began is false if it never started.
	began    bool
	duration time.Duration
	usage    store.TokenUsage
	// calls are its model calls.
	calls []store.Calls
}

// insertInto inserts the row that the end of the run inserts.
func (p pastRun) insertInto(w *world) {
	queued, ended := store.TimeOf(p.id), store.TimeOf(p.id).Add(time.Second+p.duration)
	var started, deployment *any
	if p.began {
		at := any(queued.Add(time.Second).UnixMicro())
		started = &at
	}
	if p.deployment != uuid.Nil {
		id := any(p.deployment.String())
		deployment = &id
	}
	value := func(v *any) any {
		if v == nil {
			return nil
		}
		return *v
	}
	w.execStatement(`INSERT INTO ended_runs (project_id, id, environment_id, connector_id, agent_name, input_id, status, deployment_id, token,
			attempt, runner_id, error_code, error, output, input_tokens, output_tokens, thinking_tokens, cached_input_tokens, total_tokens, test_name,
			guardrail_outcome, queued_at, started_at, ended_at)
		VALUES ($1, $2, $3, $4, $5, $2, $6, $7, 1, 1, '', '', '', '', $8, $9, 0, 0, $10, $11, $12, $13, $14, $15)`,
		w.project.ID.String(), p.id.String(), p.environment.String(), p.connector.String(), p.agent, string(p.status), value(deployment),
		p.usage.InputTokens, p.usage.OutputTokens, p.usage.TotalTokens, p.testName, p.outcome, queued.UnixMicro(), value(started), ended.UnixMicro())
	w.recordDay(queued)
	p.writeCalls(w)
	w.execStatement(`INSERT INTO outbox_rollups (project_id, ended_id, posted_at, run_ids) VALUES ($1, $2, 1, $3)`,
		w.project.ID.String(), p.id.String(), "{"+p.id.String()+"}")
}

// matches reports whether a query includes it.
func (p pastRun) matches(q store.StatisticsQuery) bool {
	at := store.TimeOf(p.id)
	name := p.testName
	if name == "" {
		name = store.BaseRuns
	}
	return p.environment == q.Environment.ID && p.agent == q.AgentName &&
		(q.Since.IsZero() || !at.Before(q.Since)) && (q.Until.IsZero() || at.Before(q.Until)) &&
		(q.DeploymentID == uuid.Nil || q.DeploymentID == p.deployment) &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, p.status)) &&
		(len(q.Outcomes) == 0 || slices.Contains(q.Outcomes, p.outcome)) &&
		(len(q.TestNames) == 0 || slices.Contains(q.TestNames, name)) &&
		(!q.BaseOnly || p.testName == "")
}

// dice draws the same random values in each run of a test.
type dice struct{ *rand.Rand }

func drawOne[T any](c dice, all ...T) T { return all[c.IntN(len(all))] }

// drawSome returns a few of all, or none.
func drawSome[T any](c dice, all ...T) (out []T) {
	for _, v := range all {
		if c.IntN(3) == 0 {
			out = append(out, v)
		}
	}
	return out
}

// days is the number of days with runs: they always include the start of a month, and whole days
// before and after it.
const days = 33

// pastRuns inserts runs of the next days, which have partitions, of two agents in two environments.
func (w *world) pastRuns(c dice, n int, today time.Time, environments, deployments []uuid.UUID) (all []pastRun) {
	for range n {
		at := today.Add(time.Duration(c.Int64N(int64(days * 24 * time.Hour))))
		if c.IntN(4) == 0 {
			at = at.Truncate(time.Hour) // where windows begin and end
		}
		run := pastRun{
			id: store.Stamp(newUUIDv7(), at.UnixMicro(), 0), environment: drawOne(c, environments...), deployment: drawOne(c, append(deployments, uuid.Nil)...),
			connector: drawOne(c, w.connector.ID, uuid.Nil), agent: drawOne(c, "first", "second"), testName: drawOne(c, "", "", "short", "long"),
			outcome: drawOne(c, "", "", store.GuardrailBlocked, store.GuardrailWarned),
			status:  drawOne(c, store.RunCompleted, store.RunCompleted, store.RunFailed, store.RunCancelled), began: c.IntN(5) > 0,
			duration: time.Duration(c.Int64N(int64(time.Minute))), usage: store.TokenUsage{InputTokens: c.Int64N(100), OutputTokens: c.Int64N(100), TotalTokens: 7},
		}
		run.calls = drawCalls(c, at)
		run.insertInto(w)
		all = append(all, run)
	}
	return all
}

// drawQuery draws a query.
func (w *world) drawQuery(c dice, today time.Time, environments, deployments []uuid.UUID) store.StatisticsQuery {
	q := store.StatisticsQuery{
		Environment: w.key(drawOne(c, environments...)), AgentName: drawOne(c, "first", "second"), DeploymentID: drawOne(c, append(deployments, uuid.Nil, uuid.Nil)...),
		Statuses: drawSome(c, store.RunCompleted, store.RunFailed, store.RunQueued), TestNames: drawSome(c, "short", "long", store.BaseRuns), BaseOnly: c.IntN(4) == 0,
	}
	if c.IntN(3) == 0 {
		q.Outcomes = drawSome(c, store.GuardrailBlocked, store.GuardrailWarned)
	}
	q.Since, q.Until = drawWindow(c, today)
	return q
}

// drawWindow draws the bounds of a window, each of which may be absent.
func drawWindow(c dice, today time.Time) (since, until time.Time) {
	moment := func() time.Time {
		at := today.Add(time.Duration(c.Int64N(int64(days * 24 * time.Hour))))
		return at.Truncate(drawOne(c, time.Millisecond, time.Hour, 24*time.Hour))
	}
	if c.IntN(4) > 0 {
		since = moment()
	}
	if c.IntN(2) > 0 {
		until = moment()
	}
	return since, until
}

// naively counts runs one by one.
func naively(all []pastRun, q store.StatisticsQuery) (s store.RunStatistics, durations []time.Duration) {
	s.Runs = map[store.RunStatus]int64{}
	var sum time.Duration
	for _, run := range all {
		if !run.matches(q) {
			continue
		}
		s.Runs[run.status]++
		s.Usage.InputTokens += run.usage.InputTokens
		s.Usage.OutputTokens += run.usage.OutputTokens
		s.Usage.TotalTokens += run.usage.TotalTokens
		s.Calls = append(s.Calls, run.calls...)
		if run.began {
			lasted := run.duration.Truncate(time.Microsecond)
			durations, sum = append(durations, lasted), sum+lasted
		}
	}
	if len(durations) > 0 {
		average := (sum / time.Duration(len(durations))).Truncate(time.Microsecond)
		s.AverageDuration = &average
	}
	slices.Sort(durations)
	return s, durations
}

// compareStatistics compares statistics with the naive count.
func (w *world) compareStatistics(all []pastRun, q store.StatisticsQuery) {
	got := w.runStatistics(q)
	want, durations := naively(all, q)
	what := fmt.Sprintf("%+v", q)
	w.Equal(want.Runs, got.Runs, what)
	w.Equal(want.Usage, got.Usage, what)
	w.Equal(sumCalls(want.Calls), got.Calls, what)
	w.Equal(want.AverageDuration, got.AverageDuration, what)
	if len(durations) == 0 {
		w.Nil(got.P95Duration, what)
		return
	}
	p95 := durations[(95*len(durations)+99)/100-1] // the nearest rank
	w.NotNil(got.P95Duration, what)
	w.InEpsilon(float64(p95), float64(*got.P95Duration), 2*store.DurationError, what)
}

// rollUpRows rolls up at most limit outbox rows.
func (w *world) rollUpRows(limit int) int {
	n, err := w.s.RollUp(w.ctx, limit)
	w.NoError(err)
	return n
}

// runCount returns the counts of an agent in the list.
func (w *world) runCount(agent string) (runs, queued int64) {
	all := w.agentsOf(w.environment.Key())
	for _, a := range all {
		if a.Name == agent {
			return a.RunCount, a.QueueCount
		}
	}
	return 0, 0
}

var statisticsPromises = []promise{
	{"statistics equal a naive count", func(w *world) {
		today := w.startOfToday()
		other := w.newEnvironment("staging", origin)
		w.NoError(w.s.PutEnvironment(w.ctx, other))
		environments, deployments := []uuid.UUID{w.environment.ID, other.ID}, []uuid.UUID{uuid.New(), uuid.New()}
		c := dice{rand.New(rand.NewPCG(1, 2))} //nolint:gosec // a test is the same each time
		var all []pastRun
		for range 6 {
			all = append(all, w.pastRuns(c, 60, today, environments, deployments)...)
			for range 12 {
				w.compareStatistics(all, w.drawQuery(c, today, environments, deployments))
				w.rollUpRows(c.IntN(12) + 1)
			}
		}
		w.rollUpAll(50)
		for range 60 {
			w.compareStatistics(all, w.drawQuery(c, today, environments, deployments))
		}
	}},
	{"an end is counted at once, and once", withAgent(func(w *world) {
		q := store.StatisticsQuery{Environment: w.environment.Key(), AgentName: "first"}
		runs := func() map[store.RunStatus]int64 {
			s := w.runStatistics(q)
			listed, queued := w.runCount("first")
			w.Equal(s.Total(), listed)
			w.Equal(s.Runs[store.RunQueued], queued)
			return s.Runs
		}
		w.Empty(runs())
		w.singles(5)
		w.Equal(map[store.RunStatus]int64{store.RunQueued: 5}, runs())
		claimed := w.claim(3, lease)
		w.Equal(map[store.RunStatus]int64{store.RunQueued: 2, store.RunRunning: 3}, runs())
		done := completed(claimed[0])
		done.Usage = store.TokenUsage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}
		w.NoError(w.complete(done))
		w.NoError(w.complete(done), "again")
		failed := completed(claimed[1])
		failed.Status, failed.ErrorCode = store.RunFailed, "x"
		w.NoError(w.complete(failed))
		w.NoError(w.s.Cancel(w.ctx, claimed[2].Run.Key(), "x", "x"))
		want := map[store.RunStatus]int64{store.RunQueued: 2, store.RunCompleted: 1, store.RunFailed: 1, store.RunCancelled: 1}
		w.Equal(want, runs())
		w.Positive(w.rollUpRows(1))
		w.Equal(want, runs())
		w.rollUpAll(10)
		w.Equal(want, runs())
		s := w.runStatistics(q)
		w.Equal(done.Usage, s.Usage)
		w.NotNil(s.AverageDuration)
		q.Until = store.TimeOf(claimed[0].Run.ID)
		w.Zero(w.runStatistics(q).Total(), "open runs are in the window too")
	})},
	{"concurrent consumers roll up each end once", withAgent(func(w *world) {
		w.endEvents(30)
		var rolledUp atomic.Int64
		w.NoError(together(func(int) error {
			for {
				n, err := w.s.RollUp(w.ctx, 3)
				if rolledUp.Add(int64(n)); err != nil || n == 0 {
					return err
				}
			}
		}))
		w.rollUpRows(100) // rows that one consumer skipped while another had them
		w.Zero(w.queryCount(`SELECT count(*) FROM outbox_rollups WHERE project_id = $1`))
		s := w.runStatistics(store.StatisticsQuery{Environment: w.environment.Key(), AgentName: "first"})
		w.Equal(map[store.RunStatus]int64{store.RunCompleted: 30}, s.Runs)
	})},
	{"a run of a variant counts for it and its agent", func(w *world) {
		w.deployVariants("one", "first", "short", "long")
		w.singles(3)
		claimed := w.claim(3, lease)
		w.reportVariant(claimed[0], "short")
		for range 2 {
			runs, _ := w.runCount("first")
			w.EqualValues(3, runs)
			runs, _ = w.runCount("first-short")
			w.EqualValues(1, runs)
			runs, _ = w.runCount("first-long")
			w.Zero(runs)
			done := completed(claimed[0])
			done.TestName = "short"
			w.NoError(w.complete(done))
			w.rollUpRows(10)
		}
	}},
	{"a rolled back end is not rolled up", withAgent(func(w *world) {
		w.endEvents(3)
		rename := func(from, to string) {
			w.execStatement(`ALTER TABLE ` + from + ` RENAME TO ` + to)
		}
		rename("agent_totals", "elsewhere")
		w.Error(errorOf(w.s.RollUp(w.ctx, 10)))
		rename("elsewhere", "agent_totals")
		w.Zero(w.queryCount(`SELECT count(*) FROM run_rollups WHERE project_id = $1`))
		w.rollUpAll(10)
		runs, _ := w.runCount("first")
		w.EqualValues(3, runs)
	})},
}
