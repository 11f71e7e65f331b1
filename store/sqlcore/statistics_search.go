// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/searchindex"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/statistics"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// RunStatistics implements store.Statistics.
func (c *Core) RunStatistics(ctx context.Context, q store.StatisticsQuery) (store.RunStatistics, error) {
	if q.Search != nil {
		return c.searchStatistics(ctx, q)
	}
	return c.ComputeRunStatistics(ctx, q)
}

// searchStatistics is RunStatistics for a query with a search.
func (c *Core) searchStatistics(ctx context.Context, q store.StatisticsQuery) (none store.RunStatistics, err error) {
	of, err := statistics.NewComputation(c.DB, q)
	if err != nil {
		return none, err
	}
	s := c.NewSearch(searchindex.Query{
		Search: *q.Search, Project: q.Environment.ProjectID, Environment: q.Environment.ID, AgentName: q.AgentName, Statuses: q.Statuses, Narrow: of.Condition,
		Window: timewindow.Between(q.Since, q.Until),
	})
	var ended []statistics.Figures
	if err := s.ReadAll(ctx, func(run store.Searched) {
		if run.EndedAt == nil {
			of.AddOpenRun(run.Status)
			return
		}
		ended = append(ended, statistics.Figures{Key: run.Key(), Status: run.Status, StartedAt: run.StartedAt, EndedAt: *run.EndedAt, Usage: run.Usage})
	}); err != nil {
		return none, sqldb.Wrap(err, "searching runs of agent %q of environment %s", q.AgentName, q.Environment)
	}
	if err := s.ReadInTime(ctx, func(ctx context.Context) error { return of.AddRuns(ctx, c.Lists(), ended) }); err != nil {
		return none, sqldb.Wrap(err, "counting runs of agent %q of environment %s", q.AgentName, q.Environment)
	}
	return of.Result()
}
