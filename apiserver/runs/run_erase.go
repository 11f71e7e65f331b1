// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

var eraseRun = rest.Handle((*API).eraseRun, rest.Endpoint{
	Method: rest.Delete, Path: "/runs/{run_id}", ID: "eraseRun",
	Permissions: rest.Requires("runs.delete"), Effect: rest.EffectAction, Errors: rest.ActionErrors,
	Summary: "Erase an agent run",
	Doc: "Erases the content of a run that has ended: its output, error and context; its journal with all model responses and tool " +
		"results; what it sent through outbound connectors, and the responses of the receivers. If no other run of its event " +
		"is left, the event's input, attachments and headers are erased too, and the event cannot be replayed.\n\n" +
		"The run then returns 404 and is in no list. The platform keeps a record of the run with its agent, environment, " +
		"deployment, status, error code, times and tokens, which statistics still count. It also keeps the connector run and " +
		"the deliveries with their statuses and times, and the call in the audit log. Replays of the event are separate runs, " +
		"and receivers keep what they received.\n\n" +
		"An open delivery ends without being sent, except for an attempt in progress. Copies in database backups stay until " +
		"the backups are deleted. Returns 409 if the run has not ended: cancel it first. A repeated call with the same " +
		"`Idempotency-Key` gets the same response.",
	Example: rest.Example{Path: "/runs/{ended_run}"},
})

// eraseRun erases the content of a run.
func (s *API) eraseRun(ctx context.Context, c *rest.Caller, in *RunPath) (rest.Response[rest.Done], error) {
	run, err := s.run(ctx, c, in.RunID)
	if rest.IsNotFound(err) {
		return s.Service.RepeatedDelete(ctx, c, in.RunID, err)
	}
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	err = s.Store.EraseRun(ctx, run.Key())
	switch {
	case errors.Is(err, store.ErrConflict):
		return rest.Response[rest.Done]{}, rest.NewProblem(http.StatusConflict, httpserver.CodeConflict,
			"only a run that has ended can be erased: its status is "+string(run.Status)+"; cancel it first (POST /runs/{run_id}/cancel)")
	case errors.Is(err, store.ErrNotFound): // another call erased the run, or its retention has ended
		return s.Service.RepeatedDelete(ctx, c, in.RunID, rest.NotFound("run"))
	case err != nil:
		return rest.Response[rest.Done]{}, fmt.Errorf("erasing run %s: %w", in.RunID, err)
	}
	// The audit log keeps no content of the run.
	shown := showRun(run)
	shown.Output, shown.Error = nil, nil
	s.Service.Logger.InfoContext(ctx, "run erased", "project", c.ProjectID, "run", run.ID, "agent", run.AgentName, "key", c.Key.Name)
	return rest.DeletedResponse(ctx, shown), nil
}
