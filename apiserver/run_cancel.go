// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// cancelReason is the error of runs that were cancelled here. The caller of a sync
// webhook reads it too, so it names nobody; the audit log does.
const cancelReason = "cancelled through the REST API"

func (r Run) audited() store.AuditObject {
	return store.AuditObject{Kind: "run", ID: r.ID, Name: r.AgentName}
}

// cancelRun ends a run that is open, and answers with the run as it is then.
func (s *Server) cancelRun(ctx context.Context, c *caller, in *RunPath) (answer[Run], error) {
	before, err := s.run(ctx, c, in.RunID)
	if err != nil {
		return answer[Run]{}, err
	}
	err = s.store.Cancel(ctx, before.Key(), store.RunErrorCancelled, cancelReason)
	switch {
	case errors.Is(err, store.ErrConflict):
		return s.repeatedCancel(ctx, c, in.RunID)
	case errors.Is(err, store.ErrNotFound):
		return answer[Run]{}, notFound("run")
	case err != nil:
		return answer[Run]{}, fmt.Errorf("cancelling run %s: %w", in.RunID, err)
	}
	after, err := s.run(ctx, c, in.RunID)
	if err != nil {
		return answer[Run]{}, err
	}
	changed(ctx, showRun(after).audited(), showRun(before), showRun(after))
	return plainly(s.wholeRun(ctx, after))
}

// repeatedCancel answers the cancellation of a run that has ended: as the one before
// where it repeats that under an Idempotency-Key, else with what the run is.
func (s *Server) repeatedCancel(ctx context.Context, c *caller, id ID) (answer[Run], error) {
	run, err := s.run(ctx, c, id)
	if err != nil {
		return answer[Run]{}, err
	}
	again := false
	if run.ErrorCode == store.RunErrorCancelled {
		if again, err = s.doneBefore(ctx, c, id); err != nil {
			return answer[Run]{}, err
		}
	}
	if !again {
		return answer[Run]{}, problem(http.StatusConflict, httpserver.CodeConflict,
			"the run has ended and cannot be cancelled any more: it is "+string(run.Status))
	}
	return plainly(s.wholeRun(ctx, run))
}
