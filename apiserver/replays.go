// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// ReplayCreate says which runs of a connector are replayed.
type ReplayCreate struct {
	Status        []EndedStatus `json:"status" minItems:"1" maxItems:"4" doc:"Replay those that have ended with one of these."`
	TriggerType   TriggerType   `json:"trigger_type,omitempty" doc:"Of them only those with this cause."`
	Since         time.Time     `json:"since" doc:"Of them only those that began at that time or later." example:"2026-07-01T00:00:00Z"`
	Until         *time.Time    `json:"until,omitempty" doc:"Of them only those that began before; without it, and if it is in the future, now."`
	DryRun        bool          `json:"dry_run,omitempty" doc:"Only tell how many match: nothing is replayed, and nothing stored."`
	RatePerMinute int64         `json:"rate_per_minute,omitempty" default:"600" minimum:"1" maximum:"6000" doc:"How many are replayed in a minute at most."`
}

// ReplayCreateInput is the request that replays many.
type ReplayCreateInput struct {
	ConnectorPath
	Body ReplayCreate
}

// ReplayPath names a replay.
type ReplayPath struct {
	ConnectorPath
	ReplayID ID `path:"replay_id" doc:"The replay."`
}

// Replay is the REST shape of a replay of many.
type Replay struct {
	ID            *string          `json:"id" format:"uuid" doc:"The replay's id; null of a dry run."`
	ConnectorID   string           `json:"connector_id" format:"uuid" doc:"The connector."`
	Status        ReplayStatus     `json:"status" doc:"Where it stands."`
	StatusFilter  []EndedStatus    `json:"status_filter" doc:"It replays those that have ended with one of these."`
	TriggerType   *string          `json:"trigger_type" doc:"Of them only those with this cause; null for any."`
	Since         time.Time        `json:"since" doc:"Of them only those that began at that time or later."`
	Until         time.Time        `json:"until" doc:"Of them only those that began before."`
	RatePerMinute int64            `json:"rate_per_minute" doc:"How many are replayed in a minute at most."`
	Matched       int64            `json:"matched" doc:"How many matched when it was made."`
	AtLeast       bool             `json:"at_least" doc:"Whether it may be more than matched: counting ended at the oldest 20,000 of the window."`
	Replayed      int64            `json:"replayed" doc:"How many have been replayed."`
	Refused       int64            `json:"refused" doc:"How many could not be replayed."`
	Refusals      map[string]int64 `json:"refusals" doc:"How many could not be replayed, by the code of the reason, such as gone."`
	Reason        *string          `json:"reason" doc:"Why it waits at the moment, or has failed, as a code." example:"backlog_full"`
	Detail        *string          `json:"detail" doc:"The same for people."`
	CreatedAt     *time.Time       `json:"created_at" doc:"When it was made; null of a dry run."`
	EndedAt       *time.Time       `json:"ended_at" doc:"When it ended."`
}

func (r Replay) audited() store.AuditObject {
	return store.AuditObject{Kind: "replay", ID: *r.ID}
}

// replayDryRun is the status of a replay that is none.
const replayDryRun ReplayStatus = "dry_run"

// createReplay replays many, or says how many that would be.
func (s *Server) createReplay(ctx context.Context, c *caller, in *ReplayCreateInput) (answer[Replay], error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return answer[Replay]{}, err
	}
	filter, err := s.replayFilter(in.Body)
	if err != nil {
		return answer[Replay]{}, err
	}
	wanted := store.NewReplay{
		Connector: c.keyOf(conn), ID: c.idOf("replay"), Filter: filter, PerMinute: in.Body.RatePerMinute, Fingerprint: []byte(trailOf(ctx).digest()),
	}
	if in.Body.DryRun {
		match, err := s.store.MatchReplay(ctx, wanted.Connector, filter)
		if err != nil {
			return answer[Replay]{}, fmt.Errorf("counting what a replay of connector %q matches: %w", conn.Name, err)
		}
		shown := showReplay(store.Replay{ConnectorID: wanted.Connector.ID, Filter: filter, PerMinute: wanted.PerMinute, Match: match})
		shown.ID, shown.CreatedAt, shown.Status = nil, nil, replayDryRun
		return answer[Replay]{Status: http.StatusOK, Body: shown}, nil
	}
	made, verdict, err := s.store.StartReplay(ctx, wanted)
	switch {
	case errors.Is(err, store.ErrReplayRunning):
		return answer[Replay]{}, problem(http.StatusConflict, httpserver.CodeAlreadyExists, "the connector has a replay that has not ended; wait for it, or cancel it")
	case errors.Is(err, store.ErrTooManyReplays):
		return answer[Replay]{}, problem(http.StatusConflict, httpserver.CodeLimitReached, fmt.Sprintf(
			"the project has %d replays that have not ended, as many as it may have; wait for one, or cancel one", store.MaxRunningReplays))
	case errors.Is(err, store.ErrNotFound):
		return answer[Replay]{}, problem(http.StatusConflict, httpserver.CodeConflict, "the connector is not in effect, and so it has nothing that could be replayed")
	case err != nil:
		return answer[Replay]{}, fmt.Errorf("making a replay of connector %q: %w", conn.Name, err)
	case verdict == store.KeyReused:
		return answer[Replay]{}, keyReused
	}
	shown := showReplay(made)
	changed(ctx, shown.audited(), nil, shown)
	return answer[Replay]{Location: "/connectors/" + shown.ConnectorID + "/replays/" + *shown.ID, Body: shown}, nil
}

// replayFilter says which connector runs a request means. What comes in later is none of
// them.
func (s *Server) replayFilter(in ReplayCreate) (store.ReplayFilter, error) {
	f := store.ReplayFilter{Trigger: store.TriggerType(in.TriggerType), Since: in.Since, Until: s.now()}
	if in.Until != nil && in.Until.Before(f.Until) {
		f.Until = *in.Until
	}
	f.Since, f.Until = f.Since.UTC().Truncate(time.Millisecond), f.Until.UTC().Truncate(time.Millisecond)
	switch {
	case f.Since.Year() < 1970:
		return f, invalid(FieldError{Location: "body.since", Message: "must be a time since 1970"})
	case !f.Since.Before(f.Until):
		return f, invalid(FieldError{Location: "body.since", Message: "must be before until, and before now"})
	}
	for _, status := range in.Status {
		f.Statuses = append(f.Statuses, store.ConnectorRunStatus(status))
	}
	return f, nil
}

func (s *Server) listReplays(ctx context.Context, c *caller, in *ConnectorPath) (answer[[]Replay], error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return answer[[]Replay]{}, err
	}
	replays, err := s.store.ListReplays(ctx, c.keyOf(conn))
	if err != nil {
		return answer[[]Replay]{}, fmt.Errorf("listing the replays of connector %q: %w", conn.Name, err)
	}
	out := []Replay{}
	for _, r := range replays {
		out = append(out, showReplay(r))
	}
	return plainly(out, nil)
}

func (s *Server) getReplay(ctx context.Context, c *caller, in *ReplayPath) (answer[Replay], error) {
	r, err := s.replay(ctx, c, in)
	if err != nil {
		return answer[Replay]{}, err
	}
	return plainly(showReplay(r), nil)
}

// replay is the one of a connector that a path names.
func (s *Server) replay(ctx context.Context, c *caller, in *ReplayPath) (store.Replay, error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return store.Replay{}, err
	}
	r, err := s.store.Replay(ctx, c.row(in.ReplayID))
	if errors.Is(err, store.ErrNotFound) || err == nil && r.ConnectorID.String() != idOf(conn) {
		return store.Replay{}, notFound("replay")
	}
	if err != nil {
		return store.Replay{}, fmt.Errorf("reading replay %s: %w", in.ReplayID, err)
	}
	return r, nil
}

// cancelReplay ends a replay that has not ended. What it has replayed stays.
func (s *Server) cancelReplay(ctx context.Context, c *caller, in *ReplayPath) (answer[Replay], error) {
	before, err := s.replay(ctx, c, in)
	if err != nil {
		return answer[Replay]{}, err
	}
	err = s.store.CancelReplay(ctx, before.Key())
	switch {
	case errors.Is(err, store.ErrConflict):
		return s.repeatedCancelReplay(ctx, c, in)
	case errors.Is(err, store.ErrNotFound):
		return answer[Replay]{}, notFound("replay")
	case err != nil:
		return answer[Replay]{}, fmt.Errorf("cancelling replay %s: %w", in.ReplayID, err)
	}
	after, err := s.replay(ctx, c, in)
	if err != nil {
		return answer[Replay]{}, err
	}
	changed(ctx, showReplay(after).audited(), showReplay(before), showReplay(after))
	return plainly(showReplay(after), nil)
}

// repeatedCancelReplay answers the cancellation of a replay that has ended: as the one before
// where it repeats that under an Idempotency-Key, else with what the replay is.
func (s *Server) repeatedCancelReplay(ctx context.Context, c *caller, in *ReplayPath) (answer[Replay], error) {
	r, err := s.replay(ctx, c, in)
	if err != nil {
		return answer[Replay]{}, err
	}
	again := false
	if r.Status == store.ReplayCancelled {
		if again, err = s.doneBefore(ctx, c, in.ReplayID); err != nil {
			return answer[Replay]{}, err
		}
	}
	if !again {
		return answer[Replay]{}, problem(http.StatusConflict, httpserver.CodeConflict,
			"the replay has ended and cannot be cancelled any more: it is "+string(r.Status))
	}
	return plainly(showReplay(r), nil)
}

func showReplay(r store.Replay) Replay {
	created := r.CreatedAt.UTC()
	out := Replay{
		ID: opt(r.ID.String()), ConnectorID: r.ConnectorID.String(), Status: ReplayStatus(r.Status), StatusFilter: []EndedStatus{}, TriggerType: opt(string(r.Filter.Trigger)),
		Since: r.Filter.Since.UTC(), Until: r.Filter.Until.UTC(), RatePerMinute: r.PerMinute, Matched: r.Match.Matched, AtLeast: r.Match.More,
		Replayed: r.Replayed, Refused: r.Done() - r.Replayed, Refusals: map[string]int64{}, Reason: opt(r.Reason), Detail: opt(r.Detail),
		CreatedAt: &created, EndedAt: optTime(r.EndedAt),
	}
	for _, status := range r.Filter.Statuses {
		out.StatusFilter = append(out.StatusFilter, EndedStatus(status))
	}
	for reason, n := range r.Refused {
		out.Refusals[reason] = n
	}
	return out
}
