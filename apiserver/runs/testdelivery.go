// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

var testConnector = rest.Handle((*ConnectorRuns).testConnector, rest.Endpoint{
	Method: rest.Post, Path: "/connectors/{connector_id}/test", ID: "testConnector",
	Permissions: rest.Requires("connectors.update"), Effect: rest.EffectCreate, Status: 201, Errors: rest.ActionErrors,
	Summary: "Send a test delivery",
	Doc: "Sends an example to the destination of an outbound connector at once. The delivery has the usual headers and " +
		"signatures, `X-Service-Event: test`, and the type `test` in its body. It needs no agent and no run.\n\n" +
		"The result is a connector run of kind `test` with delivery attempts. Read it to see whether the destination accepted " +
		"the delivery. Bulk replays leave tests out, and links do not report failed tests.\n\n" +
		"Returns 409, with a code for the reason, if the connector is disabled, retired, paused or not outbound. Returns 429 " +
		"if the project has reached its storage limit. The connector remembers an `Idempotency-Key` for a day.",
	Example: rest.Example{Path: "/connectors/{receiver}/test"},
})

// testConnector sends an example to the destination of an outbound connector. It needs no agent.
func (s *ConnectorRuns) testConnector(ctx context.Context, c *rest.Caller, in *rest.ConnectorPath) (rest.Response[ConnectorRun], error) {
	conn, err := s.Service.Connector(ctx, c, in.ConnectorID)
	if err != nil {
		return rest.Response[ConnectorRun]{}, err
	}
	payload, err := json.Marshal(webhookapi.Example(s.Service.Now()))
	if err != nil {
		return rest.Response[ConnectorRun]{}, fmt.Errorf("making an example: %w", err)
	}
	a, err := replay.Test(ctx, s.Store, store.TestDelivery{Connector: c.ObjectKey(conn), Payload: payload, Idempotency: requestKey(ctx, c, "test")})
	var refused *replay.Refused
	switch {
	case errors.As(err, &refused):
		return rest.Response[ConnectorRun]{}, asRefusal(refused)
	case errors.Is(err, store.ErrNotFound):
		return rest.Response[ConnectorRun]{}, rest.NewProblem(http.StatusConflict, httpserver.CodeConflict, "the connector is not in effect, so it sends nothing: "+rest.NotReadyMessage(conn))
	case err != nil:
		return rest.Response[ConnectorRun]{}, fmt.Errorf("testing connector %q: %w", conn.Name, err)
	case a.Verdict == store.KeyReused:
		return rest.Response[ConnectorRun]{}, rest.ErrKeyReused
	}
	made, err := s.Store.ConnectorRun(ctx, store.Key{ProjectID: c.ProjectID, ID: a.ConnectorRunID})
	if err != nil {
		return rest.Response[ConnectorRun]{}, fmt.Errorf("reading connector run %s: %w", a.ConnectorRunID, err)
	}
	shown, err := s.wholeConnectorRun(ctx, made)
	if err == nil {
		err = s.showPayload(ctx, c, made, &shown)
	}
	if err != nil {
		return rest.Response[ConnectorRun]{}, err
	}
	rest.RecordChange(ctx, shown.Audited(), nil, showConnectorRun(made))
	return rest.Response[ConnectorRun]{Location: "/connectors/" + shown.ConnectorID + "/runs/" + shown.ID, Body: shown}, nil
}
