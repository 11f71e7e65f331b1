// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

// testConnector sends an example to where an outbound connector sends, which needs no agent.
func (s *Server) testConnector(ctx context.Context, c *caller, in *ConnectorPath) (answer[ConnectorRun], error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return answer[ConnectorRun]{}, err
	}
	payload, err := json.Marshal(webhookapi.Example(s.now()))
	if err != nil {
		return answer[ConnectorRun]{}, fmt.Errorf("making an example: %w", err)
	}
	a, err := replay.Test(ctx, s.store, store.TestDelivery{Connector: c.keyOf(conn), Payload: payload, Idempotency: c.requestKey(ctx, "test")})
	var refused *replay.Refused
	switch {
	case errors.As(err, &refused):
		return answer[ConnectorRun]{}, asRefusal(refused)
	case errors.Is(err, store.ErrNotFound):
		return answer[ConnectorRun]{}, problem(http.StatusConflict, httpserver.CodeConflict, "the connector is not in effect, and so it sends nothing: "+whyNotReady(conn))
	case err != nil:
		return answer[ConnectorRun]{}, fmt.Errorf("testing connector %q: %w", conn.Name, err)
	case a.Verdict == store.KeyReused:
		return answer[ConnectorRun]{}, keyReused
	}
	made, err := s.store.ConnectorRun(ctx, store.Key{ProjectID: c.projectID, ID: a.ConnectorRunID})
	if err != nil {
		return answer[ConnectorRun]{}, fmt.Errorf("reading connector run %s: %w", a.ConnectorRunID, err)
	}
	shown, err := s.wholeConnectorRun(ctx, made)
	if err == nil {
		err = s.showPayload(ctx, c, made, &shown)
	}
	if err != nil {
		return answer[ConnectorRun]{}, err
	}
	changed(ctx, shown.audited(), nil, showConnectorRun(made))
	return answer[ConnectorRun]{Location: "/connectors/" + shown.ConnectorID + "/runs/" + shown.ID, Body: shown}, nil
}
