// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// claim hands out runs, waiting for one when there is none and a bundle to
// prefetch neither. A token that ended while it waits takes none.
func (h *Handler) claim(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.ClaimRequest
	if err := decode(w, r, dispatchapi.MaxSmallRequest, &req); err != nil {
		return err
	}
	if err := checkRunner(req); err != nil {
		return err
	}
	wait := min(time.Duration(max(req.WaitSeconds, 0))*time.Second, maxWait)
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		woken := h.wakeups.next(token.Environment())
		resp, err := h.take(r.Context(), token, req)
		if err != nil {
			return err
		}
		if len(resp.Runs) > 0 || len(resp.Prefetch) > 0 || wait == 0 {
			return h.hand(w, r, token, resp)
		}
		select {
		case <-woken:
		case <-poll.C:
		case <-deadline.C:
			return h.hand(w, r, token, resp)
		case <-r.Context().Done():
			return context.Cause(r.Context())
		}
		if _, err := h.token(r); err != nil {
			return err
		}
	}
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// checkRunner refuses what cannot be a runner's name or a bundle's digest.
func checkRunner(req dispatchapi.ClaimRequest) error {
	if len(req.RunnerID) > dispatchapi.MaxRunnerID {
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeInvalid, fmt.Sprintf("runner_id has at most %d bytes.", dispatchapi.MaxRunnerID))
	}
	for _, digest := range req.Digests {
		if !digestForm.MatchString(digest) {
			return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeInvalid, "digests are of the form sha256:<64 hexadecimal digits>.")
		}
	}
	return nil
}

// take asks the store once.
func (h *Handler) take(ctx context.Context, token store.Token, req dispatchapi.ClaimRequest) (dispatchapi.ClaimResponse, error) {
	resp := dispatchapi.ClaimResponse{Runs: []dispatchapi.Run{}, Prefetch: []string{}}
	claimed, err := h.opts.Store.Claim(ctx, store.Claim{
		Environment: token.Environment(), RunnerID: req.RunnerID, Digests: req.Digests,
		Limit: min(max(req.Limit, 0), maxClaim), Lease: store.LeaseDuration,
	})
	if err != nil {
		return resp, err
	}
	for _, c := range claimed {
		h.countClaim(c.Run)
		h.owners.Put(c.Run.Key(), token.EnvironmentID)
		resp.Runs = append(resp.Runs, wireRun(c, store.LeaseDuration))
	}
	environment, err := h.environment(ctx, token.Environment(), len(claimed) > 0)
	if err != nil && len(claimed) == 0 {
		return resp, err
	}
	for _, digest := range []string{environment.WantedBundleDigest, environment.LiveBundleDigest} {
		if digest != "" && !slices.Contains(req.Digests, digest) && !slices.Contains(resp.Prefetch, digest) {
			resp.Prefetch = append(resp.Prefetch, digest)
		}
	}
	return resp, nil
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
	environment, err := h.opts.Store.Environment(ctx, key)
	if err == nil {
		h.environments.Put(key, environment)
	}
	return environment, err
}

// hand answers a claim; runs of a runner that has gone meanwhile are given back.
func (h *Handler) hand(w http.ResponseWriter, r *http.Request, token store.Token, resp dispatchapi.ClaimResponse) error {
	if r.Context().Err() == nil {
		httpserver.WriteJSON(w, http.StatusOK, resp)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), releaseTimeout)
	defer cancel()
	gone := context.Cause(r.Context())
	for _, run := range resp.Runs {
		gone = errors.Join(gone, h.opts.Store.Release(ctx, store.Lease{Run: token.Run(run.ID), Token: run.Token}))
	}
	return gone
}

func wireRun(c store.Claimed, lease time.Duration) dispatchapi.Run {
	run := dispatchapi.Run{
		ID: c.Run.ID, Token: c.Token, LeaseSeconds: lease.Seconds(), AgentName: c.Run.AgentName, BundleDigest: c.BundleDigest,
		ContentType: c.ContentType, Input: c.Input, InputElsewhere: c.InputBlob != nil, Attempt: c.Run.Attempt, QueuedAt: c.Run.QueuedAt,
	}
	if c.Run.DeploymentID != nil {
		run.DeploymentID = *c.Run.DeploymentID
	}
	if c.Run.ConnectorID != nil {
		run.ConnectorID = *c.Run.ConnectorID
	}
	for _, e := range c.Journal {
		run.Journal = append(run.Journal, dispatchapi.JournalEntry{Sequence: e.Sequence, Kind: string(e.Kind), Data: e.Data, Unsafe: e.Unsafe})
	}
	return run
}

func (h *Handler) heartbeat(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.HeartbeatRequest
	if err := decode(w, r, dispatchapi.MaxSmallRequest, &req); err != nil {
		return err
	}
	leases := make([]store.Lease, 0, len(req.Leases))
	for _, l := range req.Leases {
		if err := h.owned(r.Context(), l.RunID, token); err != nil {
			return err
		}
		leases = append(leases, store.Lease{Run: token.Run(l.RunID), Token: l.Token})
	}
	lost, err := h.opts.Store.Heartbeat(r.Context(), leases, store.LeaseDuration)
	if err != nil {
		return err
	}
	resp := dispatchapi.HeartbeatResponse{Lost: []dispatchapi.Lease{}, LeaseSeconds: store.LeaseDuration.Seconds()}
	for _, l := range lost {
		resp.Lost = append(resp.Lost, dispatchapi.Lease{RunID: l.Run.ID, Token: l.Token})
	}
	httpserver.WriteJSON(w, http.StatusOK, resp)
	return nil
}

func (h *Handler) journal(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.JournalRequest
	lease, err := h.lease(w, r, token, dispatchapi.MaxRequest, &req, func() int64 { return req.Token })
	if err != nil {
		return err
	}
	return done(w, h.opts.Store.AppendJournal(r.Context(), lease, entries(req.Entries)))
}

func (h *Handler) complete(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.CompleteRequest
	lease, err := h.lease(w, r, token, dispatchapi.MaxRequest, &req, func() int64 { return req.Token })
	if err != nil {
		return err
	}
	status := store.RunStatus(req.Status)
	if !status.Terminal() || !store.RunRunning.CanBecome(status) {
		return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeInvalidStatus, "A run ends completed, failed or cancelled.")
	}
	completion := store.Completion{
		Lease: lease, Status: status, ErrorCode: store.RunErrorCode(req.ErrorCode), Error: req.Error, Output: req.Output,
		Usage: store.TokenUsage(req.Usage), Journal: entries(req.Journal),
	}
	if err := completion.Check(); err != nil {
		return err
	}
	err = h.opts.Store.Complete(r.Context(), completion)
	if err == nil {
		h.opts.Metrics.Ended(string(completion.Bounded().Status), 1) // a repeated report, too
	}
	return done(w, err)
}

func (h *Handler) release(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.ReleaseRequest
	lease, err := h.lease(w, r, token, dispatchapi.MaxSmallRequest, &req, func() int64 { return req.Token })
	if err != nil {
		return err
	}
	return done(w, h.opts.Store.Release(r.Context(), lease))
}

// lease reads a request about a claim on a run of the token's environment.
func (h *Handler) lease(w http.ResponseWriter, r *http.Request, token store.Token, limit int64, into any, fence func() int64) (store.Lease, error) {
	id, err := runID(r)
	if err != nil {
		return store.Lease{}, err
	}
	if err := h.owned(r.Context(), id, token); err != nil {
		return store.Lease{}, err
	}
	if err := decode(w, r, limit, into); err != nil {
		return store.Lease{}, err
	}
	return store.Lease{Run: token.Run(id), Token: fence()}, nil
}

func (h *Handler) input(w http.ResponseWriter, r *http.Request, token store.Token) error {
	id, err := runID(r)
	if err != nil {
		return err
	}
	if err := h.owned(r.Context(), id, token); err != nil {
		return err
	}
	contentType, body, err := h.opts.Store.RunInput(r.Context(), token.Run(id))
	if err != nil {
		return err
	}
	defer body.Close()
	return stream(w, contentType, body)
}

// owned says ErrNotFound of a run of another environment.
func (h *Handler) owned(ctx context.Context, id uuid.UUID, token store.Token) error {
	environment, known := h.owners.Get(token.Run(id))
	if !known {
		run, err := h.opts.Store.Run(ctx, token.Run(id))
		if err != nil {
			return err
		}
		environment = run.EnvironmentID
		h.owners.Put(token.Run(id), environment)
	}
	if environment != token.EnvironmentID {
		return store.ErrNotFound
	}
	return nil
}

func (h *Handler) bundle(w http.ResponseWriter, r *http.Request, token store.Token) error {
	digest := chi.URLParam(r, "digest")
	if err := h.opts.Store.NamesBundle(r.Context(), token.Environment(), digest); err != nil {
		return err
	}
	body, err := h.opts.Store.OpenBundle(r.Context(), token.ProjectID, digest)
	if err != nil {
		return err
	}
	defer body.Close()
	return stream(w, "application/zstd", body)
}

// stream copies a body. Once it has begun an error can only break it off, so
// that the other side sees that it is not whole.
func stream(w http.ResponseWriter, contentType string, body io.Reader) error {
	w.Header().Set("Content-Type", contentType)
	if _, err := io.Copy(w, body); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

func entries(in []dispatchapi.JournalEntry) []store.JournalEntry {
	out := make([]store.JournalEntry, len(in))
	for i, e := range in {
		out[i] = store.JournalEntry{Sequence: e.Sequence, Kind: store.JournalKind(e.Kind), Data: e.Data, Unsafe: e.Unsafe}
	}
	return out
}

func done(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
