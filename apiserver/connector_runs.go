// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// ConnectorRun is the REST shape of a connector run.
type ConnectorRun struct {
	ID            string             `json:"id" format:"uuid" doc:"The connector run's id."`
	ConnectorID   string             `json:"connector_id" format:"uuid" doc:"The connector."`
	Status        ConnectorRunStatus `json:"status" doc:"Where it stands."`
	TriggerType   TriggerType        `json:"trigger_type" doc:"What caused it."`
	StartedAt     time.Time          `json:"started_at" doc:"When it was accepted."`
	EndedAt       *time.Time         `json:"ended_at" doc:"When the last of its agent runs ended, or the delivery did."`
	DurationMS    *int64             `json:"duration_ms" doc:"From start to end in milliseconds; null until it ended."`
	DispatchedTo  int                `json:"dispatched_to" doc:"How many agent runs it started."`
	RunIDs        []string           `json:"run_ids" format:"uuid" doc:"The agent runs, oldest link first."`
	Output        *string            `json:"output" doc:"The output of the oldest link's run; null in lists, and of deliveries."`
	Error         *string            `json:"error" doc:"Why it failed, was cancelled or was skipped; of a delivery that is pending, why the platform could not make the last attempt, which is repeated and not counted."`
	ReplayOf      *string            `json:"replay_of" format:"uuid" doc:"The connector run of which it is a replay; null of an original."`
	RunID         *string            `json:"run_id" format:"uuid" doc:"Outbound: the agent run whose result is sent, which sends the payload, or whose delivery has failed; null of tests and of others."`
	Kind          Null[DeliveryKind] `json:"kind" doc:"Outbound: what is sent; null of others."`
	Hops          *int               `json:"hops" doc:"Outbound: by how many deliveries of platforms it has come, itself among them, as its header X-Service-Hops says; null of one that was skipped, and of others."`
	Payload       any                `json:"payload" doc:"Outbound, but for results: the JSON body that is sent. Null in lists, of others, once it is not stored any more, and for a key without runs.view."`
	Attempts      []Attempt          `json:"attempts" doc:"Outbound: the attempts to deliver, oldest first; empty before the first, and of others."`
	NextAttemptAt *time.Time         `json:"next_attempt_at" doc:"Outbound: when the next one is due; null of others, while one is under way, and once no more is made."`
}

// Attempt is one attempt to deliver.
type Attempt struct {
	Number          int       `json:"number" doc:"Which attempt it is, from 1."`
	At              time.Time `json:"at" doc:"When it was made."`
	StatusCode      *int      `json:"status_code" doc:"The HTTP status of the answer; null without one."`
	ErrorClass      *string   `json:"error_class" doc:"What kind of failure it was."`
	Error           *string   `json:"error" doc:"What went wrong."`
	DurationMS      *int64    `json:"duration_ms" doc:"How long it took in milliseconds."`
	ResponseExcerpt *string   `json:"response_excerpt" doc:"How the answer's body begins; null in lists, without one, and of attempts made while the project has stored as much as it may."`
}

// ConnectorRunList is a page of connector runs, newest first.
type ConnectorRunList struct {
	Items  []ConnectorRun `json:"items" doc:"The connector runs of this page, newest first."`
	Total  int64          `json:"total" doc:"How many match on all pages."`
	Limit  int            `json:"limit" doc:"The most items of a page."`
	Offset int            `json:"offset" doc:"How many newer ones come before this page."`
}

// ConnectorRunPath names a connector run.
type ConnectorRunPath struct {
	ConnectorPath
	RunID ID `path:"run_id" doc:"The connector run."`
}

// ConnectorRunsQuery selects runs of a connector.
type ConnectorRunsQuery struct {
	ConnectorPath
	StatusFilter[ConnectorRunStatus]
	TimeRange   TimeRange   `query:"time_range" default:"7d" doc:"Only those that started in this window before now."`
	TriggerType TriggerType `query:"trigger_type" doc:"Only those with this cause."`
	RunID       ID          `query:"run_id" doc:"Only what started this agent run, and deliveries of it."`
	Limit       int         `query:"limit" default:"25" minimum:"1" maximum:"100" doc:"The most items of a page."`
	Offset      int         `query:"offset" default:"0" minimum:"0" doc:"How many newer ones to leave out."`
}

// timeRanges are the windows of statistics and lists.
var timeRanges = map[TimeRange]time.Duration{
	"1h": time.Hour, "6h": 6 * time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "30d": 30 * 24 * time.Hour,
}

func (s *Server) listConnectorRuns(ctx context.Context, c *caller, in *ConnectorRunsQuery) (answer[ConnectorRunList], error) {
	page := ConnectorRunList{Items: []ConnectorRun{}, Limit: in.Limit, Offset: in.Offset}
	connector, err := s.connectorKey(ctx, c, in.ConnectorID)
	if err != nil {
		return answer[ConnectorRunList]{}, err
	}
	if !in.RunID.IsZero() {
		if _, err := s.run(ctx, c, in.RunID); err != nil {
			return answer[ConnectorRunList]{}, err
		}
	}
	runs, total, err := s.store.ListConnectorRuns(ctx, store.ConnectorRunQuery{
		Connector: connector, Since: timeRanges[in.TimeRange], Statuses: statusesOf[store.ConnectorRunStatus](in.StatusFilter),
		Trigger: store.TriggerType(in.TriggerType), Run: uuid.UUID(in.RunID), Limit: in.Limit, Offset: in.Offset,
	})
	if err != nil {
		return answer[ConnectorRunList]{}, fmt.Errorf("listing the runs of connector %s: %w", connector.ID, err)
	}
	attempts, err := s.attemptsOf(ctx, runs)
	if err != nil {
		return answer[ConnectorRunList]{}, err
	}
	for _, r := range runs {
		shown := showConnectorRun(r)
		of := attempts[r.Key()]
		shown.setAttempts(of.Past, of.Next)
		page.Items = append(page.Items, shown)
	}
	page.Total = total
	return plainly(page, nil)
}

// attemptsOf are those of the deliveries among connector runs.
func (s *Server) attemptsOf(ctx context.Context, runs []store.ConnectorRun) (map[store.Key]store.DeliveryAttempts, error) {
	var deliveries []store.Key
	for _, r := range runs {
		if r.Trigger == store.TriggerOutbound {
			deliveries = append(deliveries, r.Key())
		}
	}
	if len(deliveries) == 0 {
		return nil, nil
	}
	attempts, err := s.store.AttemptsOf(ctx, deliveries)
	if err != nil {
		return nil, fmt.Errorf("reading the attempts of a page of deliveries: %w", err)
	}
	return attempts, nil
}

// connectorKey is the key of a connector whose history is asked for. One that is gone, which had
// runs, is known by these; its environment is theirs.
func (s *Server) connectorKey(ctx context.Context, c *caller, id ID) (store.Key, error) {
	conn, err := s.connector(ctx, c, id)
	if err == nil {
		return c.keyOf(conn), nil
	}
	if !isNotFound(err) {
		return store.Key{}, err
	}
	newest, _, failed := s.store.ListConnectorRuns(ctx, store.ConnectorRunQuery{Connector: c.row(id), Limit: 1})
	if failed != nil {
		return store.Key{}, fmt.Errorf("looking for runs of connector %s: %w", id, failed)
	}
	if len(newest) == 0 {
		return store.Key{}, err
	}
	return c.row(id), s.mustReachID(ctx, c, newest[0].EnvironmentID)
}

func (s *Server) getConnectorRun(ctx context.Context, c *caller, in *ConnectorRunPath) (answer[ConnectorRun], error) {
	run, err := s.connectorRun(ctx, c, in)
	if err != nil {
		return answer[ConnectorRun]{}, err
	}
	shown, err := s.wholeConnectorRun(ctx, run)
	if err != nil {
		return answer[ConnectorRun]{}, err
	}
	err = s.showPayload(ctx, c, run, &shown)
	return plainly(shown, err)
}

// connectorRun is the one of a connector that a path names. A connector that is gone is known by it.
func (s *Server) connectorRun(ctx context.Context, c *caller, in *ConnectorRunPath) (store.ConnectorRun, error) {
	_, gone := s.connector(ctx, c, in.ConnectorID)
	if gone != nil && !isNotFound(gone) {
		return store.ConnectorRun{}, gone
	}
	run, err := s.store.ConnectorRun(ctx, c.row(in.RunID))
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return store.ConnectorRun{}, fmt.Errorf("reading connector run %s: %w", in.RunID, err)
	case err == nil && run.ConnectorID == uuid.UUID(in.ConnectorID):
		if gone != nil {
			err = s.mustReachID(ctx, c, run.EnvironmentID)
		}
		return run, err
	case gone != nil:
		return store.ConnectorRun{}, gone
	}
	return store.ConnectorRun{}, notFound("connector run")
}

// wholeConnectorRun shows a connector run with its output, or its attempts.
func (s *Server) wholeConnectorRun(ctx context.Context, run store.ConnectorRun) (ConnectorRun, error) {
	shown := showConnectorRun(run)
	if run.Trigger == store.TriggerOutbound {
		return shown, s.showAttempts(ctx, run.Key(), &shown)
	}
	outcome, err := s.store.Outcome(ctx, run.Key())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return shown, fmt.Errorf("reading the outcome of connector run %s: %w", run.ID, err)
	}
	if len(outcome.Runs) > 0 && outcome.Runs[0].ID == run.RunIDs[0] { // else the first one's is erased
		shown.Output = showRun(outcome.Runs[0]).Output
	}
	return shown, nil
}

func showConnectorRun(r store.ConnectorRun) ConnectorRun {
	out := ConnectorRun{
		ID: r.ID.String(), ConnectorID: r.ConnectorID.String(), Status: ConnectorRunStatus(r.Status), TriggerType: TriggerType(r.Trigger),
		StartedAt: r.StartedAt.UTC(), EndedAt: optTime(r.EndedAt), DurationMS: elapsed(&r.StartedAt, r.EndedAt),
		DispatchedTo: len(r.RunIDs), RunIDs: texts(r.RunIDs), Error: opt(r.Error), Attempts: []Attempt{},
		Kind: word[DeliveryKind](r.Kind),
	}
	if r.Hops > 0 {
		out.Hops = &r.Hops
	}
	if r.ReplayOf != nil {
		out.ReplayOf = opt(r.ReplayOf.String())
	}
	if r.Trigger == store.TriggerOutbound { // it started none
		out.DispatchedTo, out.RunIDs = 0, []string{}
		if len(r.RunIDs) > 0 {
			out.RunID = opt(r.RunIDs[0].String())
		}
	}
	return out
}

// showPayload fills in the body of a delivery that is no result: to those who may see what
// runs are about.
func (s *Server) showPayload(ctx context.Context, c *caller, run store.ConnectorRun, out *ConnectorRun) error {
	if run.Kind == "" || run.Kind == store.DeliverResult {
		return nil
	}
	if may, err := s.may(ctx, c, "runs.view"); err != nil || !may {
		return err
	}
	in, err := s.store.EventInput(ctx, run.Key())
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the payload of delivery %s: %w", run.ID, err)
	}
	body := io.NopCloser(bytes.NewReader(in.Data))
	if in.Blob != nil {
		body, err = s.store.OpenBlob(ctx, store.Key{ProjectID: run.ProjectID, ID: *in.Blob})
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
func (s *Server) showAttempts(ctx context.Context, delivery store.Key, out *ConnectorRun) error {
	attempts, next, err := s.store.Attempts(ctx, delivery)
	if err != nil {
		return fmt.Errorf("reading the attempts of delivery %s: %w", delivery.ID, err)
	}
	out.setAttempts(attempts, next)
	return nil
}

// setAttempts fills in the attempts of a delivery, and when the next one is due.
func (out *ConnectorRun) setAttempts(attempts []store.PastAttempt, next *time.Time) {
	for _, a := range attempts {
		shown := Attempt{Number: a.Number, At: a.At.UTC(), ErrorClass: opt(a.ErrorClass), Error: opt(a.Error), ResponseExcerpt: opt(a.Response)}
		if a.StatusCode != 0 {
			shown.StatusCode = &a.StatusCode
		}
		if a.ErrorClass != store.ErrorClassLost {
			took := a.Duration.Milliseconds()
			shown.DurationMS = &took
		}
		out.Attempts = append(out.Attempts, shown)
	}
	out.NextAttemptAt = optTime(next)
}
