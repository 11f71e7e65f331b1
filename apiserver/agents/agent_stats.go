// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/apiserver/costs"
	"github.com/agentplatform/agentplatform/apiserver/history"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// StatisticsQuery selects the runs that statistics are of.
type StatisticsQuery struct {
	TimeRange history.AgentTimeRange `query:"time_range" default:"30d" doc:"Only runs that were queued in this window. Ignored if start_date is set."`
	StartDate rest.Moment            `query:"start_date" doc:"Only runs that were queued at this time or later."`
	EndDate   rest.Moment            `query:"end_date" doc:"Only runs that were queued before this time. Ignored without start_date."`
	rest.StatusFilter[history.RunStatusFilter]
	DeploymentID    rest.ID  `query:"deployment_id" resource:"deployment" doc:"Only runs that this deployment executed."`
	TestNames       []string `query:"test_name,explode" maxItems:"50" doc:"Only runs of one of these A/B variants; __base__ stands for runs without a variant." example:"__base__"`
	ExcludeTestRuns bool     `query:"exclude_test_runs" default:"false" doc:"Leaves out runs that an A/B variant executes."`
	Search          string   `query:"search" maxLength:"1024" doc:"Only runs that this search finds, as in the list of runs." example:"refund \"Acme Corp\""`
}

func (in *StatisticsQuery) Searches() bool { return in.Search != "" }

// statistics returns the query of the store.
func (in *StatisticsQuery) statistics(now time.Time) (store.StatisticsQuery, error) {
	q := store.StatisticsQuery{DeploymentID: uuid.UUID(in.DeploymentID), TestNames: in.TestNames, BaseOnly: in.ExcludeTestRuns}
	q.Statuses = rest.StatusesOf[store.RunStatus](in.StatusFilter)
	end := in.EndDate
	if !in.StartDate.Given {
		end = rest.Moment{}
	}
	var err error
	q.Since, q.Until, err = history.Window(in.TimeRange, in.StartDate, end, now)
	return q, err
}

// showStatistics fills in the statistics of an agent's runs. An A/B variant has the statistics of the runs that it
// executed.
func (s *API) showStatistics(ctx context.Context, environment store.Key, a store.AgentSummary, q store.StatisticsQuery, to costs.Currency, out *AgentDetails) error {
	out.Costing, out.UsageByModel = costs.Exchange{}.Costing(nil), []costs.ModelUsage{}
	q.Environment, q.AgentName = environment, a.Name
	if a.Agent != nil && a.Agent.VariantOf != "" {
		q.AgentName = a.Agent.VariantOf
		if len(q.TestNames) > 0 && !slices.Contains(q.TestNames, a.Agent.TestName) {
			return nil // none of its runs is a run of another variant
		}
		q.TestNames = []string{a.Agent.TestName}
	}
	found, err := s.Store.RunStatistics(ctx, q)
	if err != nil {
		return fmt.Errorf("reading the statistics of agent %q: %w", a.Name, err)
	}
	runs := found.Runs
	out.Stats = AgentStats{
		Total: found.Total(), Completed: runs[store.RunCompleted], Failed: runs[store.RunFailed], Cancelled: runs[store.RunCancelled],
		Running: runs[store.RunRunning], Queued: runs[store.RunQueued],
		AverageDurationMS: rest.DurationMS(found.AverageDuration), P95DurationMS: rest.DurationMS(found.P95Duration),
	}
	if ended := out.Stats.Completed + out.Stats.Failed + out.Stats.Cancelled; ended > 0 {
		rate := float64(out.Stats.Completed) / float64(ended)
		out.Stats.SuccessRate = &rate
	}
	out.TokenUsage = costs.TokenUsage(found.Usage)
	e, err := s.Costs.Exchange(ctx, to, found.Calls)
	out.Costing, out.UsageByModel = e.Costing(found.Calls), e.ByModel(found.Calls)
	return err
}
