// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// heartbeat renews claims, each separately. If a run is missing or belongs to another environment,
// its claim is lost. It reads no run for that.
func (h *Handler) heartbeat(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.HeartbeatRequest
	if err := decodeRequest(w, r, dispatchapi.MaxSmallRequest, &req); err != nil {
		return err
	}
	var lost []store.Lease
	err := runInQueue(r.Context(), h.beats, token.ProjectID, func(ctx context.Context) (err error) {
		lost, err = h.opts.Store.Heartbeat(ctx, token.Environment(), heldRuns(token, req.Leases), store.LeaseDuration)
		return err
	})
	if err != nil {
		return err
	}
	httpserver.WriteJSON(w, http.StatusOK, dispatchapi.HeartbeatResponse{
		Lost: wireLeases(lost), LeaseSeconds: store.LeaseDuration.Seconds(),
	})
	return nil
}

func (h *Handler) complete(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.CompleteRequest
	lease, err := h.readLease(w, r, token, dispatchapi.MaxRequest, &req, func() int64 { return req.Token })
	if err != nil {
		return err
	}
	status := store.RunStatus(req.Status)
	if !status.Terminal() || !store.RunRunning.CanBecome(status) {
		return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeInvalidStatus, "The status must be completed, failed or cancelled.")
	}
	journal, err := storeEntries(req.Journal)
	if err != nil {
		return err
	}
	completion := store.Completion{
		Lease: lease, TestName: req.TestName, Status: status, ErrorCode: req.ErrorCode, Error: req.Error, Output: req.Output,
		FinishReason: req.FinishReason, Usage: store.TokenUsage(req.Usage), Journal: journal, Context: req.Context, Unpublished: req.Unpublished,
	}
	if err := completion.Check(); err != nil {
		return err
	}
	completion = completion.Bounded()
	_, again := h.ended.Get(lease)
	err = h.ends.complete(r.Context(), completion, again)
	if err == nil {
		h.ended.Put(lease, struct{}{})
		h.opts.Metrics.Ended(string(completion.Status), 1) // including repeated reports
	}
	return writeNoContent(w, err)
}

func (h *Handler) release(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.ReleaseRequest
	lease, err := h.readLease(w, r, token, dispatchapi.MaxSmallRequest, &req, func() int64 { return req.Token })
	if err != nil {
		return err
	}
	delay := min(max(time.Duration(req.DelaySeconds)*time.Second, 0), maxDelay)
	err = h.callStore(r.Context(), token.ProjectID, func(ctx context.Context) error { return h.opts.Store.Release(ctx, lease, delay) })
	if err == nil {
		h.ended.Put(lease, struct{}{})
		if delay > 0 { // no hint reports the end of the delay
			time.AfterFunc(delay, func() { h.wakeups.notifyEnvironment(token.Environment()) })
		}
	}
	return writeNoContent(w, err)
}

// readLease decodes a request about a claim on a run of the token's environment.
func (h *Handler) readLease(w http.ResponseWriter, r *http.Request, token store.Token, limit int64, into any, fence func() int64) (store.Lease, error) {
	run, err := h.ownedRun(r, token)
	if err != nil {
		return store.Lease{}, err
	}
	if err := decodeRequest(w, r, limit, into); err != nil {
		return store.Lease{}, err
	}
	return store.Lease{Run: run, Token: fence()}, nil
}

func (h *Handler) streamInput(w http.ResponseWriter, r *http.Request, token store.Token) error {
	run, err := h.ownedRun(r, token)
	if err != nil {
		return err
	}
	return h.streamBlob(w, r, token, func(ctx, _ context.Context) (string, io.ReadCloser, error) {
		return h.opts.Store.RunInput(ctx, run)
	})
}

// ownedRun returns the run in the path of a request. It returns ErrNotFound if the run is missing or belongs to another environment.
func (h *Handler) ownedRun(r *http.Request, token store.Token) (store.Key, error) {
	id, err := runIDParam(r)
	if err != nil {
		return store.Key{}, err
	}
	return token.Run(id), h.verifyOwned(r.Context(), id, token)
}

// verifyOwned returns ErrNotFound if a run is missing or belongs to another environment.
func (h *Handler) verifyOwned(ctx context.Context, id uuid.UUID, token store.Token) error {
	owned, err := h.ownedRuns(ctx, []uuid.UUID{id}, token)
	if err == nil && !owned[id] {
		err = store.ErrNotFound
	}
	return err
}

// ownedRuns returns which of the runs exist and belong to the environment of the token. One call reads all runs that are not cached.
func (h *Handler) ownedRuns(ctx context.Context, ids []uuid.UUID, token store.Token) (owned map[uuid.UUID]bool, err error) {
	owned = map[uuid.UUID]bool{}
	var unknown []uuid.UUID
	for _, id := range ids {
		if _, absent := h.absent.Get(token.Run(id)); absent {
			continue
		}
		environment, known := h.owners.Get(token.Run(id))
		if !known {
			unknown = append(unknown, id)
		}
		owned[id] = known && environment == token.EnvironmentID
	}
	if len(unknown) == 0 {
		return owned, nil
	}
	var environments map[uuid.UUID]uuid.UUID
	if err := h.callStore(ctx, token.ProjectID, func(ctx context.Context) (err error) {
		environments, err = h.opts.Store.RunEnvironments(ctx, token.ProjectID, unknown)
		return err
	}); err != nil {
		return nil, err
	}
	for _, id := range unknown {
		environment, exists := environments[id]
		if exists {
			h.owners.Put(token.Run(id), environment)
		} else {
			h.absent.Put(token.Run(id), struct{}{})
		}
		owned[id] = exists && environment == token.EnvironmentID
	}
	return owned, nil
}

func (h *Handler) streamBundle(w http.ResponseWriter, r *http.Request, token store.Token) error {
	digest := chi.URLParam(r, "digest")
	return h.streamBlob(w, r, token, func(ctx, turn context.Context) (string, io.ReadCloser, error) {
		if err := h.opts.Store.NamesBundle(turn, token.Environment(), digest); err != nil {
			return "", nil, err
		}
		body, err := h.opts.Store.OpenBundle(ctx, token.ProjectID, digest)
		return "application/zstd", body, err
	})
}

func writeNoContent(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
