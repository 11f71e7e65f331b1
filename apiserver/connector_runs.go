// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// ConnectorRun is the REST shape of a connector run.
type ConnectorRun struct {
	ID            string     `json:"id" format:"uuid"`
	ConnectorID   string     `json:"connector_id" format:"uuid"`
	Status        string     `json:"status" enum:"pending,running,completed,failed,skipped,cancelled"`
	TriggerType   string     `json:"trigger_type" doc:"For example webhook, cron, outbound."`
	StartedAt     time.Time  `json:"started_at"`
	EndedAt       *time.Time `json:"ended_at"`
	DurationMS    *int64     `json:"duration_ms"`
	DispatchedTo  int        `json:"dispatched_to" doc:"How many agent runs it started."`
	RunIDs        []string   `json:"run_ids" nullable:"false" doc:"The agent runs, oldest link first."`
	Output        *string    `json:"output" doc:"The output of the oldest link's run; null in lists."`
	Error         *string    `json:"error"`
	RunID         *string    `json:"run_id" format:"uuid" doc:"Outbound: the agent run whose result is sent."`
	Attempts      []Attempt  `json:"attempts" nullable:"false" doc:"Outbound: the attempts to deliver."`
	NextAttemptAt *time.Time `json:"next_attempt_at"`
}

// Attempt is one attempt to deliver.
type Attempt struct {
	Number          int       `json:"number"`
	At              time.Time `json:"at"`
	StatusCode      *int      `json:"status_code"`
	ErrorClass      *string   `json:"error_class"`
	Error           *string   `json:"error"`
	DurationMS      *int64    `json:"duration_ms"`
	ResponseExcerpt *string   `json:"response_excerpt"`
}

// ConnectorRunList is a page of connector runs, newest first.
type ConnectorRunList struct {
	Items  []ConnectorRun `json:"items" nullable:"false"`
	Total  int64          `json:"total" doc:"How many match on all pages."`
	Limit  int            `json:"limit"`
	Offset int            `json:"offset"`
}

// ConnectorRunPath names a connector run.
type ConnectorRunPath struct {
	ConnectorPath
	RunID string `path:"run_id" format:"uuid"`
}

// ConnectorRunsQuery selects runs of a connector.
type ConnectorRunsQuery struct {
	ConnectorPath
	TimeRange   string `query:"time_range" default:"7d" enum:"1h,6h,24h,7d,30d"`
	Status      string `query:"status_filter" enum:"pending,running,completed,failed,skipped,cancelled"`
	TriggerType string `query:"trigger_type"`
	Limit       int    `query:"limit" default:"25" minimum:"1" maximum:"100"`
	Offset      int    `query:"offset" default:"0" minimum:"0"`
}

// timeRanges are the windows of statistics and lists.
var timeRanges = map[string]time.Duration{
	"1h": time.Hour, "6h": 6 * time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "30d": 30 * 24 * time.Hour,
}

func (s *Server) listConnectorRuns(ctx context.Context, c *caller, in *ConnectorRunsQuery) (ConnectorRunList, error) {
	page := ConnectorRunList{Items: []ConnectorRun{}, Limit: in.Limit, Offset: in.Offset}
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return page, err
	}
	runs, total, err := s.store.ListConnectorRuns(ctx, store.ConnectorRunQuery{
		Connector: c.keyOf(conn), Since: timeRanges[in.TimeRange], Status: store.ConnectorRunStatus(in.Status),
		Trigger: store.TriggerType(in.TriggerType), Limit: in.Limit, Offset: in.Offset,
	})
	if err != nil {
		return page, fmt.Errorf("listing the runs of connector %q: %w", conn.Name, err)
	}
	for _, r := range runs {
		page.Items = append(page.Items, showConnectorRun(r))
	}
	page.Total = total
	return page, nil
}

func (s *Server) getConnectorRun(ctx context.Context, c *caller, in *ConnectorRunPath) (ConnectorRun, error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return ConnectorRun{}, err
	}
	id, err := uuid.Parse(in.RunID)
	if err != nil {
		return ConnectorRun{}, notFound("connector run")
	}
	run, err := s.store.ConnectorRun(ctx, c.row(id))
	if errors.Is(err, store.ErrNotFound) || err == nil && run.ConnectorID.String() != idOf(conn) {
		return ConnectorRun{}, notFound("connector run")
	}
	if err != nil {
		return ConnectorRun{}, fmt.Errorf("reading connector run %s: %w", id, err)
	}
	shown := showConnectorRun(run)
	outcome, err := s.store.Outcome(ctx, c.row(id))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return ConnectorRun{}, fmt.Errorf("reading the outcome of connector run %s: %w", id, err)
	}
	if len(outcome.Runs) > 0 {
		first := showRun(outcome.Runs[0])
		shown.Output = first.Output
		if shown.Error == nil {
			shown.Error = first.Error
		}
	}
	return shown, nil
}

func showConnectorRun(r store.ConnectorRun) ConnectorRun {
	return ConnectorRun{
		ID: r.ID.String(), ConnectorID: r.ConnectorID.String(), Status: string(r.Status), TriggerType: string(r.Trigger),
		StartedAt: r.StartedAt.UTC(), EndedAt: optTime(r.EndedAt), DurationMS: elapsed(&r.StartedAt, r.EndedAt),
		DispatchedTo: len(r.RunIDs), RunIDs: texts(r.RunIDs), Error: opt(r.Error), Attempts: []Attempt{},
	}
}
