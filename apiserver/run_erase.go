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

// eraseRun erases what a run was about.
func (s *Server) eraseRun(ctx context.Context, c *caller, in *RunPath) (answer[Done], error) {
	run, err := s.run(ctx, c, in.RunID)
	if isNotFound(err) {
		return s.repeatedDelete(ctx, c, in.RunID, err)
	}
	if err != nil {
		return answer[Done]{}, err
	}
	err = s.store.EraseRun(ctx, run.Key())
	switch {
	case errors.Is(err, store.ErrConflict):
		return answer[Done]{}, problem(http.StatusConflict, httpserver.CodeConflict,
			"the run is "+string(run.Status)+": what has not ended is not erased; cancel it first, by POST to its path and /cancel")
	case errors.Is(err, store.ErrNotFound): // somebody else was faster, or it is as old as what goes
		return s.repeatedDelete(ctx, c, in.RunID, notFound("run"))
	case err != nil:
		return answer[Done]{}, fmt.Errorf("erasing run %s: %w", in.RunID, err)
	}
	// What the audit log keeps of it says nothing of what it was about.
	shown := showRun(run)
	shown.Output, shown.Error = nil, nil
	s.logger.InfoContext(ctx, "run erased", "project", c.projectID, "run", run.ID, "agent", run.AgentName, "key", c.key.Name)
	return deleted(ctx, shown), nil
}
