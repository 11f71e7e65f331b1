// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

// claim hands out runs, waiting for something to say when there is nothing. A token
// that ended while it waits takes none.
func (h *Handler) claim(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.ClaimRequest
	if err := decode(w, r, dispatchapi.MaxSmallRequest, &req); err != nil {
		return err
	}
	if err := checkRunner(req); err != nil {
		return err
	}
	runner := store.RunnerKey{Environment: token.Environment(), ID: req.RunnerID}
	if req.Draining {
		err := h.call(r.Context(), token.ProjectID, func(ctx context.Context) error {
			_, err := h.opts.Store.Reclaim(ctx, runner.Environment, req.RunnerID, leasesOf(token, req.Holding))
			return err
		})
		if err == nil {
			httpserver.WriteJSON(w, http.StatusOK, newClaimResponse())
		}
		return err
	}
	defer h.attendance.wait(runner)()
	wait := min(time.Duration(max(req.WaitSeconds, 0))*time.Second, maxWait)
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		resp, woken, err := h.look(r.Context(), token, runner, req)
		if err != nil {
			return err
		}
		req.Unanswered = false // what there was to find is found
		if !empty(resp.ClaimResponse) || wait == 0 {
			defer resp.memory.End()
			return h.hand(w, r, token, resp.ClaimResponse)
		}
		if req.Limit == 0 { // to hear of what was lost, which hints of other things tell too often
			woken = after(r.Context(), woken, reportEvery)
		}
		begun, over := h.await(r.Context(), runner, req, woken, deadline.C)
		if _, err := h.tokens.of(r); err != nil {
			return errors.Join(err, h.giveBack(r.Context(), begun))
		}
		switch {
		case len(begun) > 0:
			return h.handBegun(w, r, token, req, begun)
		case over && r.Context().Err() == nil:
			return h.hand(w, r, token, resp.ClaimResponse)
		case over:
			return context.Cause(r.Context())
		}
	}
}

// claimBytes is what an answer with so many runs may take.
func claimBytes(runs int) int64 { return int64(runs+1) * (store.MaxInlineInput + runOverhead) }

// claimAnswer is what a runner is told, with the memory that it takes until it was.
type claimAnswer struct {
	dispatchapi.ClaimResponse
	memory *quota.Grant
}

// look finds out what there is to tell a runner; without anything, the channel
// says when to look again. It asks the store unless it knows that there is nothing.
func (h *Handler) look(ctx context.Context, token store.Token, runner store.RunnerKey, req dispatchapi.ClaimRequest) (
	claimAnswer, <-chan struct{}, error,
) {
	for {
		woken, rung, freed := h.wakeups.next(runner.Environment)
		if h.attendance.still(runner, req, rung) {
			return claimAnswer{ClaimResponse: newClaimResponse()}, woken, nil
		}
		resp, more, err := h.take(ctx, token, req)
		switch {
		case err != nil:
			return resp, nil, err
		case !empty(resp.ClaimResponse):
			return resp, nil, nil
		case more && h.wakeups.leave(runner.Environment, freed):
			continue // what was in the way has gone meanwhile
		case !more && req.Limit > 0: // else it was not looked for runs
			h.attendance.told(runner, req, rung)
		}
		return resp, woken, nil
	}
}

// after closes a moment after woken does.
func after(ctx context.Context, woken <-chan struct{}, wait time.Duration) <-chan struct{} {
	later := make(chan struct{})
	go func() {
		select {
		case <-woken:
			_ = pause.For(ctx, wait) // when ctx ends nobody waits any more
			close(later)
		case <-ctx.Done():
		}
	}()
	return later
}

func newClaimResponse() dispatchapi.ClaimResponse {
	return dispatchapi.ClaimResponse{Runs: []dispatchapi.Run{}, Lost: []dispatchapi.Lease{}, Prefetch: []string{}}
}

// empty says whether there is nothing to say to a runner.
func empty(resp dispatchapi.ClaimResponse) bool {
	return len(resp.Runs) == 0 && len(resp.Lost) == 0 && len(resp.Prefetch) == 0
}

func leasesOf(token store.Token, leases []dispatchapi.Lease) []store.Lease {
	out := make([]store.Lease, len(leases))
	for i, l := range leases {
		out[i] = store.Lease{Run: token.Run(l.RunID), Token: l.Token}
	}
	return out
}

func heldOf(token store.Token, held []dispatchapi.Held) []store.Held {
	out := make([]store.Held, len(held))
	for i, h := range held {
		out[i] = store.Held{Lease: store.Lease{Run: token.Run(h.RunID), Token: h.Token}, TestName: h.TestName}
	}
	return out
}

func wireLeases(leases []store.Lease) []dispatchapi.Lease {
	out := make([]dispatchapi.Lease, len(leases))
	for i, l := range leases {
		out[i] = dispatchapi.Lease{RunID: l.Run.ID, Token: l.Token}
	}
	return out
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// checkRunner refuses what cannot be a runner's name or a bundle's digest.
func checkRunner(req dispatchapi.ClaimRequest) error {
	if len(req.RunnerID) > dispatchapi.MaxRunnerID {
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeInvalid, fmt.Sprintf("runner_id has at most %d bytes.", dispatchapi.MaxRunnerID))
	}
	for _, digest := range slices.Concat(req.Digests, req.Refused) {
		if !digestForm.MatchString(digest) {
			return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeInvalid, "digests are of the form sha256:<64 hexadecimal digits>.")
		}
	}
	return nil
}

// take asks the store once; more says that runs are queued for which there is no place.
// An answer that says something holds its memory, as much as it may need until it is
// known how much it does.
func (h *Handler) take(ctx context.Context, token store.Token, req dispatchapi.ClaimRequest) (resp claimAnswer, more bool, err error) {
	limit := min(max(req.Limit, 0), maxClaim)
	memory, err := wait(ctx, h.claims, token.ProjectID, claimBytes(limit))
	if err != nil {
		return resp, false, err
	}
	defer func() {
		if err != nil || empty(resp.ClaimResponse) {
			memory.End()
		}
	}()
	// Begun, it is seen to its end: one that is given up with its request may be carried
	// out all the same, and nobody would know of its runs.
	var result store.ClaimResult
	err = h.call(ctx, token.ProjectID, func(ctx context.Context) error {
		begun, end := context.WithTimeout(context.WithoutCancel(ctx), callTime)
		defer end()
		result, err = h.opts.Store.Claim(begun, store.Claim{
			Environment: token.Environment(), RunnerID: req.RunnerID, Digests: req.Digests, Refused: req.Refused,
			Places: min(max(req.Places, 0), dispatchapi.MaxLeases), Limit: limit,
			Holding: leasesOf(token, req.Holding), Lease: store.UnconfirmedLease,
		})
		return err
	})
	if err != nil {
		return resp, false, err
	}
	resp.memory = memory
	resp.ClaimResponse, err = h.tell(ctx, token, req, result, memory)
	return resp, result.More, err
}

// tell makes an answer of what the store said, which keeps of memory what it takes.
func (h *Handler) tell(ctx context.Context, token store.Token, req dispatchapi.ClaimRequest, result store.ClaimResult, memory *quota.Grant) (
	dispatchapi.ClaimResponse, error,
) {
	resp := newClaimResponse()
	resp.Lost = wireLeases(slices.DeleteFunc(result.Lost, func(l store.Lease) bool {
		_, ended := h.ended.Get(l) // by the runner itself, which named it before
		return ended
	}))
	// What is beyond is leased, too: the runner does not name it and is handed it next.
	runs := result.Runs[:min(len(result.Runs), maxClaim)]
	for _, c := range runs {
		h.countClaim(c.Run)
		h.owners.Put(c.Run.Key(), token.EnvironmentID)
		resp.Runs = append(resp.Runs, wireRun(c))
	}
	// Without them no run is handed over: it is leased to the runner, which asks again.
	actions, err := h.addActions(ctx, token, resp.Runs)
	if err != nil {
		return newClaimResponse(), err
	}
	memory.Keep(h.inline(ctx, token, runs, resp.Runs) + actions)
	environment, err := h.environment(ctx, token.Environment(), len(result.Runs) > 0)
	if err != nil && len(result.Runs) == 0 {
		return resp, err
	}
	resp.Prefetch = wanted(environment, req)
	return resp, nil
}

// wanted are the bundles that a runner of an environment should fetch.
func wanted(environment store.Environment, req dispatchapi.ClaimRequest) []string {
	digests := []string{}
	for _, digest := range []string{environment.WantedBundleDigest, environment.LiveBundleDigest} {
		if digest != "" && !slices.Contains(req.Digests, digest) && !slices.Contains(req.Refused, digest) && !slices.Contains(digests, digest) {
			digests = append(digests, digest)
		}
	}
	return digests
}

// inline leaves in the answer what is short of the runs' inputs and journals, in their
// order, as long as there is room: the rest is to be fetched. It returns what the
// answer takes. What cannot be read now is fetched too: the runs are claimed, whatever
// becomes of it.
func (h *Handler) inline(ctx context.Context, token store.Token, claimed []store.Claimed, runs []dispatchapi.Run) (taken int64) {
	inputs, journals := int64(maxInline), int64(maxInlineJournals)
	for i, c := range claimed {
		if size := int64(len(c.Input)); size <= inputs {
			inputs -= size
		} else {
			runs[i].Input, runs[i].InputElsewhere = nil, true
		}
		size := c.JournalSize
		if runs[i].JournalElsewhere = size > journals; size == 0 || size > journals {
			continue
		}
		var entries []store.JournalEntry
		if err := h.call(ctx, token.ProjectID, func(ctx context.Context) (err error) {
			entries, err = h.opts.Store.Journal(ctx, token.Run(c.Run.ID))
			return err
		}); err != nil {
			runs[i].JournalElsewhere = true
			continue
		}
		journals -= size
		runs[i].Journal = wireEntries(entries)
	}
	return maxInline - inputs + maxInlineJournals - journals + int64(len(runs)+1)*runOverhead
}

func (h *Handler) countClaim(run store.Run) {
	if run.Attempt > 1 || run.StartedAt == nil {
		h.opts.Metrics.ClaimedAgain()
		return
	}
	h.opts.Metrics.Claimed(run.StartedAt.Sub(run.QueuedAt))
}

// environment reads an environment; a recent one will do for a runner that has
// work to get at.
func (h *Handler) environment(ctx context.Context, key store.Key, busy bool) (store.Environment, error) {
	if known, ok := h.environments.Get(key); ok && busy {
		return known, nil
	}
	var environment store.Environment
	err := h.call(ctx, key.ProjectID, func(ctx context.Context) (err error) {
		environment, err = h.opts.Store.Environment(ctx, key)
		return err
	})
	if err == nil {
		h.environments.Put(key, environment)
	}
	return environment, err
}

// hand answers a claim; runs of a runner that has gone meanwhile are given back.
func (h *Handler) hand(w http.ResponseWriter, r *http.Request, token store.Token, resp dispatchapi.ClaimResponse) error {
	if r.Context().Err() == nil {
		httpserver.WriteJSON(timed(w), http.StatusOK, resp)
		return nil
	}
	leases := make([]store.Lease, len(resp.Runs))
	for i, run := range resp.Runs {
		leases[i] = store.Lease{Run: token.Run(run.ID), Token: run.Token}
	}
	return errors.Join(context.Cause(r.Context()), h.releaseAll(r.Context(), leases))
}

// releaseAll gives runs back, also when the request has ended.
func (h *Handler) releaseAll(ctx context.Context, leases []store.Lease) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	for _, lease := range leases {
		err = errors.Join(err, h.opts.Store.Release(ctx, lease, 0))
	}
	return err
}

func wireRun(c store.Claimed) dispatchapi.Run {
	run := dispatchapi.Run{
		ID: c.Run.ID, Token: c.Token, LeaseSeconds: max(c.LeaseUntil.Sub(c.Now), 0).Seconds(), AgentName: c.Run.AgentName,
		TestName:     c.Run.TestName,
		BundleDigest: c.BundleDigest, ContentType: c.ContentType, Input: c.Input, InputElsewhere: c.InputBlob != nil, Files: c.Files,
		Headers: c.Headers,
		Attempt: c.Run.Attempt, QueuedAt: c.Run.QueuedAt, Now: c.Now,
	}
	if c.Run.StartedAt != nil {
		run.StartedAt = *c.Run.StartedAt
	}
	if c.Run.DeploymentID != nil {
		run.DeploymentID = *c.Run.DeploymentID
	}
	if c.Run.ConnectorID != nil {
		run.ConnectorID = *c.Run.ConnectorID
	}
	return run
}
