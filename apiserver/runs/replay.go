// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

const (
	// replayKeyTTL is how long the Idempotency-Key of a replay is known.
	replayKeyTTL = 24 * time.Hour
	// replayRetry is the Retry-After if the project has no capacity.
	replayRetry = 10 * time.Second
)

func (r ConnectorRun) Audited() store.AuditObject {
	return store.AuditObject{Kind: "connector_run", ID: r.ID}
}

var replayConnectorRun = rest.Handle((*ConnectorRuns).replayConnectorRun, rest.Endpoint{
	Method: rest.Post, Path: "/connectors/{connector_id}/runs/{run_id}/replay", ID: "replayConnectorRun",
	Permissions: rest.Requires("connectors.update"), Effect: rest.EffectCreate, Status: 201, AlsoStatus: 200, Errors: rest.ActionErrors,
	Summary: "Replay an event or a delivery",
	Doc: "Creates a connector run whose `replay_of` names this connector run, which does not change. The replay of an event has " +
		"the same input and attachments. It starts a run of each agent that is linked now, with the deployment that is live " +
		"when the run starts, and after the runs of new events. The replay of a delivery sends the same result at once, as a " +
		"new delivery.\n\n" +
		"If the delivery is open and waits for its next attempt, that attempt becomes due now. The call then returns 200 with " +
		"the same delivery, which goes before other due deliveries of the connector. During an attempt the call returns 409 " +
		"`in_progress`.\n\n" +
		"Returns 409 `gone` if the input or the result is no longer stored. Returns 409, with a code for the reason, if the " +
		"connector is disabled, retired, paused or has no agent. Returns 429 if the environment has reached its limit of open " +
		"runs. The connector remembers an `Idempotency-Key` for a day.",
	Example: rest.Example{Path: "/connectors/{event_connector}/runs/{event}/replay"},
})

// replayConnectorRun replays an event or a delivery. For a delivery that waits for its next attempt, it makes that
// attempt due now.
func (s *ConnectorRuns) replayConnectorRun(ctx context.Context, c *rest.Caller, in *ConnectorRunPath) (rest.Response[ConnectorRun], error) {
	if _, err := s.Service.Connector(ctx, c, in.ConnectorID); err != nil { // the run of a deleted connector cannot be replayed
		return rest.Response[ConnectorRun]{}, err
	}
	original, err := s.connectorRun(ctx, c, in)
	if err != nil {
		return rest.Response[ConnectorRun]{}, err
	}
	before, err := s.waiting(ctx, original)
	if err != nil {
		return rest.Response[ConnectorRun]{}, err
	}
	a, err := replay.One(ctx, s.Store, replay.Rules{Evaluate: expr.On, RequiresFiles: connector.RequiresFiles}, original, requestKey(ctx, c, "replay"))
	var refused *replay.Refused
	switch {
	case errors.As(err, &refused):
		return rest.Response[ConnectorRun]{}, asRefusal(refused)
	case err != nil:
		return rest.Response[ConnectorRun]{}, fmt.Errorf("replaying connector run %s: %w", in.RunID, err)
	case a.Verdict == store.KeyReused:
		return rest.Response[ConnectorRun]{}, rest.ErrKeyReused
	}
	again, err := s.Store.ConnectorRun(ctx, store.Key{ProjectID: c.ProjectID, ID: a.ConnectorRunID})
	if err != nil {
		return rest.Response[ConnectorRun]{}, fmt.Errorf("reading connector run %s: %w", a.ConnectorRunID, err)
	}
	shown, err := s.wholeConnectorRun(ctx, again)
	if err == nil {
		err = s.showPayload(ctx, c, again, &shown)
	}
	if err != nil {
		return rest.Response[ConnectorRun]{}, err
	}
	if a.ConnectorRunID == original.ID {
		after := showConnectorRun(again)
		after.NextAttemptAt = shown.NextAttemptAt
		rest.RecordChange(ctx, shown.Audited(), before, after)
		return rest.Response[ConnectorRun]{Status: http.StatusOK, Body: shown}, nil
	}
	rest.RecordChange(ctx, shown.Audited(), nil, showConnectorRun(again))
	return rest.Response[ConnectorRun]{Location: "/connectors/" + shown.ConnectorID + "/runs/" + shown.ID, Body: shown}, nil
}

// waiting returns an open delivery with the time of its next attempt before the replay, or nil for other connector runs.
func (s *ConnectorRuns) waiting(ctx context.Context, run store.ConnectorRun) (*ConnectorRun, error) {
	if run.Trigger != store.TriggerOutbound || run.EndedAt != nil {
		return nil, nil
	}
	_, next, err := s.Store.Attempts(ctx, run.Key())
	if err != nil {
		return nil, fmt.Errorf("reading when delivery %s is attempted next: %w", run.ID, err)
	}
	shown := showConnectorRun(run)
	shown.NextAttemptAt = rest.OptionalTime(next)
	return &shown, nil
}

// requestKey identifies the request in the store. It is nil without an Idempotency-Key.
func requestKey(ctx context.Context, c *rest.Caller, noun string) *store.Idempotency {
	if c.IdempotencyKey == "" {
		return nil
	}
	return &store.Idempotency{
		Key: noun + ":" + hex.EncodeToString(c.DeriveBytes(noun)), Fingerprint: rest.RequestDigest(ctx), TTL: replayKeyTTL,
	}
}

// asRefusal returns the response for a connector run that cannot be replayed.
func asRefusal(r *replay.Refused) rest.Problem {
	if !r.Later() {
		return rest.NewProblem(http.StatusConflict, httpserver.Code(r.Reason), r.Detail)
	}
	p := httpserver.NewProblem(http.StatusTooManyRequests, httpserver.Code(r.Reason), r.Detail)
	p.RetryAfter = replayRetry
	return p
}
