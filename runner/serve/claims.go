// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/pause"
)

const (
	// claimWait is how long dispatch keeps a claim request open.
	claimWait = 20 * time.Second
	// claimPause is the first pause after a failed claim request. The pauses grow to maxClaimPause.
	claimPause, maxClaimPause = 500 * time.Millisecond, 5 * time.Second
	// settleTime is how long a full runner waits for a free slot before it polls for cancelled
	// runs. Short runs often end in this time, and then no request has to be cancelled.
	settleTime = 250 * time.Millisecond
	// gatherTime is how long a busy runner waits for a quarter of its slots to be free. A claim costs the
	// gateway about as much for one run as for many.
	gatherTime = 10 * time.Millisecond
	// gatherPause is how long no claim waits for free slots after a wait in vain. The runs take longer then, and the
	// wait would only delay the runs that have a slot, such as those in the slots of sync runs.
	gatherPause = 10 * time.Second
	// stalePause is the pause after a response without news, for example with a bundle that is
	// already being prefetched.
	stalePause = 500 * time.Millisecond
)

// errSlotFree is the cause for ending a wait when a slot becomes free.
var errSlotFree = errors.New("a slot is free")

// claimLoop claims runs until ctx ends.
func (s *Server) claimLoop(ctx context.Context, l life) {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = claimPause, maxClaimPause
	for ctx.Err() == nil {
		resp, err := s.requestRuns(ctx)
		if err != nil && (ctx.Err() != nil || errors.Is(err, errSlotFree)) {
			continue
		}
		s.opts.Metrics.Polled(err)
		s.updateState(func() { s.unanswered = err != nil })
		if err != nil {
			next := pauses.NextBackOff()
			slog.WarnContext(ctx, "claiming runs", "error", err, "again", next.String())
			_ = pause.For(ctx, next) // the loop checks ctx
			continue
		}
		pauses.Reset()
		s.updateState(func() { s.polled = s.opts.Now() })
		if !s.applyResponse(ctx, l, resp) {
			s.awaitNews(ctx)
		}
	}
}

// requestRuns sends one claim request. A runner without a free slot also asks, to learn about cancelled
// runs. Only that request is cancelled when a slot becomes free (errSlotFree), because the response of
// any other can contain runs.
func (s *Server) requestRuns(ctx context.Context) (dispatchapi.ClaimResponse, error) {
	full, end := context.WithCancelCause(ctx)
	defer end(nil)
	if !s.awaitSlots(1, end) {
		s.gatherSlots(ctx)
		return s.sendClaim(ctx, s.request())
	}
	defer s.updateState(func() { s.freed = nil })
	if err := pause.For(full, settleTime); err != nil {
		return dispatchapi.ClaimResponse{}, err
	}
	req := s.request()
	req.Limit = 0 // if a slot became free just now, full has ended
	resp, err := s.sendClaim(full, req)
	if err != nil && errors.Is(context.Cause(full), errSlotFree) {
		return resp, errSlotFree
	}
	return resp, err
}

// sendClaim sends a claim request with the due reports of drift.
func (s *Server) sendClaim(ctx context.Context, req dispatchapi.ClaimRequest) (dispatchapi.ClaimResponse, error) {
	req.Drift = s.opts.Drift.Due()
	resp, err := s.opts.Dispatch.Claim(ctx, req)
	if err == nil {
		s.opts.Drift.MarkSent(req.Drift)
	}
	return resp, err
}

// request describes the state of this runner and its free slots.
func (s *Server) request() dispatchapi.ClaimRequest {
	req := dispatchapi.ClaimRequest{RunnerID: s.opts.RunnerID, Digests: s.bundles.digests(), Refused: s.bundles.refusals()}
	for _, c := range s.holding() {
		req.Holding = append(req.Holding, c.leaseOf())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return req
	}
	req.Slots, req.Limit, req.Unanswered = s.opts.Concurrency, s.freeSlots(), s.unanswered
	if !s.polled.IsZero() { // the first request only registers the runner
		req.WaitSeconds = int(claimWait.Seconds())
	}
	return req
}

// freeSlots returns the number of free slots. The caller holds s.mu.
func (s *Server) freeSlots() int { return max(0, s.opts.Concurrency-s.busy) }

// awaitSlots calls end when the wanted number of slots is free. It returns false if they are free already.
func (s *Server) awaitSlots(wanted int, end context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freeSlots() >= wanted {
		return false
	}
	s.freed, s.wanted = end, wanted
	return true
}

// gatherSlots waits until a quarter of the slots is free, for gatherTime at most.
func (s *Server) gatherSlots(ctx context.Context) {
	if s.opts.Now().Before(s.gatherAgain) {
		return
	}
	gathered, end := context.WithCancelCause(ctx)
	defer end(nil)
	if s.awaitSlots((s.opts.Concurrency+3)/4, end) {
		if pause.For(gathered, gatherTime) == nil {
			s.gatherAgain = s.opts.Now().Add(gatherPause)
		}
		s.updateState(func() { s.freed = nil })
	}
}

// applyResponse applies a response and reports whether to ask again immediately. It returns false for a
// response with known runs or prefetches, because the same response would return at once. Claims
// that ended in the meantime do not count, because the next request does not name them.
func (s *Server) applyResponse(ctx context.Context, l life, resp dispatchapi.ClaimResponse) bool {
	isNew := s.loseClaims(ctx, resp.Lost)
	for _, run := range resp.Runs {
		if c := s.addClaim(l, run); c != nil {
			isNew = true
			s.startRun(l, c)
			notifyOnce(s.fresh)
		}
	}
	s.prefetch.setWanted(resp.Prefetch)
	return isNew || len(resp.Runs)+len(resp.Prefetch) == 0
}

// awaitNews waits until a bundle has arrived or until another request is useful.
func (s *Server) awaitNews(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stalePause)
	defer cancel()
	select {
	case <-s.bundles.changed:
	case <-ctx.Done():
	}
}

// addClaim records a run as a claim of this runner. It returns nil if there is nothing to start: the
// runner already has the claim because a request and a response crossed, or a heartbeat cannot name
// any more claims. The lease of such a claim expires.
func (s *Server) addClaim(l life, run dispatchapi.Run) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.runs[run.ID]
	switch {
	case before != nil && before.run.Token == run.Token:
		return nil
	case before != nil:
		before.end(errLost) // This runner itself has claimed the run again.
	case len(s.runs) >= dispatchapi.MaxLeases:
		return nil
	}
	c := newClaim(l.working, run, s.askHeartbeat)
	s.runs[run.ID] = c
	s.busy++
	return c
}

// startRun executes a run in its own goroutine.
func (s *Server) startRun(l life, c *claim) {
	s.opts.Metrics.Began()
	s.group.Go(func() {
		status := metrics.RunUnreported
		defer func() {
			s.opts.Metrics.Left(status)
			s.endClaim(c)
		}()
		status = s.execute(l, c)
	})
}

// endClaim ends a claim and frees its slot.
func (s *Server) endClaim(c *claim) {
	defer c.end(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs[c.run.ID] == c {
		delete(s.runs, c.run.ID)
	}
	s.busy--
	if s.freed != nil && s.freeSlots() >= s.wanted {
		s.freed(errSlotFree)
	}
}

// loseClaims ends the claims that are no longer current and reports whether there were any.
func (s *Server) loseClaims(ctx context.Context, leases []dispatchapi.Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := false
	for _, l := range leases {
		c := s.runs[l.RunID]
		if c == nil || c.run.Token != l.Token || c.ctx.Err() != nil {
			continue
		}
		slog.InfoContext(ctx, "claim was lost", "run", c.run.ID)
		c.end(errLost)
		ended = true
	}
	return ended
}

// holding returns the claims of this runner.
func (s *Server) holding() []*claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make([]*claim, 0, len(s.runs))
	for _, c := range s.runs {
		if !c.isLost() {
			held = append(held, c)
		}
	}
	return held
}
