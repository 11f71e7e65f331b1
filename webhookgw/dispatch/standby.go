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

// await waits for something to look for, or for runs that begin at this runner with their
// acceptance; over when the wait is.
func (h *Handler) await(ctx context.Context, runner store.RunnerKey, req dispatchapi.ClaimRequest, woken <-chan struct{}, deadline <-chan time.Time) (
	begun []store.Claimed, over bool,
) {
	if req.Limit == 0 || len(req.Refused) > 0 { // a run may be one of what it refuses
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
		h.attendance.forget(runner) // what it was told does not hold any more
	}
	return begun, over
}

// handBegun answers a claim with runs that have begun at its runner.
func (h *Handler) handBegun(w http.ResponseWriter, r *http.Request, token store.Token, req dispatchapi.ClaimRequest, begun []store.Claimed) error {
	if r.Context().Err() != nil {
		return errors.Join(context.Cause(r.Context()), h.giveBack(r.Context(), begun))
	}
	memory, err := wait(r.Context(), h.claims, token.ProjectID, claimBytes(len(begun)))
	if err != nil {
		return err // they are leased to the runner, which asks again
	}
	defer memory.End()
	resp, err := h.tell(r.Context(), token, req, store.ClaimResult{Runs: begun}, memory)
	if err != nil {
		return err
	}
	return h.hand(w, r, token, resp)
}

// giveBack gives back runs that have begun at a runner which is not handed them.
func (h *Handler) giveBack(ctx context.Context, runs []store.Claimed) error {
	leases := make([]store.Lease, len(runs))
	for i, run := range runs {
		leases[i] = store.Lease{Run: run.Run.Key(), Token: run.Token}
	}
	return h.releaseAll(ctx, leases)
}
