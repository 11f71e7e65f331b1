// SPDX-License-Identifier: Apache-2.0

package statistics

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

// Store counts runs: it adds ended runs to rollups, and returns the statistics of a query.
type Store struct {
	db *sqldb.DB
	// turns are the turns of projects in RollUp. pace is its batch size.
	turns *outbox.Cursor
	pace  *outbox.Pace
}

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db, turns: outbox.NewCursor(), pace: &outbox.Pace{}} }

// ComputeRunStatistics returns the statistics of a query without a search. Whole hours, days and months are read from
// rollups, and parts of hours at the ends of the window from history. Ended runs that are not rolled up yet
// are read from the outbox.
func (s *Store) ComputeRunStatistics(ctx context.Context, q store.StatisticsQuery) (out store.RunStatistics, err error) {
	of, err := NewComputation(s.db, q)
	if err == nil {
		err = s.db.Snapshot(ctx, of.readAll)
	}
	if err == nil {
		out, err = of.Result()
	}
	return out, sqldb.Wrap(err, "counting runs of agent %q of environment %s", q.AgentName, q.Environment)
}

// readAll adds all runs of the query.
func (s *Computation) readAll(ctx context.Context, q sqldb.Queryer) error {
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
}

// Computation computes the statistics of a query.
type Computation struct {
	db     *sqldb.DB
	query  store.StatisticsQuery
	window timewindow.Period
	tally  *tally
	bill   bill
	// maxBillEntries is the number of entries at which the bill is reduced, but at least minBillEntries.
	maxBillEntries int
	out            store.RunStatistics
}

// NewComputation returns a Computation without any runs.
func NewComputation(db *sqldb.DB, q store.StatisticsQuery) (*Computation, error) {
	sum, err := newTally()
	window := timewindow.Between(q.Since, q.Until)
	return &Computation{db: db, query: q, window: window, tally: sum, bill: bill{}, out: store.RunStatistics{Runs: map[store.RunStatus]int64{}}}, err
}

// Result returns the statistics of all added runs.
func (s *Computation) Result() (out store.RunStatistics, err error) {
	out = s.out
	out.Usage, out.Calls, out.AverageDuration = s.tally.usage, s.bill.limitModels(store.MaxModels).callList(), s.tally.average()
	out.P95Duration, err = s.tally.percentile95()
	return out, err
}

// Condition returns the condition on open or ended runs r of the query. An open run has no guardrail outcome yet.
func (s *Computation) Condition(l *sqldb.Args, ended bool) string {
	switch {
	case ended:
		return s.endedCondition(l)
	case len(s.query.Outcomes) > 0:
		return ` AND FALSE`
	}
	return s.filterCondition(l)
}

// AddOpenRun adds an open run.
func (s *Computation) AddOpenRun(status store.RunStatus) { s.out.Runs[status]++ }

// filterCondition returns the filters of the query, as a condition on columns that rollups and ended runs
// have.
func (s *Computation) filterCondition(l *sqldb.Args) string {
	q := s.query
	return ` AND r.project_id = ` + l.Add(q.Environment.ProjectID) + ` AND r.environment_id = ` + l.Add(q.Environment.ID) + ` AND r.agent_name = ` + l.Add(sqldb.Text(q.AgentName)) +
		s.startedCondition(l)
}

// startedCondition returns the part of filterCondition on fields that runs have after their start.
func (s *Computation) startedCondition(l *sqldb.Args) (text string) {
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
func (s *Computation) includesUnstarted() bool {
	q := s.query
	return q.DeploymentID == uuid.Nil && (len(q.Statuses) == 0 || slices.Contains(q.Statuses, store.RunQueued)) &&
		(len(q.TestNames) == 0 || slices.Contains(q.TestNames, store.BaseRuns))
}

// endedCondition is filterCondition for ended runs. Only ended runs have guardrail outcomes.
func (s *Computation) endedCondition(l *sqldb.Args) string {
	text := s.filterCondition(l)
	if len(s.query.Outcomes) > 0 {
		text += ` AND r.guardrail_outcome IN ` + sqldb.AddTexts(l, s.query.Outcomes)
	}
	return text
}

// addStretch adds rollups.
func (s *Computation) addStretch(ctx context.Context, q sqldb.Queryer, of timewindow.Stretch) error {
	l := sqldb.Args{Values: []any{s.query.Environment.ProjectID, string(of.Grain), of.From, of.To}}
	return sqldb.EachRow(ctx, q, func(row sqldb.Scanner) error {
		var status store.RunStatus
		more, sketch, err := scanTally(row, &status)
		if err != nil {
			return err
		}
		s.out.Runs[status] += more.runs
		return s.tally.addStored(more, sketch)
	}, `SELECT r.status, `+tallyColumns+` FROM run_rollups r
		WHERE r.project_id = $1 AND r.grain = $2 AND r.begins_at >= $3 AND r.begins_at < $4`+s.endedCondition(&l), l.Values...)
}

// addPast adds ended runs of a period, page by page, because an hour may have any number of them.
func (s *Computation) addPast(ctx context.Context, q sqldb.Queryer, of timewindow.Period) error {
	for after := uuid.Nil; ; {
		l := sqldb.Args{Values: []any{s.query.Environment.ProjectID, of.From, of.To, after, rebuildPage}}
		page, err := sqldb.Collect(ctx, q, scanFigures, `SELECT `+figuresColumns+` FROM ended_runs r
		WHERE r.project_id = $1 AND r.id >= id_at($2) AND r.id < id_at($3) AND r.id > $4`+sqldb.SinceCondition("r.id", "$1")+s.endedCondition(&l)+` ORDER BY r.id LIMIT $5`, l.Values...)
		if err != nil {
			return err
		}
		if err := s.AddRuns(ctx, q, page); err != nil || len(page) < rebuildPage {
			return err
		}
		after = page[len(page)-1].ID
	}
}

// addWaiting adds ended runs of a period that are not rolled up yet, of the project's newest.
func (s *Computation) addWaiting(ctx context.Context, q sqldb.Queryer, of timewindow.Period) error {
	waiting, _, err := outbox.RunsToRollUp.NewestIDs(ctx, q, s.query.Environment.ProjectID, store.MaxWaiting)
	if err != nil {
		return err
	}
	l := sqldb.Args{}
	narrow := s.endedCondition(&l)
	past, err := readRuns(ctx, s.db, q, queuedWithin(waiting, of), narrow, l.Values)
	if err != nil {
		return err
	}
	runs := make([]Figures, len(past))
	for i, run := range past {
		runs[i] = run.Figures
	}
	return s.AddRuns(ctx, q, runs)
}

// queuedWithin returns the runs that were queued in a period.
func queuedWithin(runs []store.Key, of timewindow.Period) []store.Key {
	return slices.DeleteFunc(runs, func(run store.Key) bool {
		at := store.TimeOf(run.ID).UnixMicro()
		return at < of.From || at >= of.To
	})
}

// WaitingRuns returns the ended runs of an environment that are not rolled up yet, among about most
// of its project's.
func WaitingRuns(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, environment store.Key, most int) ([]EndedRun, error) {
	waiting, _, err := outbox.RunsToRollUp.NewestIDs(ctx, q, environment.ProjectID, most)
	if err != nil {
		return nil, err
	}
	return readRuns(ctx, db, q, waiting, ` AND r.project_id = $1 AND r.environment_id = $2`, []any{environment.ProjectID, environment.ID})
}

// AddRuns adds ended runs, with the cost of their calls.
func (s *Computation) AddRuns(ctx context.Context, q sqldb.Queryer, runs []Figures) error {
	keys := make([]store.Key, len(runs))
	for i, run := range runs {
		s.out.Runs[run.Status]++
		if err := s.tally.addEndedRun(run); err != nil {
			return err
		}
		keys[i] = run.Key
	}
	return s.addCost(ctx, q, keys)
}

// addOpen adds the open runs of the window.
func (s *Computation) addOpen(ctx context.Context, q sqldb.Queryer) error {
	if len(s.query.Outcomes) > 0 {
		return nil
	}
	l := sqldb.Args{Values: []any{s.query.Environment.ProjectID, s.query.Environment.ID}}
	within, begun := timewindow.Condition("r.id", s.window, &l), s.startedCondition(&l)
	open, err := runqueue.OpenQuery{DB: s.db, Only: []string{s.query.AgentName}, Within: within, Begun: begun, Args: l, Fresh: s.includesUnstarted()}.Count(ctx, q)
	for _, n := range open {
		s.out.Runs[n.Status] += n.Runs
	}
	return err
}
