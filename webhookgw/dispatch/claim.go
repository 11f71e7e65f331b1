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

// claimRuns returns runs to a runner, and waits if there are none. A token that expired meanwhile gets
// no runs.
func (h *Handler) claimRuns(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.ClaimRequest
	if err := decodeRequest(w, r, dispatchapi.MaxSmallRequest, &req); err != nil {
		return err
	}
	if err := checkRunner(req); err != nil {
		return err
	}
	runner := store.RunnerKey{Environment: token.Environment(), ID: req.RunnerID}
	if req.Draining {
		err := h.callStore(r.Context(), token.ProjectID, func(ctx context.Context) error {
			_, err := h.opts.Store.Reclaim(ctx, runner.Environment, req.RunnerID, leasesOf(token, req.Holding))
			return err
		})
		if err == nil {
			httpserver.WriteJSON(w, http.StatusOK, newClaimResponse())
		}
		return err
	}
	defer h.idleRunners.addWaiting(runner)()
	h.startDriftRecord(r.Context(), token, req.Drift)
	wait := min(time.Duration(max(req.WaitSeconds, 0))*time.Second, maxWait)
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		resp, woken, err := h.findWork(r.Context(), token, runner, req)
		if err != nil {
			return err
		}
		req.Unanswered = false // the lost response was handled
		if !isEmptyResponse(resp.ClaimResponse) || wait == 0 {
			defer resp.memory.End()
			return h.sendClaimed(w, r, token, resp.ClaimResponse)
		}
		if req.Limit == 0 { // for lost runs, because hints about other work come too often
			woken = delayedSignal(r.Context(), woken, reportEvery)
		}
		begun, over := h.awaitWork(r.Context(), runner, req, woken, deadline.C)
		if _, err := h.tokens.tokenOf(r); err != nil {
			return errors.Join(err, h.releaseStarted(r.Context(), begun))
		}
		switch {
		case len(begun) > 0:
			return h.sendStarted(w, r, token, req, begun)
		case over && r.Context().Err() == nil:
			return h.sendClaimed(w, r, token, resp.ClaimResponse)
		case over:
			return context.Cause(r.Context())
		}
	}
}

// claimBytes returns the maximum size of a response with the given number of runs.
func claimBytes(runs int) int64 { return int64(runs+1) * (store.MaxInlineInput + runOverhead) }

// claimAnswer is a response to a runner, with the memory that it holds until it is sent.
type claimAnswer struct {
	dispatchapi.ClaimResponse
	memory *quota.Grant
}

// findWork returns the response for a runner. If the response is empty, the channel closes when the caller
// should query again. findWork queries the store unless the result is known to be empty.
func (h *Handler) findWork(ctx context.Context, token store.Token, runner store.RunnerKey, req dispatchapi.ClaimRequest) (
	claimAnswer, <-chan struct{}, error,
) {
	for {
		woken, rung, freed := h.wakeups.nextHint(runner.Environment)
		if h.idleRunners.isStillEmpty(runner, req, rung) {
			return claimAnswer{ClaimResponse: newClaimResponse()}, woken, nil
		}
		resp, more, err := h.claimOnce(ctx, token, req)
		switch {
		case err != nil:
			return resp, nil, err
		case !isEmptyResponse(resp.ClaimResponse):
			return resp, nil, nil
		case more && h.wakeups.noteLeftover(runner.Environment, freed):
			continue // the reason has changed meanwhile
		case !more && req.Limit > 0: // otherwise the query did not look for runs
			h.idleRunners.rememberEmpty(runner, req, rung)
		}
		return resp, woken, nil
	}
}

// delayedSignal closes its channel shortly after woken closes.
func delayedSignal(ctx context.Context, woken <-chan struct{}, wait time.Duration) <-chan struct{} {
	later := make(chan struct{})
	go func() {
		select {
		case <-woken:
			_ = pause.For(ctx, wait) // nothing waits after ctx ends
			close(later)
		case <-ctx.Done():
		}
	}()
	return later
}

func newClaimResponse() dispatchapi.ClaimResponse {
	return dispatchapi.ClaimResponse{Runs: []dispatchapi.Run{}, Lost: []dispatchapi.Lease{}, Prefetch: []string{}}
}

// isEmptyResponse reports whether a response has no content.
func isEmptyResponse(resp dispatchapi.ClaimResponse) bool {
	return len(resp.Runs) == 0 && len(resp.Lost) == 0 && len(resp.Prefetch) == 0
}

func leasesOf(token store.Token, leases []dispatchapi.Lease) []store.Lease {
	out := make([]store.Lease, len(leases))
	for i, l := range leases {
		out[i] = store.Lease{Run: token.Run(l.RunID), Token: l.Token}
	}
	return out
}

func heldRuns(token store.Token, held []dispatchapi.Held) []store.Held {
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

// checkRunner rejects invalid runner names and bundle digests.
func checkRunner(req dispatchapi.ClaimRequest) error {
	if len(req.RunnerID) > dispatchapi.MaxRunnerID {
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeInvalid, fmt.Sprintf("runner_id has at most %d bytes.", dispatchapi.MaxRunnerID))
	}
	for _, digest := range slices.Concat(req.Digests, req.Refused) {
		if !digestForm.MatchString(digest) {
			return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeInvalid, "A digest must have the form sha256:<64 hexadecimal digits>.")
		}
	}
	return nil
}

// claimOnce queries the store once. more means that runs are queued without a free slot. A non-empty
// response holds its maximum memory until its size is known.
func (h *Handler) claimOnce(ctx context.Context, token store.Token, req dispatchapi.ClaimRequest) (resp claimAnswer, more bool, err error) {
	limit := min(max(req.Limit, 0), maxClaim)
	memory, err := waitForMemory(ctx, h.claims, token.ProjectID, claimBytes(limit))
	if err != nil {
		return resp, false, err
	}
	defer func() {
		if err != nil || isEmptyResponse(resp.ClaimResponse) {
			memory.End()
		}
	}()
	// A started claim is completed even if the request ends. The transaction could commit anyway,
	// and its runs would be unknown.
	var result store.ClaimResult
	err = h.callStore(ctx, token.ProjectID, func(ctx context.Context) error {
		begun, end := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer end()
		result, err = h.opts.Store.Claim(begun, store.Claim{
			Environment: token.Environment(), RunnerID: req.RunnerID, Digests: req.Digests, Refused: req.Refused,
			Slots: min(max(req.Slots, 0), dispatchapi.MaxLeases), Limit: limit,
			Holding: leasesOf(token, req.Holding), Lease: store.UnconfirmedLease,
		})
		return err
	})
	if err != nil {
		return resp, false, err
	}
	resp.memory = memory
	resp.ClaimResponse, err = h.buildResponse(ctx, token, req, result, memory)
	return resp, result.More, err
}

// buildResponse converts a claim result into a response, and keeps only the memory that the response uses.
func (h *Handler) buildResponse(ctx context.Context, token store.Token, req dispatchapi.ClaimRequest, result store.ClaimResult, memory *quota.Grant) (
	dispatchapi.ClaimResponse, error,
) {
	resp := newClaimResponse()
	resp.Lost = wireLeases(slices.DeleteFunc(result.Lost, func(l store.Lease) bool {
		_, ended := h.ended.Get(l) // ended by the runner itself, which named it before
		return ended
	}))
	// The other runs are leased too. The runner does not name them in its next request and gets
	// them then.
	runs := result.Runs[:min(len(result.Runs), maxClaim)]
	for _, c := range runs {
		h.countClaim(c.Run)
		h.owners.Put(c.Run.Key(), token.EnvironmentID)
		resp.Runs = append(resp.Runs, wireRun(c))
	}
	// Without its tools no run is handed over. It stays leased to the runner, which asks again.
	actions, err := h.addActions(ctx, token, resp.Runs)
	if err != nil {
		return newClaimResponse(), err
	}
	memory.Keep(h.inlineContents(ctx, token, runs, resp.Runs) + actions)
	environment, err := h.environment(ctx, token.Environment(), len(result.Runs) > 0)
	if err != nil && len(result.Runs) == 0 {
		return resp, err
	}
	resp.Prefetch = wantedBundles(environment, req)
	return resp, nil
}

// wantedBundles returns the bundles that a runner of an environment should fetch.
func wantedBundles(environment store.Environment, req dispatchapi.ClaimRequest) []string {
	digests := []string{}
	for _, digest := range []string{environment.WantedBundleDigest, environment.LiveBundleDigest} {
		if digest != "" && !slices.Contains(req.Digests, digest) && !slices.Contains(req.Refused, digest) && !slices.Contains(digests, digest) {
			digests = append(digests, digest)
		}
	}
	return digests
}

// inlineContents adds short inputs and journals to the response, in order, while there is space. The runner
// fetches the rest. It returns the size of the response. If a content cannot be read now, the runner fetches
// it too, because the runs are already claimed.
func (h *Handler) inlineContents(ctx context.Context, token store.Token, claimed []store.Claimed, runs []dispatchapi.Run) (taken int64) {
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
		if err := h.callStore(ctx, token.ProjectID, func(ctx context.Context) (err error) {
			entries, err = h.opts.Store.JournalAfter(ctx, token.Run(c.Run.ID), 0, int(c.JournalLength)) // at most a page
			return err
		}); err != nil || journalBytes(entries) > journals || int64(len(entries)) != c.JournalLength {
			runs[i].JournalElsewhere = true
			continue
		}
		journals -= size
		runs[i].Journal = wireEntries(entries)
	}
	return maxInline - inputs + maxInlineJournals - journals + int64(len(runs)+1)*runOverhead
}

// journalBytes returns the bytes of journal entries.
func journalBytes(entries []store.JournalEntry) (size int64) {
	for _, e := range entries {
		size += e.Size()
	}
	return size
}

func (h *Handler) countClaim(run store.Run) {
	if run.Attempt > 1 || run.StartedAt == nil {
		h.opts.Metrics.ClaimedAgain()
		return
	}
	h.opts.Metrics.Claimed(run.StartedAt.Sub(run.QueuedAt))
}

// environment reads an environment. For a runner with work a cached one is enough.
func (h *Handler) environment(ctx context.Context, key store.Key, busy bool) (store.Environment, error) {
	if known, ok := h.environments.Get(key); ok && busy {
		return known, nil
	}
	var environment store.Environment
	err := h.callStore(ctx, key.ProjectID, func(ctx context.Context) (err error) {
		environment, err = h.opts.Store.Environment(ctx, key)
		return err
	})
	if err == nil {
		h.environments.Put(key, environment)
	}
	return environment, err
}

// sendClaimed writes the response to a claim. If the runner has disconnected, it releases the runs.
func (h *Handler) sendClaimed(w http.ResponseWriter, r *http.Request, token store.Token, resp dispatchapi.ClaimResponse) error {
	if r.Context().Err() == nil {
		httpserver.WriteJSON(withDeadline(w), http.StatusOK, resp)
		return nil
	}
	leases := make([]store.Lease, len(resp.Runs))
	for i, run := range resp.Runs {
		leases[i] = store.Lease{Run: token.Run(run.ID), Token: run.Token}
	}
	return errors.Join(context.Cause(r.Context()), h.releaseAll(r.Context(), leases))
}

// releaseAll releases runs, even if the request has ended.
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
		Headers: c.Headers, Traceparent: c.Traceparent,
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
