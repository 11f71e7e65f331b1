// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/searchindex"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// searchStatistics is RunStatistics for a query with a search.
func (c *Core) searchStatistics(ctx context.Context, q store.StatisticsQuery) (store.RunStatistics, error) {
	of := &statistics{
		Core: c, query: q, bill: bill{}, window: timewindow.Period{From: timewindow.Bound(q.Since, timewindow.Always), To: timewindow.Bound(q.Until, timewindow.Never)},
		out: store.RunStatistics{Runs: map[store.RunStatus]int64{}},
	}
	var err error
	if of.tally, err = newTally(); err != nil {
		return of.out, err
	}
	s := c.NewSearch(searchindex.Query{
		Search: *q.Search, Project: q.Environment.ProjectID, Window: of.window, Environment: q.Environment.ID, AgentName: q.AgentName, Statuses: q.Statuses,
		Narrow: func(l *sqldb.Args, ended bool) string {
			if !ended && len(q.Outcomes) > 0 { // an open run has none yet
				return ` AND FALSE`
			}
			if !ended {
				return of.filterCondition(l)
			}
			return of.endedCondition(l)
		},
	})
	var ended []runFigures
	if err := s.ReadAll(ctx, func(run store.Searched) {
		if run.EndedAt == nil {
			of.out.Runs[run.Status]++
			return
		}
		ended = append(ended, runFigures{Key: run.Key(), status: run.Status, startedAt: run.StartedAt, endedAt: *run.EndedAt, usage: run.Usage})
	}); err != nil {
		return of.out, sqldb.Wrap(err, "searching runs of agent %q of environment %s", q.AgentName, q.Environment)
	}
	if err := s.ReadInTime(ctx, func(ctx context.Context) error { return of.addRuns(ctx, c.engine.Lists(), ended) }); err != nil {
		return of.out, sqldb.Wrap(err, "counting runs of agent %q of environment %s", q.AgentName, q.Environment)
	}
	return of.out, of.computeResult()
}
