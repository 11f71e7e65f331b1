// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"log/slog"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// confirmTime is how soon a fresh claim is confirmed, because its lease is short until then. Newer
// claims share the heartbeat. Runs that end earlier need none.
const confirmTime = 250 * time.Millisecond

// notifyOnce sends one pending signal, regardless of the number of calls.
func notifyOnce(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// askHeartbeat requests a heartbeat now.
func (s *Server) askHeartbeat() { notifyOnce(s.beat) }

// heartbeats renews claims until ctx ends.
func (s *Server) heartbeats(ctx context.Context) {
	var failed time.Time // no regular heartbeat before
	regular := time.Now().Add(s.opts.Heartbeat)
	timer := time.NewTimer(s.opts.Heartbeat)
	defer timer.Stop()
	for {
		asked := false
		select {
		case <-timer.C:
		case <-s.fresh:
		case <-s.beat:
			asked = true
		case <-ctx.Done():
			return
		}
		if due := beatDue(s.holding(), regular, failed); !asked && time.Now().Before(due) {
			timer.Reset(time.Until(due))
			continue
		}
		next := s.opts.Heartbeat
		if err := s.heartbeat(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "renewing claims", "error", err)
			next = min(heartbeatRetry, next)
			failed = time.Now().Add(next)
		}
		regular = time.Now().Add(next)
		timer.Reset(next)
	}
}

// beatDue returns when the next heartbeat is due: the regular one, or one for the first fresh
// claim. It is never before failed.
func beatDue(held []*claim, regular, failed time.Time) time.Time {
	due := regular
	for _, c := range held {
		if confirm := c.arrived.Add(confirmTime); c.isUnconfirmed() && confirm.Before(due) {
			due = confirm
		}
	}
	if due.Before(failed) {
		return failed
	}
	return due
}

// heartbeat renews all claims once.
func (s *Server) heartbeat(ctx context.Context) error {
	held := s.holding()
	if len(held) == 0 {
		return nil
	}
	req := dispatchapi.HeartbeatRequest{Leases: make([]dispatchapi.Held, 0, len(held))}
	for _, c := range held {
		req.Leases = append(req.Leases, c.heldRun())
	}
	try, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	sent := time.Now() // The lease did not begin earlier.
	resp, err := s.opts.Dispatch.Heartbeat(try, req)
	if err != nil {
		return err
	}
	s.loseClaims(ctx, resp.Lost)
	for _, c := range held {
		if !c.isLost() {
			c.confirm(sent.Add(seconds(resp.LeaseSeconds)))
		}
	}
	return nil
}
