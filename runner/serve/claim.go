// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// errLost is the cause of runs whose claim is no longer this runner's.
var errLost = errors.New("claim was lost")

// claim is a run that this runner holds.
type claim struct {
	run dispatchapi.Run
	// ctx ends with the claim, and when runs are cut off.
	ctx context.Context //nolint:containedctx // the claim's own life
	end context.CancelCauseFunc

	mu        sync.Mutex
	until     time.Time     // the lease, by this process's clock
	confirmed chan struct{} // closed and replaced by each confirmation
	ask       func()
}

func newClaim(ctx context.Context, run dispatchapi.Run, askHeartbeat func()) *claim {
	c := &claim{run: run, ask: askHeartbeat, confirmed: make(chan struct{}), until: time.Now().Add(seconds(run.LeaseSeconds))}
	c.ctx, c.end = context.WithCancelCause(ctx)
	return c
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (c *claim) lease() dispatchapi.Lease {
	return dispatchapi.Lease{RunID: c.run.ID, Token: c.run.Token}
}

// lost says that the claim is another's by now.
func (c *claim) lost() bool { return errors.Is(context.Cause(c.ctx), errLost) }

// confirm extends the lease.
func (c *claim) confirm(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = until
	close(c.confirmed)
	c.confirmed = make(chan struct{})
}

// gate waits until the lease is confirmed; an error when the claim ends first.
func (c *claim) gate(ctx context.Context) error {
	for {
		if cause := context.Cause(c.ctx); cause != nil {
			return cause
		}
		c.mu.Lock()
		held, confirmed := time.Now().Before(c.until), c.confirmed
		c.mu.Unlock()
		if held {
			return nil
		}
		c.ask()
		select {
		case <-confirmed:
		case <-c.ctx.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// askHeartbeat wakes the heartbeats up.
func (s *Server) askHeartbeat() {
	select {
	case s.beat <- struct{}{}:
	default:
	}
}

// heartbeats renews claims until ctx ends.
func (s *Server) heartbeats(ctx context.Context) {
	timer := time.NewTimer(s.opts.Heartbeat)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.beat:
		case <-ctx.Done():
			return
		}
		next := s.opts.Heartbeat
		if err := s.heartbeat(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "renewing claims", "error", err)
			next = min(heartbeatRetry, next)
		}
		timer.Reset(next)
	}
}

// heartbeat renews all claims once.
func (s *Server) heartbeat(ctx context.Context) error {
	s.mu.Lock()
	held := make([]*claim, 0, len(s.runs))
	for _, c := range s.runs {
		held = append(held, c)
	}
	s.mu.Unlock()
	if len(held) == 0 {
		return nil
	}
	req := dispatchapi.HeartbeatRequest{Leases: make([]dispatchapi.Lease, 0, len(held))}
	for _, c := range held {
		req.Leases = append(req.Leases, c.lease())
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	sent := time.Now() // The lease began no earlier.
	resp, err := s.opts.Dispatch.Heartbeat(ctx, req)
	if err != nil {
		return err
	}
	lost := make(map[dispatchapi.Lease]bool, len(resp.Lost))
	for _, l := range resp.Lost {
		lost[l] = true
	}
	for _, c := range held {
		if lost[c.lease()] {
			slog.InfoContext(ctx, "claim was lost", "run", c.run.ID)
			c.end(errLost)
			continue
		}
		c.confirm(sent.Add(seconds(resp.LeaseSeconds)))
	}
	return nil
}
