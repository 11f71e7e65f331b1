// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// Replays serves bulk replays.
type Replays struct {
	Service       *rest.Service
	Store         ReplayStore
	ConnectorRuns *ConnectorRuns
}

// ReplayStore has methods of store.ReplayJobs.
type ReplayStore interface {
	MatchReplay(ctx context.Context, connector store.Key, f store.ReplayFilter) (store.ReplayMatch, error)
	StartReplay(ctx context.Context, r store.NewReplay) (store.Replay, store.Verdict, error)
	Replay(ctx context.Context, replay store.Key) (store.Replay, error)
	ListReplays(ctx context.Context, connector store.Key) ([]store.Replay, error)
	CancelReplay(ctx context.Context, replay store.Key) error
}

// ReplaySection has the endpoints of replays; Replays serves them.
var ReplaySection = rest.Section[*Replays]{
	Name: "connectors",
	Endpoints: []rest.EndpointOf[*Replays]{
		createReplay, listReplays, getReplay, cancelReplay,
	},
}

// ReplayCreate selects the connector runs to replay.
type ReplayCreate struct {
	Status        []EndedStatus `json:"status" minItems:"1" maxItems:"4" doc:"Replays connector runs that ended with one of these statuses."`
	TriggerType   TriggerType   `json:"trigger_type,omitempty" doc:"Only connector runs with this cause."`
	Since         time.Time     `json:"since" doc:"Only connector runs that started at this time or later." example:"2026-07-01T00:00:00Z"`
	Until         *time.Time    `json:"until,omitempty" doc:"Only connector runs that started before this time. Default, and maximum: now."`
	DryRun        bool          `json:"dry_run,omitempty" doc:"Only counts the matches. Nothing is replayed or stored."`
	RatePerMinute int64         `json:"rate_per_minute,omitempty" default:"600" minimum:"1" maximum:"6000" doc:"Maximum number of replays in a minute."`
}

func (ReplayCreate) Doc() string { return "The connector runs to replay, and the rate." }

// ReplayCreateInput is the request that starts a bulk replay.
type ReplayCreateInput struct {
	rest.ConnectorPath
	Body ReplayCreate
}

// ReplayPath names a replay.
type ReplayPath struct {
	rest.ConnectorPath
	ReplayID rest.ID `path:"replay_id" resource:"replay" doc:"The replay."`
}

// Replay is the REST shape of a bulk replay.
type Replay struct {
	ID            *string          `json:"id" format:"uuid" doc:"The replay's ID; null for a dry run."`
	ConnectorID   string           `json:"connector_id" format:"uuid" doc:"The connector."`
	Status        ReplayStatus     `json:"status" doc:"The status."`
	StatusFilter  []EndedStatus    `json:"status_filter" doc:"The statuses of the connector runs that are replayed."`
	TriggerType   *string          `json:"trigger_type" doc:"The cause of the connector runs that are replayed; null for any."`
	Since         time.Time        `json:"since" doc:"The start of the window."`
	Until         time.Time        `json:"until" doc:"The end of the window."`
	RatePerMinute int64            `json:"rate_per_minute" doc:"Maximum number of replays in a minute."`
	Matched       int64            `json:"matched" doc:"Number of matches at creation."`
	AtLeast       bool             `json:"at_least" doc:"Whether there may be more matches: counting stopped at the oldest 20,000 connector runs of the window."`
	Replayed      int64            `json:"replayed" doc:"Number of replayed connector runs."`
	Refused       int64            `json:"refused" doc:"Number of connector runs that could not be replayed."`
	Refusals      map[string]int64 `json:"refusals" doc:"Number of connector runs that could not be replayed, by the code of the reason, such as gone."`
	Reason        *string          `json:"reason" doc:"Why the replay waits or has failed, as a code." example:"backlog_full"`
	Detail        *string          `json:"detail" doc:"Why the replay waits or has failed, as a text."`
	CreatedAt     *time.Time       `json:"created_at" doc:"When the replay was created; null for a dry run."`
	EndedAt       *time.Time       `json:"ended_at" doc:"When the replay ended."`
}

func (Replay) Doc() string { return "A bulk replay of a connector's runs, or the result of a dry run." }

func (r Replay) Audited() store.AuditObject {
	return store.AuditObject{Kind: "replay", ID: *r.ID}
}

// replayDryRun is the status of a dry run.
const replayDryRun ReplayStatus = "dry_run"

var createReplay = rest.Handle((*Replays).createReplay, rest.Endpoint{
	Method: rest.Post, Path: "/connectors/{connector_id}/replays", ID: "createReplay",
	Permissions: rest.Requires("connectors.update"), Effect: rest.EffectCreate, Status: 201, AlsoStatus: 200, Errors: rest.CreateErrors,
	Summary: "Replay many events or deliveries",
	Doc: "Replays the connector runs of the window that ended with one of the statuses, oldest first, at the given rate. Each " +
		"is replayed like `POST …/runs/{run_id}/replay`. Replays and tests are left out. The call returns at once, and the " +
		"replay continues until all are done; read it to see its progress.\n\n" +
		"The replay waits, for at most 30 days, if the project has no capacity, or if the connector is disabled, paused or has " +
		"no agent; `reason` says why. Each connector run is replayed once. `refused` counts the connector runs that cannot be " +
		"replayed, for example because their input is no longer stored.\n\n" +
		"Returns 422 if more than 100,000 connector runs match, and 409 if the connector has another open replay. With " +
		"`dry_run`, returns 200 and the number of matches.",
	Example:      rest.Example{Path: "/connectors/{connector}/replays", Body: `{"status":["failed"],"since":"2026-01-01T00:00:00Z"}`},
	ReadsHistory: true,
})

// createReplay starts a bulk replay, or counts its matches.
func (s *Replays) createReplay(ctx context.Context, c *rest.Caller, in *ReplayCreateInput) (rest.Response[Replay], error) {
	conn, err := s.Service.Connector(ctx, c, in.ConnectorID)
	if err != nil {
		return rest.Response[Replay]{}, err
	}
	filter, err := s.replayFilter(in.Body)
	if err != nil {
		return rest.Response[Replay]{}, err
	}
	wanted := store.NewReplay{
		Connector: c.ObjectKey(conn), ID: c.NewID("replay"), Filter: filter, PerMinute: in.Body.RatePerMinute, Fingerprint: rest.RequestDigest(ctx),
	}
	if in.Body.DryRun {
		match, err := s.Store.MatchReplay(ctx, wanted.Connector, filter)
		if err != nil {
			return rest.Response[Replay]{}, fmt.Errorf("counting what a replay of connector %q matches: %w", conn.Name, err)
		}
		shown := showReplay(store.Replay{ConnectorID: wanted.Connector.ID, Filter: filter, PerMinute: wanted.PerMinute, Match: match})
		shown.ID, shown.CreatedAt, shown.Status = nil, nil, replayDryRun
		return rest.Response[Replay]{Status: http.StatusOK, Body: shown}, nil
	}
	made, verdict, err := s.Store.StartReplay(ctx, wanted)
	switch {
	case errors.Is(err, store.ErrReplayRunning):
		return rest.Response[Replay]{}, rest.NewProblem(http.StatusConflict, httpserver.CodeAlreadyExists, "the connector has an open replay; wait until it ends, or cancel it")
	case errors.Is(err, store.ErrTooManyReplays):
		return rest.Response[Replay]{}, rest.NewProblem(http.StatusConflict, httpserver.CodeLimitReached, fmt.Sprintf(
			"the project has reached its limit of %d open replays; wait until one ends, or cancel one", store.MaxRunningReplays))
	case errors.Is(err, store.ErrNotFound):
		return rest.Response[Replay]{}, rest.NewProblem(http.StatusConflict, httpserver.CodeConflict, "the connector is not in effect, so it has nothing to replay")
	case err != nil:
		return rest.Response[Replay]{}, fmt.Errorf("making a replay of connector %q: %w", conn.Name, err)
	case verdict == store.KeyReused:
		return rest.Response[Replay]{}, rest.ErrKeyReused
	}
	shown := showReplay(made)
	rest.RecordChange(ctx, shown.Audited(), nil, shown)
	return rest.Response[Replay]{Location: "/connectors/" + shown.ConnectorID + "/replays/" + *shown.ID, Body: shown}, nil
}

// replayFilter returns the filter of a request. Connector runs that begin later do not match.
func (s *Replays) replayFilter(in ReplayCreate) (store.ReplayFilter, error) {
	f := store.ReplayFilter{Trigger: store.TriggerType(in.TriggerType), Since: in.Since, Until: s.Service.Now()}
	if in.Until != nil && in.Until.Before(f.Until) {
		f.Until = *in.Until
	}
	f.Since, f.Until = f.Since.UTC().Truncate(time.Millisecond), f.Until.UTC().Truncate(time.Millisecond)
	switch {
	case f.Since.Year() < 1970:
		return f, rest.Invalid(rest.FieldError{Location: "body.since", Message: "must be a time since 1970"})
	case !f.Since.Before(f.Until):
		return f, rest.Invalid(rest.FieldError{Location: "body.since", Message: "must be before until, and before now"})
	}
	for _, status := range in.Status {
		f.Statuses = append(f.Statuses, store.ConnectorRunStatus(status))
	}
	return f, nil
}

var listReplays = rest.Handle((*Replays).listReplays, rest.Endpoint{
	Method: rest.Get, Path: "/connectors/{connector_id}/replays", ID: "listReplays",
	Permissions: rest.Requires("connectors.view"), Errors: rest.ReadErrors,
	Summary: "List the replays of a connector",
	Doc: "Returns the newest replay first, at most 100. A replay is kept for 30 days after its end. A connector keeps at most " +
		"its newest 100 replays.",
	Example: rest.Example{Path: "/connectors/{event_connector}/replays"},
})

func (s *Replays) listReplays(ctx context.Context, c *rest.Caller, in *rest.ConnectorPath) (rest.Response[[]Replay], error) {
	conn, err := s.Service.Connector(ctx, c, in.ConnectorID)
	if err != nil {
		return rest.Response[[]Replay]{}, err
	}
	replays, err := s.Store.ListReplays(ctx, c.ObjectKey(conn))
	if err != nil {
		return rest.Response[[]Replay]{}, fmt.Errorf("listing the replays of connector %q: %w", conn.Name, err)
	}
	return rest.NewResponse(rest.ShowAll(replays, showReplay), nil)
}

var getReplay = rest.Handle((*Replays).getReplay, rest.Endpoint{
	Method: rest.Get, Path: "/connectors/{connector_id}/replays/{replay_id}", ID: "getReplay",
	Permissions: rest.Requires("connectors.view"), Errors: rest.ReadErrors,
	Summary: "Get a replay",
	Doc:     "Returns the progress of the replay. The connector runs that it created name their originals in `replay_of`.",
	Example: rest.Example{Path: "/connectors/{event_connector}/replays/{replay}"},
})

func (s *Replays) getReplay(ctx context.Context, c *rest.Caller, in *ReplayPath) (rest.Response[Replay], error) {
	r, err := s.replay(ctx, c, in)
	if err != nil {
		return rest.Response[Replay]{}, err
	}
	return rest.NewResponse(showReplay(r), nil)
}

// replay finds the replay of a connector in a path.
func (s *Replays) replay(ctx context.Context, c *rest.Caller, in *ReplayPath) (store.Replay, error) {
	conn, err := s.Service.Connector(ctx, c, in.ConnectorID)
	if err != nil {
		return store.Replay{}, err
	}
	r, err := s.Store.Replay(ctx, c.RowKey(in.ReplayID))
	if errors.Is(err, store.ErrNotFound) || err == nil && r.ConnectorID.String() != rest.ObjectID(conn) {
		return store.Replay{}, rest.NotFound("replay")
	}
	if err != nil {
		return store.Replay{}, fmt.Errorf("reading replay %s: %w", in.ReplayID, err)
	}
	return r, nil
}

var cancelReplay = rest.Handle((*Replays).cancelReplay, rest.Endpoint{
	Method: rest.Post, Path: "/connectors/{connector_id}/replays/{replay_id}/cancel", ID: "cancelReplay",
	Permissions: rest.Requires("connectors.update"), Effect: rest.EffectAction, Errors: rest.ActionErrors,
	Summary: "Cancel a replay",
	Doc: "Ends the replay. Connector runs that it has created stay. Returns 409 if the replay has ended. A repeated call with " +
		"the same `Idempotency-Key` gets the same response.",
	Example: rest.Example{Path: "/connectors/{event_connector}/replays/{replay}/cancel"},
})

// cancelReplay ends an open replay. The replayed connector runs stay.
func (s *Replays) cancelReplay(ctx context.Context, c *rest.Caller, in *ReplayPath) (rest.Response[Replay], error) {
	before, err := s.replay(ctx, c, in)
	if err != nil {
		return rest.Response[Replay]{}, err
	}
	err = s.Store.CancelReplay(ctx, before.Key())
	switch {
	case errors.Is(err, store.ErrConflict):
		return s.repeatedCancelReplay(ctx, c, in)
	case errors.Is(err, store.ErrNotFound):
		return rest.Response[Replay]{}, rest.NotFound("replay")
	case err != nil:
		return rest.Response[Replay]{}, fmt.Errorf("cancelling replay %s: %w", in.ReplayID, err)
	}
	after, err := s.replay(ctx, c, in)
	if err != nil {
		return rest.Response[Replay]{}, err
	}
	rest.RecordChange(ctx, showReplay(after).Audited(), showReplay(before), showReplay(after))
	return rest.NewResponse(showReplay(after), nil)
}

// repeatedCancelReplay responds to the cancellation of an ended replay: as before if the call repeats an earlier one
// with the same Idempotency-Key, else with 409.
func (s *Replays) repeatedCancelReplay(ctx context.Context, c *rest.Caller, in *ReplayPath) (rest.Response[Replay], error) {
	r, err := s.replay(ctx, c, in)
	if err == nil {
		err = s.Service.CheckRepeatedCancel(ctx, c, in.ReplayID, r.Status == store.ReplayCancelled, "replay", string(r.Status))
	}
	if err != nil {
		return rest.Response[Replay]{}, err
	}
	return rest.NewResponse(showReplay(r), nil)
}

func showReplay(r store.Replay) Replay {
	created := r.CreatedAt.UTC()
	out := Replay{
		ID: rest.Optional(r.ID.String()), ConnectorID: r.ConnectorID.String(), Status: ReplayStatus(r.Status), StatusFilter: []EndedStatus{}, TriggerType: rest.Optional(string(r.Filter.Trigger)),
		Since: r.Filter.Since.UTC(), Until: r.Filter.Until.UTC(), RatePerMinute: r.PerMinute, Matched: r.Match.Matched, AtLeast: r.Match.More,
		Replayed: r.Replayed, Refused: r.Done() - r.Replayed, Refusals: map[string]int64{}, Reason: rest.Optional(r.Reason), Detail: rest.Optional(r.Detail),
		CreatedAt: &created, EndedAt: rest.OptionalTime(r.EndedAt),
	}
	for _, status := range r.Filter.Statuses {
		out.StatusFilter = append(out.StatusFilter, EndedStatus(status))
	}
	for reason, n := range r.Refused {
		out.Refusals[reason] = n
	}
	return out
}
