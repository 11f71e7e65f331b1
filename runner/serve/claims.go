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
	// claimWait is how long dispatch holds a claim request open.
	claimWait = 20 * time.Second
	// claimPause is the pause after a claim that failed; each further one is longer,
	// up to maxClaimPause.
	claimPause, maxClaimPause = 500 * time.Millisecond, 5 * time.Second
	// settleTime is how long a full runner waits for a place before it asks what was
	// cancelled: of short runs one ends by then, and no request has to be broken off.
	settleTime = 250 * time.Millisecond
	// stalePause is the pause after an answer that says nothing new, such as what to
	// prefetch while that is being fetched.
	stalePause = 500 * time.Millisecond
)

// errPlace is the cause of a wait that ended because a place is free.
var errPlace = errors.New("a place is free")

// claims asks for runs until ctx ends.
func (s *Server) claims(ctx context.Context, l life) {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = claimPause, maxClaimPause
	for ctx.Err() == nil {
		resp, err := s.ask(ctx)
		if err != nil && (ctx.Err() != nil || errors.Is(err, errPlace)) {
			continue
		}
		s.opts.Metrics.Polled(err)
		s.note(func() { s.unanswered = err != nil })
		if err != nil {
			next := pauses.NextBackOff()
			slog.WarnContext(ctx, "claiming runs", "error", err, "again", next.String())
			_ = pause.For(ctx, next) // the loop looks at ctx
			continue
		}
		pauses.Reset()
		s.note(func() { s.polled = s.opts.Now() })
		if !s.take(ctx, l, resp) {
			s.awaitNews(ctx)
		}
	}
}

// ask claims once. A runner without a free place asks as well, to hear what was
// cancelled; that request, and it alone, is broken off when a place becomes free:
// errPlace. Of the others the answer may hold runs.
func (s *Server) ask(ctx context.Context) (dispatchapi.ClaimResponse, error) {
	full, end := context.WithCancelCause(ctx)
	defer end(nil)
	if !s.awaitPlace(end) {
		return s.opts.Dispatch.Claim(ctx, s.request())
	}
	defer s.note(func() { s.freed = nil })
	if err := pause.For(full, settleTime); err != nil {
		return dispatchapi.ClaimResponse{}, err
	}
	req := s.request()
	req.Limit = 0 // a place may have become free just now; then full has ended
	resp, err := s.opts.Dispatch.Claim(full, req)
	if err != nil && errors.Is(context.Cause(full), errPlace) {
		return resp, errPlace
	}
	return resp, err
}

// request says what this runner has, works on and wants.
func (s *Server) request() dispatchapi.ClaimRequest {
	req := dispatchapi.ClaimRequest{RunnerID: s.opts.RunnerID, Digests: s.bundles.digests(), Refused: s.bundles.refusals()}
	for _, c := range s.holding() {
		req.Holding = append(req.Holding, c.lease())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return req
	}
	req.Places, req.Limit, req.Unanswered = s.opts.Concurrency, s.free(), s.unanswered
	if !s.polled.IsZero() { // the first one only makes the runner known
		req.WaitSeconds = int(claimWait.Seconds())
	}
	return req
}

// free is how many runs may begin; s.mu is held.
func (s *Server) free() int { return max(0, s.opts.Concurrency-s.busy) }

// awaitPlace has end called when a place becomes free; false when one is.
func (s *Server) awaitPlace(end context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free() > 0 {
		return false
	}
	s.freed = end
	return true
}

// take does what an answer says, and says whether to ask anew at once. An answer that
// hands out or prefetches what is already at hand would come again at once; one about
// claims that ended meanwhile does not, for they are not named again.
func (s *Server) take(ctx context.Context, l life, resp dispatchapi.ClaimResponse) bool {
	isNew := s.lose(ctx, resp.Lost)
	for _, run := range resp.Runs {
		if c := s.hold(l, run); c != nil {
			isNew = true
			s.start(l, c)
			wake(s.fresh)
		}
	}
	s.prefetch.want(resp.Prefetch)
	return isNew || len(resp.Runs)+len(resp.Prefetch) == 0
}

// awaitNews waits until a bundle has come or asking again cannot hurt.
func (s *Server) awaitNews(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stalePause)
	defer cancel()
	select {
	case <-s.bundles.changed:
	case <-ctx.Done():
	}
}

// hold makes a run that was handed out a claim of this runner; nil when there is
// nothing to begin. A claim that it holds already was handed out again because a
// request and an answer crossed; one beyond what a heartbeat can name is left to the
// end of its lease.
func (s *Server) hold(l life, run dispatchapi.Run) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.runs[run.ID]
	switch {
	case before != nil && before.run.Token == run.Token:
		return nil
	case before != nil:
		before.end(errLost) // This runner itself has claimed the run anew.
	case len(s.runs) >= dispatchapi.MaxLeases:
		return nil
	}
	c := newClaim(l.working, run, s.askHeartbeat)
	s.runs[run.ID] = c
	s.busy++
	return c
}

// start executes a run in a goroutine of its own.
func (s *Server) start(l life, c *claim) {
	s.opts.Metrics.Began()
	s.group.Go(func() {
		status := metrics.RunUnreported
		defer func() {
			s.opts.Metrics.Left(status)
			s.leave(c)
		}()
		status = s.execute(l, c)
	})
}

// leave ends a claim and frees its place.
func (s *Server) leave(c *claim) {
	defer c.end(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs[c.run.ID] == c {
		delete(s.runs, c.run.ID)
	}
	s.busy--
	if s.freed != nil && s.free() > 0 {
		s.freed(errPlace)
	}
}

// lose ends the claims that are no longer current, and says whether there was any.
func (s *Server) lose(ctx context.Context, leases []dispatchapi.Lease) bool {
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

// holding are the claims that this runner works on.
func (s *Server) holding() []*claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make([]*claim, 0, len(s.runs))
	for _, c := range s.runs {
		if !c.lost() {
			held = append(held, c)
		}
	}
	return held
}
