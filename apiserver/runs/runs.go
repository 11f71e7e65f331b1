// SPDX-License-Identifier: Apache-2.0

// Package runs serves agent runs, the runs of connectors (events and deliveries), and replays.
package runs

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
	"github.com/agentplatform/agentplatform/apiserver/costs"
	"github.com/agentplatform/agentplatform/apiserver/history"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// API serves agent runs.
type API struct {
	Service       *rest.Service
	Store         Store
	Deployments   deploymentLookup
	ConnectorRuns *ConnectorRuns
	Costs         *costs.Reader
	// Files limits the files that are sent at the same time.
	Files    *quota.SlotSet
	Searches *history.Searches
}

// deploymentLookup finds deployments.
type deploymentLookup interface {
	Deployment(ctx context.Context, c *rest.Caller, id rest.ID) (store.Deployment, error)
}

// Store has the methods of the store that agent runs use.
type Store interface {
	store.Catalog
	store.History
	store.Files
	store.SavedFiles
	store.Eraser
	// Deployment is a method of store.Deployments, and Cancel one of store.Dispatch.
	Deployment(ctx context.Context, key store.Key) (store.Deployment, error)
	Cancel(ctx context.Context, run store.Key, code runerror.Code, reason string) error
}

// Section has the endpoints of agent runs; API serves them.
var Section = rest.Section[*API]{
	Name: "runs", Doc: "Runs of agents.",
	Endpoints: []rest.EndpointOf[*API]{
		listRuns, getRun, readRunFile, readSavedFile, cancelRun, eraseRun, streamRunEvents,
	},
}

// SavedFile is the REST shape of a file that a run saved.
type SavedFile struct {
	ID       string `json:"id" doc:"The ID of the file in its run." example:"s1"`
	Name     string `json:"name" doc:"The name of the file." example:"invoice.pdf"`
	Size     int64  `json:"size" doc:"The size in bytes."`
	MIMEType string `json:"mime_type" doc:"The type that the sender of the file declared." example:"application/pdf"`
}

func (SavedFile) Doc() string { return "A file that a run saved." }

// Run is the REST shape of an agent run.
type Run struct {
	ID               string           `json:"id" format:"uuid" doc:"The run's ID."`
	AgentName        string           `json:"agent_name" doc:"The agent." example:"support"`
	EnvironmentID    string           `json:"environment_id" format:"uuid" doc:"The environment of the run."`
	DeploymentID     *string          `json:"deployment_id" format:"uuid" doc:"The deployment that executes the run; null until a runner has started it."`
	ConnectorID      *string          `json:"connector_id" format:"uuid" doc:"The connector whose event started the run."`
	ConnectorRunID   *string          `json:"connector_run_id" format:"uuid" doc:"The event that started the run."`
	ParentRunID      *string          `json:"parent_run_id" format:"uuid" doc:"The run that started this run; null in this release."`
	Status           RunStatus        `json:"status" doc:"The status."`
	Input            any              `json:"input" doc:"The input as JSON, else as text; null in lists and if it is larger than 1 MiB. Its fields files and file_issues describe the attachments."`
	Output           *string          `json:"output" doc:"The agent's output; null in lists."`
	Error            *string          `json:"error" doc:"Why the run failed, as a text."`
	ErrorCode        *string          `json:"error_code" doc:"Why the run failed, as a code." example:"agent_not_found"`
	FinishReason     *string          `json:"finish_reason" doc:"Why the last model answer of the run ended: stop, tool_calls, length (a limit of tokens cut it off), content_filter, or other. Null without an answer, before the end, and if no runner reported the end." example:"stop"`
	Context          rest.Object      `json:"context" doc:"What the run sees besides its input: headers, the headers of the webhook request that the connector selects, and what scripts set, once the run has ended. Null if there is nothing. Lists have no headers, and null for a context of more than 4 KiB."`
	TestName         *string          `json:"test_name" doc:"The A/B variant that executes the run; null for the agent itself and until a runner has reported it." example:"short"`
	GuardrailOutcome *string          `json:"guardrail_outcome" doc:"The outcome of guardrails; null in this release."`
	Attempt          int              `json:"attempt" doc:"How often a runner has claimed the run."`
	QueuedAt         time.Time        `json:"queued_at" doc:"When the event was accepted."`
	StartedAt        *time.Time       `json:"started_at" doc:"When a runner first claimed the run."`
	EndedAt          *time.Time       `json:"ended_at" doc:"When the status became final."`
	DurationMS       *int64           `json:"duration_ms" doc:"Time from start to end in milliseconds; null before the end."`
	TokenUsage       costs.TokenUsage `json:"token_usage" doc:"Model tokens of the run."`
	Traces           []Span           `json:"traces" doc:"The steps of the run so far, each after the step that it is a part of; at most 2,000. Only a single run has them."`
	MoreTraces       int              `json:"more_traces" doc:"Number of steps beyond the limit."`
	Logs             []LogLine        `json:"logs" doc:"The log lines of the run so far; at most 500. Only a single run has them."`
	MoreLogs         int              `json:"more_logs" doc:"Number of log lines beyond the limits."`
	SavedFiles       []SavedFile      `json:"saved_files" doc:"The files that the run has saved so far; at most 100. Only a single run has them."`
	TracesTruncated  bool             `json:"traces_truncated" doc:"Whether the latest steps and log lines are missing, because the journal of the run is larger than 8 MiB."`
	costs.Costing
}

func (Run) Doc() string { return "A run of an agent.\n\n" + runerror.Describe() }

// RunPath names a run.
type RunPath struct {
	rest.ProjectPath
	RunID rest.ID `path:"run_id" resource:"run" doc:"The agent run."`
}

// RunsQuery selects runs.
type RunsQuery struct {
	rest.ProjectPath
	rest.StatusFilter[history.RunStatusFilter]
	EnvironmentID rest.ID                `query:"environment_id" resource:"environment" doc:"Only runs in this environment. Default: all environments that the key reaches."`
	AgentName     string                 `query:"agent_name" doc:"Only runs of this agent." example:"support"`
	TestName      string                 `query:"test_name" doc:"Only runs of this A/B variant; __base__ stands for runs without a variant." example:"short"`
	DeploymentID  rest.ID                `query:"deployment_id" resource:"deployment" doc:"Only runs that this deployment executed."`
	ConnectorID   rest.ID                `query:"connector_id" resource:"connector" doc:"Only runs that events of this connector started."`
	EventID       rest.ID                `query:"connector_run_id" resource:"connector_run" doc:"Only runs that this event started."`
	TimeRange     history.AgentTimeRange `query:"time_range" default:"all" doc:"Only runs that were queued in this window. Ignored if start_date is set."`
	StartDate     rest.Moment            `query:"start_date" doc:"Only runs that were queued at this time or later."`
	EndDate       rest.Moment            `query:"end_date" doc:"Only runs that were queued before this time."`
	Search        string                 `query:"search" maxLength:"1024" doc:"Only runs that match all search terms or the CEL condition. Put a phrase into double quotes." example:"input.amount >= 40 && status == \"failed\""`
	rest.PageQuery
}

func (in *RunsQuery) Searches() bool { return in.Search != "" }

// RunList is a page of runs, newest first.
type RunList struct {
	Items      []Run   `json:"items" doc:"The runs of this page, newest first."`
	NextCursor *string `json:"next_cursor" doc:"The cursor of the next page; null on the last page."`
}

func (RunList) Doc() string { return "A page of runs." }

var listRuns = rest.Handle((*API).listRuns, rest.Endpoint{
	Method: rest.Get, Path: "/runs", ID: "listRuns",
	Permissions: rest.Requires("runs.view"), Errors: rest.ReadErrors,
	Summary: "List agent runs",
	Doc: "Returns the newest runs first, without inputs and outputs. Keys that reach all environments can also list the runs of " +
		"a deleted environment. Runs that arrive while you read pages do not shift the pages.\n\n" +
		"A page covers at most 20,000 runs, and at most two seconds of a search. If few runs match, a page can be short or " +
		"empty; `next_cursor` says whether there are more. A search without progress in that time returns 422 " +
		"`search_too_broad`, or 503 `busy` if it spent most of the time waiting for other searches. A project can run four " +
		"searches at a time on each replica, or fewer if the replica allows it fewer list queries. Further searches wait for a " +
		"while and then return 429.\n\n" +
		"`search` is a CEL condition on `input`, `output`, `error`, `error_code`, `status`, `context`, `agent_name`, " +
		"`test_name`, `deployment_id`, `connector_id`, `attempt` and `duration_ms`, or else a list of search terms. A search " +
		"covers the error, the context that scripts set, and the first 64 KiB of the input and of the output. It does not find a run if the condition cannot " +
		"be evaluated or costs too much.",
	Example:      rest.Example{Path: "/runs"},
	ReadsHistory: true,
})

func (s *API) listRuns(ctx context.Context, c *rest.Caller, in *RunsQuery) (rest.Response[RunList], error) {
	q := store.RunQuery{
		ProjectID: c.ProjectID, AgentName: in.AgentName, TestName: in.TestName, Limit: in.ReadLimit(),
		Statuses:     rest.StatusesOf[store.RunStatus](in.StatusFilter),
		DeploymentID: uuid.UUID(in.DeploymentID), ConnectorID: uuid.UUID(in.ConnectorID), ConnectorRunID: uuid.UUID(in.EventID),
	}
	var (
		end func()
		err error
	)
	if q.Since, q.Until, err = history.Window(in.TimeRange, in.StartDate, in.EndDate, s.Service.Now()); err != nil {
		return rest.Response[RunList]{}, err
	}
	if q.Search, end, err = s.Searches.Begin(ctx, c, in.Search); err != nil {
		return rest.Response[RunList]{}, err
	}
	defer end()
	if q.Before, err = in.Before(rest.RunCursor); err != nil {
		return rest.Response[RunList]{}, err
	}
	if q.EnvironmentIDs, err = s.runEnvironments(ctx, c, in.EnvironmentID); err != nil {
		return rest.Response[RunList]{}, err
	}
	if q.EnvironmentIDs != nil && len(q.EnvironmentIDs) == 0 {
		return rest.NewResponse(RunList{Items: []Run{}}, nil)
	}
	runs, next, err := s.Store.ListRuns(ctx, q)
	if err != nil {
		return rest.Response[RunList]{}, fmt.Errorf("listing runs: %w", err)
	}
	if len(runs) == 0 && next == nil && in.Cursor == "" {
		if err := s.mustKnow(ctx, c, in); err != nil {
			return rest.Response[RunList]{}, err
		}
	}
	runs, cursor := rest.CutPage(in.PageQuery, rest.RunCursor, runs, next, func(r store.Run) uuid.UUID { return r.ID })
	return rest.NewResponse(RunList{Items: rest.ShowAll(runs, showListedRun), NextCursor: cursor}, nil)
}

// showListedRun returns the shape of a run in lists, which have no outputs.
func showListedRun(r store.Run) Run {
	item := showRun(r)
	item.Output = nil
	return item
}

// mustKnow returns 404 if the object of a list has no runs and does not exist. A deleted object may have runs that the
// filters exclude.
func (s *API) mustKnow(ctx context.Context, c *rest.Caller, in *RunsQuery) error {
	if !in.DeploymentID.IsZero() {
		if _, err := s.Deployments.Deployment(ctx, c, in.DeploymentID); err != nil {
			return err
		}
	}
	if !in.ConnectorID.IsZero() {
		if _, err := s.ConnectorRuns.connectorKey(ctx, c, in.ConnectorID); err != nil {
			return err
		}
	}
	if in.EventID.IsZero() {
		return nil
	}
	run, err := s.Store.ConnectorRun(ctx, c.RowKey(in.EventID))
	if errors.Is(err, store.ErrNotFound) {
		return rest.NotFound("connector run")
	}
	if err != nil {
		return fmt.Errorf("reading connector run %s: %w", in.EventID, err)
	}
	return s.Service.CheckReachID(ctx, c, run.EnvironmentID)
}

// runEnvironments returns the environments whose runs are listed; nil means all.
func (s *API) runEnvironments(ctx context.Context, c *rest.Caller, id rest.ID) ([]uuid.UUID, error) {
	var reached []v1alpha1.Environment
	switch {
	case !id.IsZero():
		e, err := s.Service.Environment(ctx, c, id)
		if rest.IsNotFound(err) && c.ReachesAll() {
			return s.deletedEnvironment(ctx, c, id, err)
		}
		if err != nil {
			return nil, err
		}
		reached = []v1alpha1.Environment{*e}
	case c.ReachesAll():
		return nil, nil
	default:
		var err error
		if reached, err = s.Service.Environments(ctx, c); err != nil {
			return nil, err
		}
	}
	ids := []uuid.UUID{}
	for i := range reached {
		ids = append(ids, c.ObjectKey(&reached[i]).ID)
	}
	return ids, nil
}

// deletedEnvironment finds a deleted environment by its runs. It returns 404 if it had none.
func (s *API) deletedEnvironment(ctx context.Context, c *rest.Caller, id rest.ID, none error) ([]uuid.UUID, error) {
	had, err := s.Store.HasRuns(ctx, c.RowKey(id))
	if err != nil {
		return nil, fmt.Errorf("looking for runs of environment %s: %w", id, err)
	}
	if !had {
		return nil, none
	}
	return []uuid.UUID{uuid.UUID(id)}, nil
}

var getRun = rest.Handle((*API).getRun, rest.Endpoint{
	Method: rest.Get, Path: "/runs/{run_id}", ID: "getRun",
	Permissions: rest.Requires("runs.view"), Errors: rest.ReadErrors,
	Summary: "Get an agent run",
	Doc: "Returns the run with its input and output, its steps and its log lines. They are computed from the journal of the run, so " +
		"an open run shows its steps so far. The platform redacts values of sensitive variables. The steps and log lines come from " +
		"the first 8 MiB of the journal; `traces_truncated` says whether there is more.",
	Example:      rest.Example{Path: "/runs/{run}"},
	ReadsHistory: true,
})

func (s *API) getRun(ctx context.Context, c *rest.Caller, in *RunPath) (rest.Response[Run], error) {
	run, err := s.run(ctx, c, in.RunID)
	if err != nil {
		return rest.Response[Run]{}, err
	}
	shown, err := s.wholeRun(ctx, run)
	if err == nil {
		err = s.addTrace(ctx, run, &shown)
	}
	return rest.NewResponse(shown, err)
}

// run finds a run by ID. It returns 404 outside the project, and 403 if the key does not reach its environment.
func (s *API) run(ctx context.Context, c *rest.Caller, id rest.ID) (store.Run, error) {
	run, err := s.Store.Run(ctx, c.RowKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return store.Run{}, rest.NotFound("run")
	}
	if err != nil {
		return store.Run{}, fmt.Errorf("reading run %s: %w", id, err)
	}
	return run, s.Service.CheckReachID(ctx, c, run.EnvironmentID)
}

// wholeRun returns a run with its input, without its steps.
func (s *API) wholeRun(ctx context.Context, run store.Run) (shown Run, err error) {
	shown = showRun(run)
	if shown.Costing, err = s.Costs.RunCosting(ctx, run); err != nil {
		return shown, err
	}
	if shown.Input, err = s.input(ctx, run.Key()); err != nil {
		return shown, err
	}
	headers, err := s.Store.RunHeaders(ctx, run.Key())
	if err != nil {
		return shown, fmt.Errorf("reading the headers of run %s: %w", run.ID, err)
	}
	if shown.Context, err = showContext(run.Context, headers); err != nil {
		return shown, fmt.Errorf("showing the context of run %s: %w", run.ID, err)
	}
	saved, err := s.Store.RunSavedFiles(ctx, run.Key())
	if err != nil {
		return shown, fmt.Errorf("reading the saved files of run %s: %w", run.ID, err)
	}
	for _, f := range saved {
		shown.SavedFiles = append(shown.SavedFiles, SavedFile{f.ID, f.Name, f.Size, f.MIMEType})
	}
	input, isObject := shown.Input.(json.RawMessage)
	if !isObject || !bytes.HasPrefix(bytes.TrimSpace(input), []byte("{")) {
		return shown, nil
	}
	files, err := s.Store.RunFiles(ctx, run.Key())
	if err != nil || len(files) == 0 {
		return shown, err
	}
	shown.Input, err = inputWithFiles(input, files)
	return shown, err
}

// showContext joins what scripts set in the context of a run and its headers, which scripts cannot set. It returns nil
// without either.
func showContext(set json.RawMessage, headers map[string]string) (rest.Object, error) {
	if len(headers) == 0 {
		return rest.Object(set), nil
	}
	values := map[string]any{}
	if len(set) > 0 {
		if err := exactjson.Decode(set, &values); err != nil {
			return nil, err
		}
	}
	values["headers"] = headers
	return json.Marshal(values)
}

// input returns the input of a run, or nil if it is too large or deleted.
func (s *API) input(ctx context.Context, run store.Key) (any, error) {
	contentType, body, err := s.Store.RunInput(ctx, run)
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

// showInput reads an input and closes it. It returns nil if the input is too large.
func showInput(contentType string, body io.ReadCloser) (any, error) {
	defer func() { _ = body.Close() }() // the input was only read
	data, err := io.ReadAll(io.LimitReader(body, maxShownInput+1))
	if err != nil {
		return nil, err
	}
	media, _, _ := mime.ParseMediaType(contentType) // "" is a text
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
		DeploymentID: rest.OptionalID(r.DeploymentID), ConnectorID: rest.OptionalID(r.ConnectorID), ConnectorRunID: rest.OptionalID(r.ConnectorRunID),
		TestName: rest.Optional(r.TestName), Status: RunStatus(r.Status), Output: rest.Optional(r.Output), Error: rest.Optional(r.Error), Attempt: r.Attempt,
		QueuedAt: r.QueuedAt.UTC(), StartedAt: rest.OptionalTime(r.StartedAt), EndedAt: rest.OptionalTime(r.EndedAt),
		DurationMS: rest.ElapsedMS(r.StartedAt, r.EndedAt), TokenUsage: costs.TokenUsage(r.Usage),
		FinishReason: rest.Optional(r.FinishReason), Context: rest.Object(r.Context), Traces: []Span{}, Logs: []LogLine{}, SavedFiles: []SavedFile{},
	}
	if out.ErrorCode = rest.Optional(string(r.ErrorCode)); out.Error == nil {
		out.Error = out.ErrorCode
	}
	if r.Status == store.RunCompleted && out.Output == nil {
		out.Output = &r.Output // an empty response is a response
	}
	return out
}
