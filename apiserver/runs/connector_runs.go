// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

// ConnectorRuns serves the events and deliveries of connectors.
type ConnectorRuns struct {
	Service *rest.Service
	Store   ConnectorRunStore
	Runs    *API
}

// ConnectorRunStore has the methods of the store that connector runs use.
type ConnectorRunStore interface {
	store.History
	store.Statistics
	replay.Store
	// Attempts and AttemptsOf are methods of store.Deliveries.
	Attempts(ctx context.Context, delivery store.Key) (past []store.PastAttempt, next *time.Time, err error)
	AttemptsOf(ctx context.Context, deliveries []store.Key) (map[store.Key]store.DeliveryAttempts, error)
}

// ConnectorRunSection has the endpoints of connector runs; ConnectorRuns serves them.
var ConnectorRunSection = rest.Section[*ConnectorRuns]{
	Name: "connectors",
	Endpoints: []rest.EndpointOf[*ConnectorRuns]{
		listConnectorRuns, getConnectorRun, getConnectorStats, replayConnectorRun, testConnector,
	},
}

// ConnectorRun is the REST shape of a connector run.
type ConnectorRun struct {
	ID            string                  `json:"id" format:"uuid" doc:"The connector run's ID."`
	ConnectorID   string                  `json:"connector_id" format:"uuid" doc:"The connector."`
	Status        ConnectorRunStatus      `json:"status" doc:"The status."`
	TriggerType   TriggerType             `json:"trigger_type" doc:"The cause."`
	StartedAt     time.Time               `json:"started_at" doc:"When the event was accepted or the delivery was created."`
	EndedAt       *time.Time              `json:"ended_at" doc:"When the last agent run of the event, or the delivery, ended."`
	DurationMS    *int64                  `json:"duration_ms" doc:"Time from start to end in milliseconds; null before the end."`
	DispatchedTo  int                     `json:"dispatched_to" doc:"Number of agent runs that the event started."`
	RunIDs        []string                `json:"run_ids" format:"uuid" doc:"The agent runs, the run of the oldest link first."`
	Output        *string                 `json:"output" doc:"The output of the oldest link's run; null in lists and for deliveries."`
	Error         *string                 `json:"error" doc:"Why the connector run failed, was cancelled or was skipped. For a pending delivery: why the platform could not make the last attempt, which is repeated and not counted."`
	ReplayOf      *string                 `json:"replay_of" format:"uuid" doc:"The connector run that this one replays; null for an original."`
	RunID         *string                 `json:"run_id" format:"uuid" doc:"Outbound: the agent run that has the result, sends the payload, or had the failed delivery; null for tests and for other modes."`
	Kind          rest.Null[DeliveryKind] `json:"kind" doc:"Outbound: what the delivery carries; null for other modes."`
	Hops          *int                    `json:"hops" doc:"Outbound: number of platform deliveries in the chain, including this one, as in the X-Service-Hops header; null if the delivery was skipped, and for other modes."`
	Payload       any                     `json:"payload" doc:"Outbound, except results: the JSON body. Null in lists, for other modes, once the body is no longer stored, and for keys without runs.view."`
	Attempts      []Attempt               `json:"attempts" doc:"Outbound: the delivery attempts, oldest first; empty before the first attempt and for other modes."`
	NextAttemptAt *time.Time              `json:"next_attempt_at" doc:"Outbound: when the next attempt is due; null during an attempt, after the last attempt, and for other modes."`
}

func (ConnectorRun) Doc() string {
	return "An event that a connector received, a tick of its schedule, or a delivery."
}

// Attempt is one attempt to deliver.
type Attempt struct {
	Number          int       `json:"number" doc:"Number of the attempt, from 1."`
	At              time.Time `json:"at" doc:"When the attempt was made."`
	StatusCode      *int      `json:"status_code" doc:"The HTTP status of the response; null if there was no response."`
	ErrorClass      *string   `json:"error_class" doc:"The class of the failure."`
	Error           *string   `json:"error" doc:"The error."`
	DurationMS      *int64    `json:"duration_ms" doc:"Duration of the attempt in milliseconds."`
	ResponseExcerpt *string   `json:"response_excerpt" doc:"Beginning of the response body; null in lists, if there was no body, and if the project had reached its storage limit."`
}

func (Attempt) Doc() string { return "A delivery attempt." }

// ConnectorRunList is a page of connector runs, newest first.
type ConnectorRunList struct {
	Items  []ConnectorRun `json:"items" doc:"The connector runs of this page, newest first."`
	Total  int64          `json:"total" doc:"Number of matching connector runs on all pages."`
	Limit  int            `json:"limit" doc:"Maximum number of items on a page."`
	Offset int            `json:"offset" doc:"Number of newer connector runs before this page."`
}

func (ConnectorRunList) Doc() string { return "A page of connector runs." }

// ConnectorRunPath names a connector run.
type ConnectorRunPath struct {
	rest.ConnectorPath
	RunID rest.ID `path:"run_id" resource:"connector_run" doc:"The connector run."`
}

// ConnectorRunsQuery selects runs of a connector.
type ConnectorRunsQuery struct {
	rest.ConnectorPath
	rest.StatusFilter[ConnectorRunStatus]
	TimeRange   TimeRange   `query:"time_range" default:"7d" doc:"Only connector runs that started in this window before now."`
	TriggerType TriggerType `query:"trigger_type" doc:"Only connector runs with this cause."`
	RunID       rest.ID     `query:"run_id" resource:"run" doc:"Only the event that started this agent run, and deliveries of the run."`
	Limit       int         `query:"limit" default:"25" minimum:"1" maximum:"100" doc:"Maximum number of items on a page."`
	Offset      int         `query:"offset" default:"0" minimum:"0" doc:"Number of newer connector runs to skip."`
}

// timeRanges are the windows of statistics and lists.
var timeRanges = map[TimeRange]time.Duration{
	"1h": time.Hour, "6h": 6 * time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "30d": 30 * 24 * time.Hour,
}

var listConnectorRuns = rest.Handle((*ConnectorRuns).listConnectorRuns, rest.Endpoint{
	Method: rest.Get, Path: "/connectors/{connector_id}/runs", ID: "listConnectorRuns",
	Permissions: rest.Requires("connectors.view"), Errors: rest.ReadErrors,
	Summary: "List the runs of a connector",
	Doc: "Returns the events that the connector received, the ticks of its schedule, and the deliveries of an outbound " +
		"connector. The newest come first, without outputs and response excerpts. Runs of a deleted connector are listed while " +
		"they are stored.",
	Example:      rest.Example{Path: "/connectors/{connector}/runs"},
	ReadsHistory: true,
})

func (s *ConnectorRuns) listConnectorRuns(ctx context.Context, c *rest.Caller, in *ConnectorRunsQuery) (rest.Response[ConnectorRunList], error) {
	connector, err := s.connectorKey(ctx, c, in.ConnectorID)
	if err != nil {
		return rest.Response[ConnectorRunList]{}, err
	}
	if !in.RunID.IsZero() {
		if _, err := s.Runs.run(ctx, c, in.RunID); err != nil {
			return rest.Response[ConnectorRunList]{}, err
		}
	}
	runs, total, err := s.Store.ListConnectorRuns(ctx, store.ConnectorRunQuery{
		Connector: connector, Since: timeRanges[in.TimeRange], Statuses: rest.StatusesOf[store.ConnectorRunStatus](in.StatusFilter),
		Trigger: store.TriggerType(in.TriggerType), Run: uuid.UUID(in.RunID), Limit: in.Limit, Offset: in.Offset,
	})
	if err != nil {
		return rest.Response[ConnectorRunList]{}, fmt.Errorf("listing the runs of connector %s: %w", connector.ID, err)
	}
	attempts, err := s.attemptsOf(ctx, runs)
	if err != nil {
		return rest.Response[ConnectorRunList]{}, err
	}
	items := rest.ShowAll(runs, func(r store.ConnectorRun) ConnectorRun {
		shown := showConnectorRun(r)
		of := attempts[r.Key()]
		shown.setAttempts(of.Past, of.Next)
		return shown
	})
	return rest.NewResponse(ConnectorRunList{Items: items, Total: total, Limit: in.Limit, Offset: in.Offset}, nil)
}

// attemptsOf returns the attempts of the deliveries among connector runs.
func (s *ConnectorRuns) attemptsOf(ctx context.Context, runs []store.ConnectorRun) (map[store.Key]store.DeliveryAttempts, error) {
	var deliveries []store.Key
	for _, r := range runs {
		if r.Trigger == store.TriggerOutbound {
			deliveries = append(deliveries, r.Key())
		}
	}
	if len(deliveries) == 0 {
		return nil, nil
	}
	attempts, err := s.Store.AttemptsOf(ctx, deliveries)
	if err != nil {
		return nil, fmt.Errorf("reading the attempts of a page of deliveries: %w", err)
	}
	return attempts, nil
}

// connectorKey returns the key of a connector whose history is requested. A deleted connector is found by its runs,
// which also have its environment.
func (s *ConnectorRuns) connectorKey(ctx context.Context, c *rest.Caller, id rest.ID) (store.Key, error) {
	conn, err := s.Service.Connector(ctx, c, id)
	if err == nil {
		return c.ObjectKey(conn), nil
	}
	if !rest.IsNotFound(err) {
		return store.Key{}, err
	}
	newest, _, failed := s.Store.ListConnectorRuns(ctx, store.ConnectorRunQuery{Connector: c.RowKey(id), Limit: 1})
	if failed != nil {
		return store.Key{}, fmt.Errorf("looking for runs of connector %s: %w", id, failed)
	}
	if len(newest) == 0 {
		return store.Key{}, err
	}
	return c.RowKey(id), s.Service.CheckReachID(ctx, c, newest[0].EnvironmentID)
}

var getConnectorRun = rest.Handle((*ConnectorRuns).getConnectorRun, rest.Endpoint{
	Method: rest.Get, Path: "/connectors/{connector_id}/runs/{run_id}", ID: "getConnectorRun",
	Permissions: rest.Requires("connectors.view"), Errors: rest.ReadErrors,
	Summary: "Get a run of a connector",
	Doc: "Returns the event with its outcome; `output` is the output of the oldest link's run. For an outbound connector, " +
		"returns the delivery with its attempts.",
	Example: rest.Example{Path: "/connectors/{connector}/runs/{event}"},
})

func (s *ConnectorRuns) getConnectorRun(ctx context.Context, c *rest.Caller, in *ConnectorRunPath) (rest.Response[ConnectorRun], error) {
	run, err := s.connectorRun(ctx, c, in)
	if err != nil {
		return rest.Response[ConnectorRun]{}, err
	}
	shown, err := s.wholeConnectorRun(ctx, run)
	if err != nil {
		return rest.Response[ConnectorRun]{}, err
	}
	err = s.showPayload(ctx, c, run, &shown)
	return rest.NewResponse(shown, err)
}

// connectorRun finds the run of a connector in a path. The connector can be deleted.
func (s *ConnectorRuns) connectorRun(ctx context.Context, c *rest.Caller, in *ConnectorRunPath) (store.ConnectorRun, error) {
	_, gone := s.Service.Connector(ctx, c, in.ConnectorID)
	if gone != nil && !rest.IsNotFound(gone) {
		return store.ConnectorRun{}, gone
	}
	run, err := s.Store.ConnectorRun(ctx, c.RowKey(in.RunID))
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return store.ConnectorRun{}, fmt.Errorf("reading connector run %s: %w", in.RunID, err)
	case err == nil && run.ConnectorID == uuid.UUID(in.ConnectorID):
		if gone != nil {
			err = s.Service.CheckReachID(ctx, c, run.EnvironmentID)
		}
		return run, err
	case gone != nil:
		return store.ConnectorRun{}, gone
	}
	return store.ConnectorRun{}, rest.NotFound("connector run")
}

// wholeConnectorRun returns a connector run with its output or its attempts.
func (s *ConnectorRuns) wholeConnectorRun(ctx context.Context, run store.ConnectorRun) (ConnectorRun, error) {
	shown := showConnectorRun(run)
	if run.Trigger == store.TriggerOutbound {
		return shown, s.showAttempts(ctx, run.Key(), &shown)
	}
	outcome, err := s.Store.Outcome(ctx, run.Key())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return shown, fmt.Errorf("reading the outcome of connector run %s: %w", run.ID, err)
	}
	if len(outcome.Runs) > 0 && outcome.Runs[0].ID == run.RunIDs[0] { // otherwise the content of the first run is erased
		shown.Output = showRun(outcome.Runs[0]).Output
	}
	return shown, nil
}

func showConnectorRun(r store.ConnectorRun) ConnectorRun {
	out := ConnectorRun{
		ID: r.ID.String(), ConnectorID: r.ConnectorID.String(), Status: ConnectorRunStatus(r.Status), TriggerType: TriggerType(r.Trigger),
		StartedAt: r.StartedAt.UTC(), EndedAt: rest.OptionalTime(r.EndedAt), DurationMS: rest.ElapsedMS(&r.StartedAt, r.EndedAt),
		DispatchedTo: len(r.RunIDs), RunIDs: rest.IDTexts(r.RunIDs), Error: rest.Optional(r.Error), Attempts: []Attempt{},
		Kind: rest.OptionalWord[DeliveryKind](r.Kind),
	}
	if r.Hops > 0 {
		out.Hops = &r.Hops
	}
	if r.ReplayOf != nil {
		out.ReplayOf = rest.Optional(r.ReplayOf.String())
	}
	if r.Trigger == store.TriggerOutbound { // the event started no run
		out.DispatchedTo, out.RunIDs = 0, []string{}
		if len(r.RunIDs) > 0 {
			out.RunID = rest.Optional(r.RunIDs[0].String())
		}
	}
	return out
}

// showPayload fills in the body of a delivery that has no run, if the caller has runs.view.
func (s *ConnectorRuns) showPayload(ctx context.Context, c *rest.Caller, run store.ConnectorRun, out *ConnectorRun) error {
	if run.Kind == "" || run.Kind == store.DeliverResult {
		return nil
	}
	if may, err := s.Service.HasPermission(ctx, c, "runs.view"); err != nil || !may {
		return err
	}
	in, err := s.Store.EventInput(ctx, run.Key())
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the payload of delivery %s: %w", run.ID, err)
	}
	body := io.NopCloser(bytes.NewReader(in.Data))
	if in.Blob != nil {
		body, err = s.Store.OpenBlob(ctx, store.Key{ProjectID: run.ProjectID, ID: *in.Blob})
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil {
		out.Payload, err = showInput(in.ContentType, body)
	}
	if err != nil {
		return fmt.Errorf("reading the payload of delivery %s: %w", run.ID, err)
	}
	return nil
}

// showAttempts fills in the attempts of a delivery.
func (s *ConnectorRuns) showAttempts(ctx context.Context, delivery store.Key, out *ConnectorRun) error {
	attempts, next, err := s.Store.Attempts(ctx, delivery)
	if err != nil {
		return fmt.Errorf("reading the attempts of delivery %s: %w", delivery.ID, err)
	}
	out.setAttempts(attempts, next)
	return nil
}

// setAttempts fills in the attempts of a delivery and the time of the next one.
func (out *ConnectorRun) setAttempts(attempts []store.PastAttempt, next *time.Time) {
	for _, a := range attempts {
		shown := Attempt{Number: a.Number, At: a.At.UTC(), ErrorClass: rest.Optional(a.ErrorClass), Error: rest.Optional(a.Error), ResponseExcerpt: rest.Optional(a.Response)}
		if a.StatusCode != 0 {
			shown.StatusCode = &a.StatusCode
		}
		if a.ErrorClass != store.ErrorClassLost {
			took := a.Duration.Milliseconds()
			shown.DurationMS = &took
		}
		out.Attempts = append(out.Attempts, shown)
	}
	out.NextAttemptAt = rest.OptionalTime(next)
}

// ConnectorStatsQuery selects the runs of a connector that are counted.
type ConnectorStatsQuery struct {
	rest.ConnectorPath
	TimeRange TimeRange `query:"time_range" default:"7d" doc:"Only connector runs that started in this window before now."`
}

// ConnectorStats are statistics of a connector's runs in the window.
type ConnectorStats struct {
	TimeRange         TimeRange                     `json:"time_range" doc:"The window before now."`
	TotalRuns         int64                         `json:"total_runs" doc:"All connector runs, whatever their status."`
	CompletedRuns     int64                         `json:"completed_runs" doc:"Connector runs with the status completed."`
	FailedRuns        int64                         `json:"failed_runs" doc:"Connector runs with the status failed."`
	AverageDurationMS *int64                        `json:"average_duration_ms" doc:"Average duration of completed and failed connector runs in milliseconds; null if there are none."`
	LastRunStatus     rest.Null[ConnectorRunStatus] `json:"last_run_status" doc:"The status of the newest stored connector run; null if there is none."`
}

func (ConnectorStats) Doc() string { return "Statistics of a connector's runs in the window." }

var getConnectorStats = rest.Handle((*ConnectorRuns).getConnectorStats, rest.Endpoint{
	Method: rest.Get, Path: "/connectors/{connector_id}/stats", ID: "getConnectorStats",
	Permissions: rest.Requires("connectors.view"), Errors: rest.ReadErrors,
	Summary: "Get the statistics of a connector",
	Doc: "Counts the events and deliveries that started in the window, including open ones. The counts are exact and from a " +
		"single point in time. If the window starts in an hour that is older than the retention, that hour is not counted. " +
		"`last_run_status` is the status of the newest stored run.",
	Example:      rest.Example{Path: "/connectors/{connector}/stats?time_range=24h"},
	ReadsHistory: true,
})

func (s *ConnectorRuns) getConnectorStats(ctx context.Context, c *rest.Caller, in *ConnectorStatsQuery) (rest.Response[ConnectorStats], error) {
	connector, err := s.connectorKey(ctx, c, in.ConnectorID)
	if err != nil {
		return rest.Response[ConnectorStats]{}, err
	}
	found, err := s.Store.ConnectorStatistics(ctx, store.ConnectorStatisticsQuery{Connector: connector, Since: s.Service.Now().Add(-timeRanges[in.TimeRange])})
	if err != nil {
		return rest.Response[ConnectorStats]{}, fmt.Errorf("reading the statistics of connector %s: %w", connector.ID, err)
	}
	return rest.NewResponse(ConnectorStats{
		TimeRange: in.TimeRange, TotalRuns: found.Total(), CompletedRuns: found.Runs[store.ConnectorRunCompleted],
		FailedRuns: found.Runs[store.ConnectorRunFailed], AverageDurationMS: rest.DurationMS(found.AverageDuration),
		LastRunStatus: rest.OptionalWord[ConnectorRunStatus](found.Last),
	}, nil)
}
