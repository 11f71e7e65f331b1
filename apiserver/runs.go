// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// maxShownInput is the most bytes of an input that an answer repeats.
const maxShownInput = 1 << 20

// Run is the REST shape of an agent run.
type Run struct {
	ID               string           `json:"id" format:"uuid"`
	AgentName        string           `json:"agent_name"`
	EnvironmentID    string           `json:"environment_id" format:"uuid"`
	DeploymentID     *string          `json:"deployment_id" format:"uuid" doc:"null until a runner has started it."`
	ConnectorID      *string          `json:"connector_id" format:"uuid"`
	ConnectorRunID   *string          `json:"connector_run_id" format:"uuid"`
	ParentRunID      *string          `json:"parent_run_id" format:"uuid"`
	Status           string           `json:"status" enum:"scheduled,queued,running,awaiting_approval,completed,failed,cancelled"`
	Input            any              `json:"input" doc:"The input as JSON, else as text; null in lists and where it is too large to show."`
	Output           *string          `json:"output" doc:"null in lists."`
	Error            *string          `json:"error"`
	ErrorCode        *string          `json:"error_code" doc:"Why it failed, for programs: for example agent_not_found, tool_interrupted."`
	Context          any              `json:"context"`
	TestName         *string          `json:"test_name"`
	GuardrailOutcome *string          `json:"guardrail_outcome"`
	Attempt          int              `json:"attempt" doc:"How often a runner took it."`
	QueuedAt         time.Time        `json:"queued_at"`
	StartedAt        *time.Time       `json:"started_at"`
	EndedAt          *time.Time       `json:"ended_at"`
	DurationMS       *int64           `json:"duration_ms"`
	TokenUsage       store.TokenUsage `json:"token_usage"`
	Cost             Null[Cost]       `json:"cost"`
	Traces           []any            `json:"traces"`
	Logs             []any            `json:"logs"`
}

// Cost is an amount of money.
type Cost struct {
	Currency string  `json:"currency"`
	Amount   float64 `json:"amount"`
}

// RunPath names a run.
type RunPath struct {
	ProjectPath
	RunID string `path:"run_id" format:"uuid"`
}

// RunsQuery selects runs.
type RunsQuery struct {
	ProjectPath
	EnvironmentID string `query:"environment_id" format:"uuid"`
	AgentName     string `query:"agent_name"`
	Status        string `query:"status_filter" enum:"scheduled,queued,running,awaiting_approval,completed,failed,cancelled"`
	Limit         int    `query:"limit" default:"25" minimum:"1" maximum:"100"`
	Before        string `query:"before" format:"uuid" doc:"The id of the last run of the page before."`
}

func (s *Server) listRuns(ctx context.Context, c *caller, in *RunsQuery) ([]Run, error) {
	q := store.RunQuery{
		ProjectID: c.projectID, AgentName: in.AgentName, Status: store.RunStatus(in.Status), Limit: in.Limit,
	}
	if in.Before != "" {
		before, err := uuid.Parse(in.Before)
		if err != nil {
			return nil, invalid(FieldError{Location: "query.before", Message: "is no UUID"})
		}
		q.Before = &before
	}
	var err error
	if q.EnvironmentIDs, err = s.runEnvironments(ctx, c, in.EnvironmentID); err != nil {
		return nil, err
	}
	out := []Run{}
	if q.EnvironmentIDs != nil && len(q.EnvironmentIDs) == 0 {
		return out, nil
	}
	runs, err := s.store.ListRuns(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("listing runs: %w", err)
	}
	for _, r := range runs {
		item := showRun(r)
		item.Output = nil
		out = append(out, item)
	}
	return out, nil
}

// runEnvironments are the environments whose runs are listed; nil means all.
func (s *Server) runEnvironments(ctx context.Context, c *caller, id string) ([]uuid.UUID, error) {
	var reached []v1alpha1.Environment
	switch {
	case id != "":
		e, err := s.environment(ctx, c, id)
		if err != nil {
			return nil, err
		}
		reached = []v1alpha1.Environment{*e}
	case c.key.Spec.EnvironmentAccess != v1alpha1.AccessSelected:
		return nil, nil
	default:
		var err error
		if reached, err = s.environments(ctx, c); err != nil {
			return nil, err
		}
	}
	ids := []uuid.UUID{}
	for i := range reached {
		ids = append(ids, c.keyOf(&reached[i]).ID)
	}
	return ids, nil
}

func (s *Server) getRun(ctx context.Context, c *caller, in *RunPath) (Run, error) {
	id, err := uuid.Parse(in.RunID)
	if err != nil {
		return Run{}, notFound("run")
	}
	run, err := s.store.Run(ctx, c.row(id))
	if errors.Is(err, store.ErrNotFound) {
		return Run{}, notFound("run")
	}
	if err != nil {
		return Run{}, fmt.Errorf("reading run %s: %w", id, err)
	}
	if err := s.mustReachID(ctx, c, run.EnvironmentID.String()); err != nil {
		return Run{}, err
	}
	shown := showRun(run)
	shown.Input, err = s.input(ctx, run.Key())
	return shown, err
}

// input is a run's input as it is shown; nil where it is too large or gone.
func (s *Server) input(ctx context.Context, run store.Key) (any, error) {
	contentType, body, err := s.store.RunInput(ctx, run)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the input of run %s: %w", run, err)
	}
	defer func() { _ = body.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(body, maxShownInput+1))
	if err != nil {
		return nil, fmt.Errorf("reading the input of run %s: %w", run, err)
	}
	media, _, _ := mime.ParseMediaType(contentType) // "" is shown as text
	switch {
	case len(data) == 0 || len(data) > maxShownInput:
		return nil, nil
	case media == "application/json" && json.Valid(data):
		return json.RawMessage(data), nil
	default:
		return string(data), nil
	}
}

func showRun(r store.Run) Run {
	out := Run{
		ID: r.ID.String(), AgentName: r.AgentName, EnvironmentID: r.EnvironmentID.String(),
		DeploymentID: optID(r.DeploymentID), ConnectorID: optID(r.ConnectorID), ConnectorRunID: optID(r.ConnectorRunID),
		Status: string(r.Status), Output: opt(r.Output), Error: opt(r.Error), Attempt: r.Attempt,
		QueuedAt: r.QueuedAt.UTC(), StartedAt: optTime(r.StartedAt), EndedAt: optTime(r.EndedAt),
		DurationMS: elapsed(r.StartedAt, r.EndedAt), TokenUsage: r.Usage,
	}
	if out.ErrorCode = opt(string(r.ErrorCode)); out.Error == nil {
		out.Error = out.ErrorCode
	}
	if r.Status == store.RunCompleted && out.Output == nil {
		out.Output = &r.Output // an empty answer is an answer
	}
	return out
}
