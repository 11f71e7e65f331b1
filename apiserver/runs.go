// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/store"
)

// Run is the REST shape of an agent run.
type Run struct {
	ID               string     `json:"id" format:"uuid" doc:"The run's id."`
	AgentName        string     `json:"agent_name" doc:"The agent that runs." example:"support"`
	EnvironmentID    string     `json:"environment_id" format:"uuid" doc:"The environment that it runs in."`
	DeploymentID     *string    `json:"deployment_id" format:"uuid" doc:"The deployment that executes it; null until a runner has started it."`
	ConnectorID      *string    `json:"connector_id" format:"uuid" doc:"The connector whose event started it."`
	ConnectorRunID   *string    `json:"connector_run_id" format:"uuid" doc:"The event that started it."`
	ParentRunID      *string    `json:"parent_run_id" format:"uuid" doc:"The run that started it; null in this release."`
	Status           RunStatus  `json:"status" doc:"Where it stands."`
	Input            any        `json:"input" doc:"The input as JSON, else as text; null in lists and where it is larger than 1 MiB. Its fields files and file_issues say what became of attachments."`
	Output           *string    `json:"output" doc:"What the agent answered; null in lists."`
	Error            *string    `json:"error" doc:"Why it failed, for people."`
	ErrorCode        *string    `json:"error_code" doc:"Why it failed, for programs." example:"agent_not_found"`
	Context          Object     `json:"context" doc:"What the run sees beside its input: headers, those of the webhook's request that the connector names. Null in lists and without any."`
	TestName         *string    `json:"test_name" doc:"The A/B variant of the agent that executes it; null where the agent itself does, and until a runner has said which." example:"short"`
	GuardrailOutcome *string    `json:"guardrail_outcome" doc:"What guardrails did; null in this release."`
	Attempt          int        `json:"attempt" doc:"How often a runner took it."`
	QueuedAt         time.Time  `json:"queued_at" doc:"When its event was accepted."`
	StartedAt        *time.Time `json:"started_at" doc:"When a runner first took it."`
	EndedAt          *time.Time `json:"ended_at" doc:"When its status became final."`
	DurationMS       *int64     `json:"duration_ms" doc:"From start to end in milliseconds; null until it ended."`
	TokenUsage       TokenUsage `json:"token_usage" doc:"Model tokens that it spent."`
	Traces           []Span     `json:"traces" doc:"What it did, step by step; empty in this release."`
	Logs             []LogLine  `json:"logs" doc:"What it has written; empty in this release."`
	Costing
}

// TokenUsage counts model tokens.
type TokenUsage struct {
	InputTokens       int64 `json:"input_tokens" doc:"What the models read."`
	OutputTokens      int64 `json:"output_tokens" doc:"What they wrote."`
	ThinkingTokens    int64 `json:"thinking_tokens" doc:"What they thought before."`
	CachedInputTokens int64 `json:"cached_input_tokens" doc:"What of the input was read from a cache."`
	TotalTokens       int64 `json:"total_tokens" doc:"All of them."`
}

// Cost is an amount of money.
type Cost struct {
	Currency Currency `json:"currency" doc:"The currency."`
	Amount   float64  `json:"amount" doc:"The amount in that currency." example:"0.0042"`
}

// Span is a step of a run.
type Span struct {
	Name       string     `json:"name" doc:"What was done." example:"chat gpt-5"`
	Kind       SpanKind   `json:"kind" doc:"What it is of."`
	StartedAt  time.Time  `json:"started_at" doc:"When it began."`
	EndedAt    *time.Time `json:"ended_at" doc:"When it ended."`
	DurationMS *int64     `json:"duration_ms" doc:"From start to end in milliseconds."`
	Error      *string    `json:"error" doc:"Why it failed; else null."`
}

// LogLine is a line that a run has written.
type LogLine struct {
	At      time.Time `json:"at" doc:"When it was written."`
	Level   LogLevel  `json:"level" doc:"How much it matters."`
	Message string    `json:"message" doc:"The text."`
}

// RunPath names a run.
type RunPath struct {
	ProjectPath
	RunID ID `path:"run_id" doc:"The agent run."`
}

// RunsQuery selects runs.
type RunsQuery struct {
	ProjectPath
	StatusFilter[RunStatusFilter]
	EnvironmentID ID             `query:"environment_id" doc:"Only runs in this environment; without it those in all that the key reaches."`
	AgentName     string         `query:"agent_name" doc:"Only runs of this agent." example:"support"`
	TestName      string         `query:"test_name" doc:"Only runs that this A/B variant executes; __base__ for those of no variant." example:"short"`
	DeploymentID  ID             `query:"deployment_id" doc:"Only runs that this deployment has executed."`
	ConnectorID   ID             `query:"connector_id" doc:"Only runs that events of this connector have started."`
	EventID       ID             `query:"connector_run_id" doc:"Only runs that this event has started."`
	TimeRange     AgentTimeRange `query:"time_range" default:"all" doc:"Only runs that were queued in this window. It counts for nothing where start_date is set."`
	StartDate     Moment         `query:"start_date" doc:"Only runs that were queued at that time or later."`
	EndDate       Moment         `query:"end_date" doc:"Only runs that were queued before that time."`
	Search        string         `query:"search" maxLength:"1024" doc:"Only runs that this finds: words, all of which they have, those in double quotes one after the other; or a condition in CEL." example:"input.amount >= 40 && status == \"failed\""`
	Limit         int            `query:"limit" default:"25" minimum:"1" maximum:"100" doc:"The most items of a page."`
	Cursor        string         `query:"cursor" doc:"The next_cursor of the page before."`
}

func (in *RunsQuery) searches() bool { return in.Search != "" }

// RunList is a page of runs, newest first.
type RunList struct {
	Items      []Run   `json:"items" doc:"The runs of this page, newest first."`
	NextCursor *string `json:"next_cursor" doc:"Asks for the next page; null on the last."`
}

func (s *Server) listRuns(ctx context.Context, c *caller, in *RunsQuery) (answer[RunList], error) {
	page := RunList{Items: []Run{}}
	q := store.RunQuery{
		ProjectID: c.projectID, AgentName: in.AgentName, TestName: in.TestName, Limit: in.Limit + 1,
		Statuses:     statusesOf[store.RunStatus](in.StatusFilter),
		DeploymentID: uuid.UUID(in.DeploymentID), ConnectorID: uuid.UUID(in.ConnectorID), ConnectorRunID: uuid.UUID(in.EventID),
	}
	var (
		end func()
		err error
	)
	if q.Since, q.Until, err = windowOf(in.TimeRange, in.StartDate, in.EndDate, s.now()); err != nil {
		return answer[RunList]{}, err
	}
	if q.Search, end, err = s.search(ctx, c, in.Search); err != nil {
		return answer[RunList]{}, err
	}
	defer end()
	if in.Cursor != "" {
		if q.Before, err = readCursor(runCursor, in.Cursor); err != nil {
			return answer[RunList]{}, err
		}
	}
	if q.EnvironmentIDs, err = s.runEnvironments(ctx, c, in.EnvironmentID); err != nil {
		return answer[RunList]{}, err
	}
	if q.EnvironmentIDs != nil && len(q.EnvironmentIDs) == 0 {
		return plainly(page, nil)
	}
	runs, next, err := s.store.ListRuns(ctx, q)
	if err != nil {
		return answer[RunList]{}, fmt.Errorf("listing runs: %w", err)
	}
	if len(runs) > in.Limit { // so a page that holds all is known for the last
		runs = runs[:in.Limit]
		next = &runs[in.Limit-1].ID
	}
	if next != nil {
		page.NextCursor = cursorAfter(runCursor, *next)
	}
	if len(runs) == 0 && next == nil && in.Cursor == "" {
		if err := s.mustKnow(ctx, c, in); err != nil {
			return answer[RunList]{}, err
		}
	}
	for _, r := range runs {
		item := showRun(r)
		item.Output = nil
		page.Items = append(page.Items, item)
	}
	return plainly(page, nil)
}

// mustKnow answers 404 for what a list is of that has no runs, and is not there. What is gone may
// have had some, others than are asked for.
func (s *Server) mustKnow(ctx context.Context, c *caller, in *RunsQuery) error {
	if !in.DeploymentID.IsZero() {
		if _, err := s.deployment(ctx, c, in.DeploymentID); err != nil {
			return err
		}
	}
	if !in.ConnectorID.IsZero() {
		if _, err := s.connectorKey(ctx, c, in.ConnectorID); err != nil {
			return err
		}
	}
	if in.EventID.IsZero() {
		return nil
	}
	run, err := s.store.ConnectorRun(ctx, c.row(in.EventID))
	if errors.Is(err, store.ErrNotFound) {
		return notFound("connector run")
	}
	if err != nil {
		return fmt.Errorf("reading connector run %s: %w", in.EventID, err)
	}
	return s.mustReachID(ctx, c, run.EnvironmentID)
}

// runEnvironments are the environments whose runs are listed; nil means all.
func (s *Server) runEnvironments(ctx context.Context, c *caller, id ID) ([]uuid.UUID, error) {
	var reached []v1alpha1.Environment
	switch {
	case !id.IsZero():
		e, err := s.environment(ctx, c, id)
		if isNotFound(err) && c.reachesAll() {
			return s.pastEnvironment(ctx, c, id, err)
		}
		if err != nil {
			return nil, err
		}
		reached = []v1alpha1.Environment{*e}
	case c.reachesAll():
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

// pastEnvironment is an environment that is gone, and had runs; else there is none.
func (s *Server) pastEnvironment(ctx context.Context, c *caller, id ID, none error) ([]uuid.UUID, error) {
	had, err := s.store.HasRuns(ctx, c.row(id))
	if err != nil {
		return nil, fmt.Errorf("looking for runs of environment %s: %w", id, err)
	}
	if !had {
		return nil, none
	}
	return []uuid.UUID{uuid.UUID(id)}, nil
}

func (s *Server) getRun(ctx context.Context, c *caller, in *RunPath) (answer[Run], error) {
	run, err := s.run(ctx, c, in.RunID)
	if err != nil {
		return answer[Run]{}, err
	}
	return plainly(s.wholeRun(ctx, run))
}

// run finds a run by id: 404 outside the project, 403 where the key does not reach
// its environment.
func (s *Server) run(ctx context.Context, c *caller, id ID) (store.Run, error) {
	run, err := s.store.Run(ctx, c.row(id))
	if errors.Is(err, store.ErrNotFound) {
		return store.Run{}, notFound("run")
	}
	if err != nil {
		return store.Run{}, fmt.Errorf("reading run %s: %w", id, err)
	}
	return run, s.mustReachID(ctx, c, run.EnvironmentID)
}

// wholeRun is a run as it is shown alone, with its input.
func (s *Server) wholeRun(ctx context.Context, run store.Run) (shown Run, err error) {
	shown = showRun(run)
	if shown.Costing, err = s.runCosting(ctx, run); err != nil {
		return shown, err
	}
	if shown.Input, err = s.input(ctx, run.Key()); err != nil {
		return shown, err
	}
	headers, err := s.store.RunHeaders(ctx, run.Key())
	if err != nil {
		return shown, fmt.Errorf("reading the headers of run %s: %w", run.ID, err)
	}
	if len(headers) > 0 {
		if shown.Context, err = json.Marshal(map[string]any{"headers": headers}); err != nil {
			return shown, fmt.Errorf("showing the headers of run %s: %w", run.ID, err)
		}
	}
	input, isObject := shown.Input.(json.RawMessage)
	if !isObject || !bytes.HasPrefix(bytes.TrimSpace(input), []byte("{")) {
		return shown, nil
	}
	files, err := s.store.RunFiles(ctx, run.Key())
	if err != nil || len(files) == 0 {
		return shown, err
	}
	shown.Input, err = inputWithFiles(input, files)
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
	shown, err := showInput(contentType, body)
	if err != nil {
		return nil, fmt.Errorf("reading the input of run %s: %w", run, err)
	}
	return shown, nil
}

// showInput reads an input as it is shown, nil where it is too large, and closes it.
func showInput(contentType string, body io.ReadCloser) (any, error) {
	defer func() { _ = body.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(body, maxShownInput+1))
	if err != nil {
		return nil, err
	}
	media, _, _ := mime.ParseMediaType(contentType) // "" is shown as text
	switch {
	case len(data) == 0 || len(data) > maxShownInput:
		return nil, nil
	case media == "application/json" && json.Valid(data):
		return json.RawMessage(data), nil
	case media == fields.ContentType:
		object, err := fields.Object(data)
		return json.RawMessage(object), err
	default:
		return string(data), nil
	}
}

func showRun(r store.Run) Run {
	out := Run{
		ID: r.ID.String(), AgentName: r.AgentName, EnvironmentID: r.EnvironmentID.String(),
		DeploymentID: optID(r.DeploymentID), ConnectorID: optID(r.ConnectorID), ConnectorRunID: optID(r.ConnectorRunID),
		TestName: opt(r.TestName), Status: RunStatus(r.Status), Output: opt(r.Output), Error: opt(r.Error), Attempt: r.Attempt,
		QueuedAt: r.QueuedAt.UTC(), StartedAt: optTime(r.StartedAt), EndedAt: optTime(r.EndedAt),
		DurationMS: elapsed(r.StartedAt, r.EndedAt), TokenUsage: TokenUsage(r.Usage),
		Traces: []Span{}, Logs: []LogLine{},
	}
	if out.ErrorCode = opt(string(r.ErrorCode)); out.Error == nil {
		out.Error = out.ErrorCode
	}
	if r.Status == store.RunCompleted && out.Output == nil {
		out.Output = &r.Output // an empty answer is an answer
	}
	return out
}
