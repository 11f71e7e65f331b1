// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// cancelReason is the error of runs that this API cancelled. The caller of a sync webhook reads it, so it names no user.
// The audit log has the user.
const cancelReason = "cancelled through the REST API"

func (r Run) Audited() store.AuditObject {
	return store.AuditObject{Kind: "run", ID: r.ID, Name: r.AgentName}
}

var cancelRun = rest.Handle((*API).cancelRun, rest.Endpoint{
	Method: rest.Post, Path: "/runs/{run_id}/cancel", ID: "cancelRun",
	Permissions: rest.Requires("runs.cancel"), Effect: rest.EffectAction, Errors: rest.ActionErrors,
	Summary: "Cancel an agent run",
	Doc: "Ends an open run, whether it is queued or running. A model request or tool call in progress is interrupted. Returns " +
		"the run as it is then, without its steps and log lines. Returns 409 if the run has ended. A repeated call with the same `Idempotency-Key` gets the " +
		"same response.",
	Example: rest.Example{Path: "/runs/{open_run}/cancel"},
})

// cancelRun ends an open run and responds with the run.
func (s *API) cancelRun(ctx context.Context, c *rest.Caller, in *RunPath) (rest.Response[Run], error) {
	before, err := s.run(ctx, c, in.RunID)
	if err != nil {
		return rest.Response[Run]{}, err
	}
	err = s.Store.Cancel(ctx, before.Key(), runerror.Cancelled, cancelReason)
	switch {
	case errors.Is(err, store.ErrConflict):
		return s.repeatedCancel(ctx, c, in.RunID)
	case errors.Is(err, store.ErrNotFound):
		return rest.Response[Run]{}, rest.NotFound("run")
	case err != nil:
		return rest.Response[Run]{}, fmt.Errorf("cancelling run %s: %w", in.RunID, err)
	}
	after, err := s.run(ctx, c, in.RunID)
	if err != nil {
		return rest.Response[Run]{}, err
	}
	rest.RecordChange(ctx, showRun(after).Audited(), showRun(before), showRun(after))
	return rest.NewResponse(s.wholeRun(ctx, after))
}

// repeatedCancel responds to the cancellation of an ended run: as before if the call repeats an earlier one with the
// same Idempotency-Key, else with 409.
func (s *API) repeatedCancel(ctx context.Context, c *rest.Caller, id rest.ID) (rest.Response[Run], error) {
	run, err := s.run(ctx, c, id)
	if err == nil {
		err = s.Service.CheckRepeatedCancel(ctx, c, id, run.ErrorCode == runerror.Cancelled, "run", string(run.Status))
	}
	if err != nil {
		return rest.Response[Run]{}, err
	}
	return rest.NewResponse(s.wholeRun(ctx, run))
}
