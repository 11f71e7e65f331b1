// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	wire "github.com/agentplatform/agentplatform/internal/dispatch"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// claim hands out runs, waiting for one when there is none and a bundle to
// prefetch neither.
func (h *Handler) claim(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req wire.ClaimRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	wait := min(time.Duration(max(req.WaitSeconds, 0))*time.Second, maxWait)
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		woken := h.wakeups.next(token.EnvironmentID)
		resp, err := h.take(r.Context(), token, req)
		if err != nil {
			return err
		}
		if len(resp.Runs) > 0 || len(resp.Prefetch) > 0 || wait == 0 {
			return h.hand(w, r, resp)
		}
		select {
		case <-woken:
		case <-poll.C:
		case <-deadline.C:
			return h.hand(w, r, resp)
		case <-r.Context().Done():
			return context.Cause(r.Context())
		}
	}
}

// take asks the store once.
func (h *Handler) take(ctx context.Context, token store.Token, req wire.ClaimRequest) (wire.ClaimResponse, error) {
	resp := wire.ClaimResponse{Runs: []wire.Run{}, Prefetch: []string{}}
	claimed, err := h.opts.Store.Claim(ctx, store.Claim{
		EnvironmentID: token.EnvironmentID, RunnerID: req.RunnerID, Digests: req.Digests,
		Limit: min(max(req.Limit, 0), maxClaim), Lease: h.opts.Lease,
	})
	if err != nil {
		return resp, err
	}
	for _, c := range claimed {
		h.owners.put(c.Run.ID, token.EnvironmentID)
		resp.Runs = append(resp.Runs, wireRun(c, h.opts.Lease))
	}
	environment, err := h.environment(ctx, token.EnvironmentID, len(claimed) > 0)
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

// environment reads an environment; a recent one will do for a runner that has
// work to get at.
func (h *Handler) environment(ctx context.Context, id uuid.UUID, busy bool) (store.Environment, error) {
	if known, ok := h.environments.get(id); ok && busy {
		return known, nil
	}
	environment, err := h.opts.Store.Environment(ctx, id)
	if err == nil {
		h.environments.put(id, environment)
	}
	return environment, err
}

// hand answers a claim; runs of a runner that has gone meanwhile are given back.
func (h *Handler) hand(w http.ResponseWriter, r *http.Request, resp wire.ClaimResponse) error {
	if r.Context().Err() == nil {
		httpserver.WriteJSON(w, http.StatusOK, resp)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), releaseTimeout)
	defer cancel()
	gone := context.Cause(r.Context())
	for _, run := range resp.Runs {
		gone = errors.Join(gone, h.opts.Store.Release(ctx, store.Lease{RunID: run.ID, Token: run.Token}))
	}
	return gone
}

func wireRun(c store.Claimed, lease time.Duration) wire.Run {
	run := wire.Run{
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
		run.Journal = append(run.Journal, wire.JournalEntry{Sequence: e.Sequence, Kind: string(e.Kind), Data: e.Data, Unsafe: e.Unsafe})
	}
	return run
}

func (h *Handler) heartbeat(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req wire.HeartbeatRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	leases := make([]store.Lease, 0, len(req.Leases))
	for _, l := range req.Leases {
		if err := h.owned(r.Context(), l.RunID, token); err != nil {
			return err
		}
		leases = append(leases, store.Lease{RunID: l.RunID, Token: l.Token})
	}
	lost, err := h.opts.Store.Heartbeat(r.Context(), leases, h.opts.Lease)
	if err != nil {
		return err
	}
	resp := wire.HeartbeatResponse{Lost: []wire.Lease{}, LeaseSeconds: h.opts.Lease.Seconds()}
	for _, l := range lost {
		resp.Lost = append(resp.Lost, wire.Lease{RunID: l.RunID, Token: l.Token})
	}
	httpserver.WriteJSON(w, http.StatusOK, resp)
	return nil
}

func (h *Handler) journal(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req wire.JournalRequest
	lease, err := h.lease(w, r, token, &req, func() int64 { return req.Token })
	if err != nil {
		return err
	}
	return done(w, h.opts.Store.AppendJournal(r.Context(), lease, entries(req.Entries)))
}

func (h *Handler) complete(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req wire.CompleteRequest
	lease, err := h.lease(w, r, token, &req, func() int64 { return req.Token })
	if err != nil {
		return err
	}
	status := store.RunStatus(req.Status)
	if !status.Terminal() || !store.RunRunning.CanBecome(status) {
		return httpserver.NewProblem(http.StatusBadRequest, "invalid_status", "A run ends completed, failed or cancelled.")
	}
	return done(w, h.opts.Store.Complete(r.Context(), store.Completion{
		Lease: lease, Status: status, ErrorCode: store.RunErrorCode(req.ErrorCode), Error: req.Error, Output: req.Output,
		Usage: store.TokenUsage(req.Usage), Journal: entries(req.Journal),
	}))
}

func (h *Handler) release(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req wire.ReleaseRequest
	lease, err := h.lease(w, r, token, &req, func() int64 { return req.Token })
	if err != nil {
		return err
	}
	return done(w, h.opts.Store.Release(r.Context(), lease))
}

// lease reads a request about a claim on a run of the token's environment.
func (h *Handler) lease(w http.ResponseWriter, r *http.Request, token store.Token, into any, fence func() int64) (store.Lease, error) {
	id, err := runID(r)
	if err != nil {
		return store.Lease{}, err
	}
	if err := h.owned(r.Context(), id, token); err != nil {
		return store.Lease{}, err
	}
	if err := decode(w, r, into); err != nil {
		return store.Lease{}, err
	}
	return store.Lease{RunID: id, Token: fence()}, nil
}

func (h *Handler) input(w http.ResponseWriter, r *http.Request, token store.Token) error {
	id, err := runID(r)
	if err != nil {
		return err
	}
	if err := h.owned(r.Context(), id, token); err != nil {
		return err
	}
	contentType, body, err := h.opts.Store.RunInput(r.Context(), id)
	if err != nil {
		return err
	}
	defer body.Close()
	return stream(w, contentType, body)
}

// owned says ErrNotFound of a run of another environment.
func (h *Handler) owned(ctx context.Context, id uuid.UUID, token store.Token) error {
	environment, known := h.owners.get(id)
	if !known {
		run, err := h.opts.Store.Run(ctx, id)
		if err != nil {
			return err
		}
		environment = run.EnvironmentID
		h.owners.put(id, environment)
	}
	if environment != token.EnvironmentID {
		return store.ErrNotFound
	}
	return nil
}

func (h *Handler) bundle(w http.ResponseWriter, r *http.Request, token store.Token) error {
	body, err := h.opts.Store.OpenBundle(r.Context(), token.ProjectID, chi.URLParam(r, "digest"))
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

func entries(in []wire.JournalEntry) []store.JournalEntry {
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
