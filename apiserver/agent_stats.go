// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// StatisticsQuery selects the runs that statistics are of.
type StatisticsQuery struct {
	TimeRange AgentTimeRange `query:"time_range" default:"30d" doc:"Only runs that were queued in this window. It counts for nothing where start_date is set."`
	StartDate Moment         `query:"start_date" doc:"Only runs that were queued at that time or later."`
	EndDate   Moment         `query:"end_date" doc:"Only runs that were queued before that time. It counts for nothing without start_date."`
	StatusFilter[RunStatusFilter]
	DeploymentID    ID       `query:"deployment_id" doc:"Only runs that this deployment has executed."`
	TestNames       []string `query:"test_name,explode" maxItems:"50" doc:"Only runs that one of these A/B variants executes; __base__ for those that none does." example:"__base__"`
	ExcludeTestRuns bool     `query:"exclude_test_runs" default:"false" doc:"Leaves out runs that an A/B variant executes."`
	Search          string   `query:"search" maxLength:"1024" doc:"Only runs that this finds, as in the list of runs." example:"refund \"Acme Corp\""`
}

func (in *StatisticsQuery) searches() bool { return in.Search != "" }

// statistics is what the store is asked.
func (in *StatisticsQuery) statistics(now time.Time) (store.StatisticsQuery, error) {
	q := store.StatisticsQuery{DeploymentID: uuid.UUID(in.DeploymentID), TestNames: in.TestNames, BaseOnly: in.ExcludeTestRuns}
	q.Statuses = statusesOf[store.RunStatus](in.StatusFilter)
	end := in.EndDate
	if !in.StartDate.given {
		end = Moment{}
	}
	var err error
	q.Since, q.Until, err = windowOf(in.TimeRange, in.StartDate, end, now)
	return q, err
}

// windowOf is the window of three parameters: time_range, which start_date overrides, and end_date.
// A zero time bounds nothing.
func windowOf(within AgentTimeRange, start, end Moment, now time.Time) (since, until time.Time, err error) {
	if start.given && end.given && !end.at.After(start.at) {
		return since, until, invalid(FieldError{Location: "query.end_date", Message: "must be after start_date"})
	}
	if start.given {
		return start.at, end.at, nil
	}
	since, until = within.window(now.UTC())
	if end.given && (until.IsZero() || end.at.Before(until)) {
		until = end.at
	}
	return since, until, nil
}

// window is what a time range stands for; a zero time bounds nothing.
func (r AgentTimeRange) window(now time.Time) (since, until time.Time) {
	const day = 24 * time.Hour
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	switch r {
	case "24h":
		since = now.Add(-day)
	case "7d":
		since = now.Add(-7 * day)
	case "30d":
		since = now.Add(-30 * day)
	case "90d":
		since = now.Add(-90 * day)
	case "today":
		since = now.Truncate(day)
	case "this_month":
		since = month
	case "last_month":
		since, until = month.AddDate(0, -1, 0), month
	case "this_year":
		since = time.Date(now.Year(), 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return since, until
}

// showStatistics shows the numbers of an agent's runs. Those of an A/B variant are what it has
// executed of its agent's.
func (s *Server) showStatistics(ctx context.Context, environment store.Key, a store.AgentSummary, q store.StatisticsQuery, to Currency, out *AgentDetails) error {
	out.Costing, out.UsageByModel = exchange{}.costing(nil), []ModelUsage{}
	q.Environment, q.AgentName = environment, a.Name
	if a.Agent != nil && a.Agent.VariantOf != "" {
		q.AgentName = a.Agent.VariantOf
		if len(q.TestNames) > 0 && !slices.Contains(q.TestNames, a.Agent.TestName) {
			return nil // none of its runs is another variant's
		}
		q.TestNames = []string{a.Agent.TestName}
	}
	found, err := s.store.RunStatistics(ctx, q)
	if err != nil {
		return fmt.Errorf("reading the statistics of agent %q: %w", a.Name, err)
	}
	runs := found.Runs
	out.Stats = AgentStats{
		Total: found.Total(), Completed: runs[store.RunCompleted], Failed: runs[store.RunFailed], Cancelled: runs[store.RunCancelled],
		Running: runs[store.RunRunning], Queued: runs[store.RunQueued],
		AverageDurationMS: milliseconds(found.AverageDuration), P95DurationMS: milliseconds(found.P95Duration),
	}
	if ended := out.Stats.Completed + out.Stats.Failed + out.Stats.Cancelled; ended > 0 {
		rate := float64(out.Stats.Completed) / float64(ended)
		out.Stats.SuccessRate = &rate
	}
	out.TokenUsage = TokenUsage(found.Usage)
	e, err := s.exchange(ctx, to, found.Calls)
	out.Costing, out.UsageByModel = e.costing(found.Calls), e.byModel(found.Calls)
	return err
}

func milliseconds(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}
