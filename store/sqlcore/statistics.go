// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/runqueue"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// RunStatistics implements store.Statistics. Whole hours, days and months are read from rollups,
// and parts of hours at the ends of the window from history. Ended runs that are not rolled up yet
// are read from the outbox.
func (c *Core) RunStatistics(ctx context.Context, q store.StatisticsQuery) (store.RunStatistics, error) {
	if q.Search != nil {
		return c.searchStatistics(ctx, q)
	}
	s := &statistics{Core: c, query: q, bill: bill{}, window: timewindow.Period{From: timewindow.Bound(q.Since, timewindow.Always), To: timewindow.Bound(q.Until, timewindow.Never)}}
	err := c.engine.Snapshot(ctx, func(ctx context.Context, q sqldb.Queryer) (err error) {
		if s.tally, err = newTally(); err != nil {
			return err
		}
		s.out = store.RunStatistics{Runs: map[store.RunStatus]int64{}}
		whole, rest := timewindow.Split(s.window)
		for _, of := range whole {
			if err := s.addStretch(ctx, q, of); err != nil {
				return err
			}
			if err := s.addUsageRollups(ctx, q, of); err != nil {
				return err
			}
		}
		for _, of := range rest {
			if err := s.addPast(ctx, q, of); err != nil {
				return err
			}
		}
		if len(whole) > 0 {
			if err := s.addWaiting(ctx, q, timewindow.Period{From: whole[0].From, To: whole[len(whole)-1].To}); err != nil {
				return err
			}
		}
		return s.addOpen(ctx, q)
	})
	if err == nil {
		err = s.computeResult()
	}
	return s.out, sqldb.Wrap(err, "counting runs of agent %q of environment %s", q.AgentName, q.Environment)
}

// computeResult computes the result.
func (s *statistics) computeResult() (err error) {
	s.out.Usage, s.out.Calls, s.out.AverageDuration = s.tally.usage, s.bill.limitModels(store.MaxModels).callList(), s.tally.average()
	s.out.P95Duration, err = s.tally.percentile95()
	return err
}

// statistics computes the statistics of a query.
type statistics struct {
	*Core
	query  store.StatisticsQuery
	window timewindow.Period
	tally  *tally
	bill   bill
	// maxBillEntries is the number of entries at which the bill is reduced, but at least minBillEntries.
	maxBillEntries int
	out            store.RunStatistics
}

// filterCondition returns the filters of the query, as a condition on columns that rollups and ended runs
// have.
func (s *statistics) filterCondition(l *sqldb.Args) string {
	q := s.query
	return ` AND r.project_id = ` + l.Add(q.Environment.ProjectID) + ` AND r.environment_id = ` + l.Add(q.Environment.ID) + ` AND r.agent_name = ` + l.Add(sqldb.Text(q.AgentName)) +
		s.startedCondition(l)
}

// startedCondition returns the part of filterCondition on fields that runs have after their start.
func (s *statistics) startedCondition(l *sqldb.Args) (text string) {
	q := s.query
	if q.DeploymentID != uuid.Nil {
		text += ` AND r.deployment_id = ` + l.Add(q.DeploymentID)
	}
	if len(q.Statuses) > 0 {
		text += ` AND r.status IN ` + sqldb.AddTexts(l, q.Statuses)
	}
	if len(q.TestNames) > 0 {
		names := slices.Clone(q.TestNames)
		for i, name := range names {
			if name == store.BaseRuns {
				names[i] = ""
			}
		}
		text += ` AND r.test_name IN ` + sqldb.AddTexts(l, names)
	}
	if q.BaseOnly {
		text += ` AND r.test_name = ''`
	}
	return text
}

// includesUnstarted reports whether the query includes runs that never started.
func (s *statistics) includesUnstarted() bool {
	q := s.query
	return q.DeploymentID == uuid.Nil && (len(q.Statuses) == 0 || slices.Contains(q.Statuses, store.RunQueued)) &&
		(len(q.TestNames) == 0 || slices.Contains(q.TestNames, store.BaseRuns))
}

// endedCondition is filterCondition for ended runs. Only ended runs have guardrail outcomes.
func (s *statistics) endedCondition(l *sqldb.Args) string {
	text := s.filterCondition(l)
	if len(s.query.Outcomes) > 0 {
		text += ` AND r.guardrail_outcome IN ` + sqldb.AddTexts(l, s.query.Outcomes)
	}
	return text
}

// addStretch adds rollups.
func (s *statistics) addStretch(ctx context.Context, q sqldb.Queryer, of timewindow.Stretch) error {
	l := sqldb.Args{Values: []any{s.query.Environment.ProjectID, string(of.Grain), of.From, of.To}}
	_, err := sqldb.Collect(ctx, q, func(row sqldb.Scanner) (none struct{}, err error) {
		var status store.RunStatus
		more, sketch, err := scanTally(row, &status)
		if err != nil {
			return none, err
		}
		s.out.Runs[status] += more.runs
		return none, s.tally.addStored(more, sketch)
	}, `SELECT r.status, `+tallyColumns+` FROM run_rollups r
		WHERE r.project_id = $1 AND r.grain = $2 AND r.begins_at >= $3 AND r.begins_at < $4`+s.endedCondition(&l), l.Values...)
	return err
}

// addPast adds ended runs of a period, page by page, because an hour may have any number of them.
func (s *statistics) addPast(ctx context.Context, q sqldb.Queryer, of timewindow.Period) error {
	for after := uuid.Nil; ; {
		l := sqldb.Args{Values: []any{s.query.Environment.ProjectID, of.From, of.To, after, rebuildPage}}
		page, err := sqldb.Collect(ctx, q, scanRunFigures, `SELECT `+runFiguresColumns+` FROM ended_runs r
		WHERE r.project_id = $1 AND r.id >= id_at($2) AND r.id < id_at($3) AND r.id > $4`+sqldb.SinceCondition("r.id", "$1")+s.endedCondition(&l)+` ORDER BY r.id LIMIT $5`, l.Values...)
		if err != nil {
			return err
		}
		if err := s.addRuns(ctx, q, page); err != nil || len(page) < rebuildPage {
			return err
		}
		after = page[len(page)-1].ID
	}
}

// addWaiting adds ended runs of a period that are not rolled up yet, of the project's newest.
func (s *statistics) addWaiting(ctx context.Context, q sqldb.Queryer, of timewindow.Period) error {
	waiting, _, err := outbox.RunsToRollUp.NewestIDs(ctx, q, s.query.Environment.ProjectID, store.MaxWaiting)
	if err != nil {
		return err
	}
	within := slices.DeleteFunc(waiting, func(run store.Key) bool {
		at := store.TimeOf(run.ID).UnixMicro()
		return at < of.From || at >= of.To
	})
	l := sqldb.Args{}
	narrow := s.endedCondition(&l)
	past, err := s.readRollupRuns(ctx, q, within, narrow, l.Values)
	if err != nil {
		return err
	}
	runs := make([]runFigures, len(past))
	for i, run := range past {
		runs[i] = run.runFigures
	}
	return s.addRuns(ctx, q, runs)
}

// waitingRuns returns the ended runs of an environment that are not rolled up yet, among about most
// of its project's.
func (c *Core) waitingRuns(ctx context.Context, q sqldb.Queryer, environment store.Key, most int) ([]rollupRun, error) {
	waiting, _, err := outbox.RunsToRollUp.NewestIDs(ctx, q, environment.ProjectID, most)
	if err != nil {
		return nil, err
	}
	return c.readRollupRuns(ctx, q, waiting, ` AND r.project_id = $1 AND r.environment_id = $2`, []any{environment.ProjectID, environment.ID})
}

// addRuns adds ended runs, with the cost of their calls.
func (s *statistics) addRuns(ctx context.Context, q sqldb.Queryer, runs []runFigures) error {
	keys := make([]store.Key, len(runs))
	for i, run := range runs {
		s.out.Runs[run.status]++
		if err := s.tally.addEndedRun(run); err != nil {
			return err
		}
		keys[i] = run.Key
	}
	return s.addCost(ctx, q, keys)
}

// addOpen adds the open runs of the window.
func (s *statistics) addOpen(ctx context.Context, q sqldb.Queryer) error {
	if len(s.query.Outcomes) > 0 {
		return nil
	}
	l := sqldb.Args{Values: []any{s.query.Environment.ProjectID, s.query.Environment.ID}}
	within, begun := timewindow.Condition("r.id", s.window, &l), s.startedCondition(&l)
	open, err := runqueue.OpenQuery{DB: s.DB, Only: []string{s.query.AgentName}, Within: within, Begun: begun, Args: l, Fresh: s.includesUnstarted()}.Count(ctx, q)
	for _, n := range open {
		s.out.Runs[n.Status] += n.Runs
	}
	return err
}
