// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

// awaitWork waits for a hint, or for runs that start at this runner with their acceptance. over means
// that the wait has ended.
func (h *Handler) awaitWork(ctx context.Context, runner store.RunnerKey, req dispatchapi.ClaimRequest, woken <-chan struct{}, deadline <-chan time.Time) (
	begun []store.Claimed, over bool,
) {
	if req.Limit == 0 || len(req.Refused) > 0 { // the run may be one that it refuses
		select {
		case <-woken:
			return nil, false
		case <-deadline:
		case <-ctx.Done():
		}
		return nil, true
	}
	waiting := h.opts.Runners.Wait(runner, min(req.Limit, maxClaim))
	given := false
	select {
	case begun = <-waiting.Given():
		given = true
	case <-woken:
	case <-deadline:
		over = true
	case <-ctx.Done():
		over = true
	}
	if !given {
		begun, given = waiting.Leave()
	}
	if given {
		h.idleRunners.invalidate(runner) // its empty result is no longer valid
	}
	return begun, over
}

// sendStarted returns runs that have started at this runner.
func (h *Handler) sendStarted(w http.ResponseWriter, r *http.Request, token store.Token, req dispatchapi.ClaimRequest, begun []store.Claimed) error {
	if r.Context().Err() != nil {
		return errors.Join(context.Cause(r.Context()), h.releaseStarted(r.Context(), begun))
	}
	memory, err := waitForMemory(r.Context(), h.claims, token.ProjectID, claimBytes(len(begun)))
	if err != nil {
		return err // they are leased to the runner, which asks again
	}
	defer memory.End()
	resp, err := h.buildResponse(r.Context(), token, req, store.ClaimResult{Runs: begun}, memory)
	if err != nil {
		return err
	}
	return h.sendClaimed(w, r, token, resp)
}

// releaseStarted releases runs that have started at a runner that did not get them.
func (h *Handler) releaseStarted(ctx context.Context, runs []store.Claimed) error {
	leases := make([]store.Lease, len(runs))
	for i, run := range runs {
		leases[i] = store.Lease{Run: run.Run.Key(), Token: run.Token}
	}
	return h.releaseAll(ctx, leases)
}
