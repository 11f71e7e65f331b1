// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"log/slog"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// confirmTime is how soon a fresh claim is confirmed, whose lease is short until then.
// Those that are younger share the heartbeat; runs that are over by then cost none.
const confirmTime = 250 * time.Millisecond

// wake asks for something once, however often it is asked for.
func wake(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// askHeartbeat asks for a heartbeat now.
func (s *Server) askHeartbeat() { wake(s.beat) }

// heartbeats renews claims until ctx ends.
func (s *Server) heartbeats(ctx context.Context) {
	var failed time.Time // until when none is sent by itself
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

// beatDue is when the next heartbeat is due: the regular one, or one that confirms the
// first of the fresh claims; none before failed.
func beatDue(held []*claim, regular, failed time.Time) time.Time {
	due := regular
	for _, c := range held {
		if confirm := c.arrived.Add(confirmTime); c.fresh() && confirm.Before(due) {
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
		req.Leases = append(req.Leases, c.held())
	}
	try, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	sent := time.Now() // The lease began no earlier.
	resp, err := s.opts.Dispatch.Heartbeat(try, req)
	if err != nil {
		return err
	}
	s.lose(ctx, resp.Lost)
	for _, c := range held {
		if !c.lost() {
			c.confirm(sent.Add(seconds(resp.LeaseSeconds)))
		}
	}
	return nil
}
