// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

const (
	// replayKeyTTL is how long a request to replay is known by its Idempotency-Key.
	replayKeyTTL = 24 * time.Hour
	// replayRetry is when to try again what the project has no room for.
	replayRetry = 10 * time.Second
)

func (r ConnectorRun) audited() store.AuditObject {
	return store.AuditObject{Kind: "connector_run", ID: r.ID}
}

// replayConnectorRun lets an event, or a delivery, happen again. A delivery that waits for its
// next attempt stays the same one: that attempt is due now.
func (s *Server) replayConnectorRun(ctx context.Context, c *caller, in *ConnectorRunPath) (answer[ConnectorRun], error) {
	if _, err := s.connector(ctx, c, in.ConnectorID); err != nil { // one that is gone replays nothing
		return answer[ConnectorRun]{}, err
	}
	original, err := s.connectorRun(ctx, c, in)
	if err != nil {
		return answer[ConnectorRun]{}, err
	}
	before, err := s.waiting(ctx, original)
	if err != nil {
		return answer[ConnectorRun]{}, err
	}
	a, err := replay.One(ctx, s.store, expr.On, original, c.requestKey(ctx, "replay"))
	var refused *replay.Refused
	switch {
	case errors.As(err, &refused):
		return answer[ConnectorRun]{}, asRefusal(refused)
	case err != nil:
		return answer[ConnectorRun]{}, fmt.Errorf("replaying connector run %s: %w", in.RunID, err)
	case a.Verdict == store.KeyReused:
		return answer[ConnectorRun]{}, keyReused
	}
	again, err := s.store.ConnectorRun(ctx, store.Key{ProjectID: c.projectID, ID: a.ConnectorRunID})
	if err != nil {
		return answer[ConnectorRun]{}, fmt.Errorf("reading connector run %s: %w", a.ConnectorRunID, err)
	}
	shown, err := s.wholeConnectorRun(ctx, again)
	if err == nil {
		err = s.showPayload(ctx, c, again, &shown)
	}
	if err != nil {
		return answer[ConnectorRun]{}, err
	}
	if a.ConnectorRunID == original.ID {
		after := showConnectorRun(again)
		after.NextAttemptAt = shown.NextAttemptAt
		changed(ctx, shown.audited(), before, after)
		return answer[ConnectorRun]{Status: http.StatusOK, Body: shown}, nil
	}
	changed(ctx, shown.audited(), nil, showConnectorRun(again))
	return answer[ConnectorRun]{Location: "/connectors/" + shown.ConnectorID + "/runs/" + shown.ID, Body: shown}, nil
}

// waiting is a delivery that has not ended with the time of its next attempt, before it is
// hurried; nil of what else there is.
func (s *Server) waiting(ctx context.Context, run store.ConnectorRun) (*ConnectorRun, error) {
	if run.Trigger != store.TriggerOutbound || run.EndedAt != nil {
		return nil, nil
	}
	_, next, err := s.store.Attempts(ctx, run.Key())
	if err != nil {
		return nil, fmt.Errorf("reading when delivery %s is attempted next: %w", run.ID, err)
	}
	shown := showConnectorRun(run)
	shown.NextAttemptAt = optTime(next)
	return &shown, nil
}

// requestKey is by what the store knows the request again; nil without an Idempotency-Key.
func (c *caller) requestKey(ctx context.Context, noun string) *store.Idempotency {
	if c.idempotencyKey == "" {
		return nil
	}
	return &store.Idempotency{
		Key: noun + ":" + hex.EncodeToString(c.derived(noun)), Fingerprint: []byte(trailOf(ctx).digest()), TTL: replayKeyTTL,
	}
}

// asRefusal is what a caller is told of what cannot be replayed.
func asRefusal(r *replay.Refused) Problem {
	if !r.Later() {
		return problem(http.StatusConflict, httpserver.Code(r.Reason), r.Detail)
	}
	p := httpserver.NewProblem(http.StatusTooManyRequests, httpserver.Code(r.Reason), r.Detail)
	p.RetryAfter = replayRetry
	return p
}
