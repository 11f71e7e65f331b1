// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/json"
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
	"github.com/agentplatform/agentplatform/internal/pause"
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
		_, err := h.opts.Store.Reclaim(r.Context(), runner.Environment, req.RunnerID, leasesOf(token, req.Holding))
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
		woken, rung, freed := h.wakeups.next(runner.Environment)
		resp := newClaimResponse()
		if !h.attendance.still(runner, req, rung, time.Now()) {
			var (
				more bool
				err  error
			)
			if resp, more, err = h.take(r.Context(), token, req); err != nil {
				return err
			}
			switch {
			case !empty(resp):
			case more && h.wakeups.leave(runner.Environment, freed):
				continue // what was in the way has gone meanwhile
			case !more && req.Limit > 0: // else it was not looked for runs
				h.attendance.told(runner, req, rung, time.Now())
			}
		}
		if !empty(resp) || wait == 0 {
			return h.hand(w, r, token, resp)
		}
		if req.Limit == 0 { // to hear of what was lost, which hints of other things tell too often
			woken = after(r.Context(), woken, reportEvery)
		}
		select {
		case <-woken:
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
func (h *Handler) take(ctx context.Context, token store.Token, req dispatchapi.ClaimRequest) (
	resp dispatchapi.ClaimResponse, more bool, err error,
) {
	resp = newClaimResponse()
	result, err := h.opts.Store.Claim(ctx, store.Claim{
		Environment: token.Environment(), RunnerID: req.RunnerID, Digests: req.Digests, Refused: req.Refused,
		Places: min(max(req.Places, 0), dispatchapi.MaxLeases), Limit: min(max(req.Limit, 0), maxClaim),
		Holding: leasesOf(token, req.Holding), Lease: store.UnconfirmedLease,
	})
	if err != nil {
		return resp, false, err
	}
	resp.Lost = wireLeases(slices.DeleteFunc(result.Lost, func(l store.Lease) bool {
		_, ended := h.ended.Get(l) // by the runner itself, which named it before
		return ended
	}))
	for _, c := range result.Runs {
		h.countClaim(c.Run)
		h.owners.Put(c.Run.Key(), token.EnvironmentID)
		resp.Runs = append(resp.Runs, wireRun(c))
	}
	h.addJournals(ctx, token, result.Runs, resp.Runs)
	environment, err := h.environment(ctx, token.Environment(), len(result.Runs) > 0)
	if err != nil && len(result.Runs) == 0 {
		return resp, false, err
	}
	for _, digest := range []string{environment.WantedBundleDigest, environment.LiveBundleDigest} {
		if digest != "" && !slices.Contains(req.Digests, digest) && !slices.Contains(req.Refused, digest) && !slices.Contains(resp.Prefetch, digest) {
			resp.Prefetch = append(resp.Prefetch, digest)
		}
	}
	return resp, result.More, nil
}

// addJournals puts short journals into the answer; long ones are to be fetched. What
// cannot be read now is fetched too: the runs are claimed, whatever becomes of it.
func (h *Handler) addJournals(ctx context.Context, token store.Token, claimed []store.Claimed, runs []dispatchapi.Run) {
	room := int64(maxInlineJournals)
	for i, c := range claimed {
		switch {
		case c.JournalLength == 0:
			continue
		case c.JournalSize > room:
			runs[i].JournalElsewhere = true
			continue
		}
		room -= c.JournalSize
		entries, err := h.opts.Store.Journal(ctx, token.Run(c.Run.ID))
		if err != nil {
			runs[i].JournalElsewhere = true
			continue
		}
		runs[i].Journal = wireEntries(entries)
	}
}

func wireEntries(entries []store.JournalEntry) []dispatchapi.JournalEntry {
	out := make([]dispatchapi.JournalEntry, len(entries))
	for i, e := range entries {
		out[i] = dispatchapi.JournalEntry{Sequence: e.Sequence, Kind: string(e.Kind), Data: e.Data, Unsafe: e.Unsafe}
	}
	return out
}

// readJournal streams a run's journal to the runner that holds it, a few entries at a time.
func (h *Handler) readJournal(w http.ResponseWriter, r *http.Request, token store.Token) error {
	id, err := runID(r)
	if err != nil {
		return err
	}
	if err := h.owned(r.Context(), id, token); err != nil {
		return err
	}
	var after int64
	out := json.NewEncoder(w)
	for {
		entries, err := h.opts.Store.JournalAfter(r.Context(), token.Run(id), after, journalPage)
		switch {
		case err != nil && after == 0:
			return err
		case err != nil: // the answer is under way: cut off, it is no journal
			panic(http.ErrAbortHandler)
		case after == 0:
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
		}
		for _, entry := range wireEntries(entries) {
			if err := out.Encode(entry); err != nil {
				return nil // nobody listens any more
			}
			after = entry.Sequence
		}
		if len(entries) < journalPage {
			return nil
		}
	}
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
		gone = errors.Join(gone, h.opts.Store.Release(ctx, store.Lease{Run: token.Run(run.ID), Token: run.Token}, 0))
	}
	return gone
}

func wireRun(c store.Claimed) dispatchapi.Run {
	run := dispatchapi.Run{
		ID: c.Run.ID, Token: c.Token, LeaseSeconds: max(c.LeaseUntil.Sub(c.Now), 0).Seconds(), AgentName: c.Run.AgentName,
		BundleDigest: c.BundleDigest, ContentType: c.ContentType, Input: c.Input, InputElsewhere: c.InputBlob != nil,
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

// heartbeat renews claims. Each is judged for itself: of a run that is not known, or
// another environment's, the claim is lost.
func (h *Handler) heartbeat(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.HeartbeatRequest
	if err := decode(w, r, dispatchapi.MaxSmallRequest, &req); err != nil {
		return err
	}
	resp := dispatchapi.HeartbeatResponse{Lost: []dispatchapi.Lease{}, LeaseSeconds: store.LeaseDuration.Seconds()}
	leases := make([]store.Lease, 0, len(req.Leases))
	for _, l := range req.Leases {
		err := h.owned(r.Context(), l.RunID, token)
		switch {
		case errors.Is(err, store.ErrNotFound):
			resp.Lost = append(resp.Lost, l)
			continue
		case err != nil:
			return err
		}
		leases = append(leases, store.Lease{Run: token.Run(l.RunID), Token: l.Token})
	}
	lost, err := h.opts.Store.Heartbeat(r.Context(), leases, store.LeaseDuration)
	if err != nil {
		return err
	}
	resp.Lost = append(resp.Lost, wireLeases(lost)...)
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
	err = h.ends.complete(r.Context(), completion)
	if err == nil {
		h.ended.Put(lease, struct{}{})
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
	delay := min(max(time.Duration(req.DelaySeconds)*time.Second, 0), maxDelay)
	err = h.opts.Store.Release(r.Context(), lease, delay)
	if err == nil {
		h.ended.Put(lease, struct{}{})
	}
	return done(w, err)
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
		if u := e.Usage; u != nil {
			out[i].Usage = &store.ModelUsage{Model: u.Model, TokenUsage: store.TokenUsage(u.TokenUsage)}
		}
	}
	return out
}

func done(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
