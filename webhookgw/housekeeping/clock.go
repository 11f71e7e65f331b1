// SPDX-License-Identifier: Apache-2.0

package housekeeping

import (
	"context"
	"time"
)

const (
	// maxClockJump is how far the store's clock can move ahead of this process's clock between two
	// checks. A lease that is renewed in time has twice as much left.
	maxClockJump = grace / 3
	// maxClockDifference is the clock difference from which nothing is deleted or ended because of its age.
	// One of the clocks is wrong then, and a wrong clock of the store could make all history look
	// too old. The limit is larger than the hour of daylight saving time, which some systems add to
	// UTC.
	maxClockDifference = 2 * time.Hour
)

// checkStore checks whether the store answers. It starts the grace period if runners may have been unable
// to renew leases that look expired.
func (s *Sweeper) checkStore(ctx context.Context) error {
	if err := s.opts.Store.Ping(ctx); err != nil {
		return err
	}
	before := s.opts.Now()
	clock, err := s.opts.Store.Now(ctx)
	if err != nil {
		return err
	}
	now := s.opts.Now()
	leap := clock.Sub(s.storeClock) - before.Sub(s.clockReadAt)
	switch {
	case s.reachable.IsZero(), now.Sub(s.lastCheck) > grace/2:
		// A process that was paused saw no outage, but its runners could not reach it.
		s.reachable = now
	case leap > maxClockJump:
		// If the clock jumps ahead, for example to another server's clock after a failover, all
		// leases expire at once. If the clock is set back, leases only last longer.
		s.opts.Logger.Warn("the store's clock jumped ahead; leases are not ended until runners could renew them", "by", leap.String())
		s.reachable = now
	}
	s.lastCheck, s.storeClock, s.clockReadAt = now, clock, now
	s.compareClocks(clock.Sub(now))
	return nil
}

// compareClocks records by how much the store's clock is ahead of this process's clock.
func (s *Sweeper) compareClocks(ahead time.Duration) {
	s.opts.Metrics.StoreClockAhead(ahead)
	near := areNear(ahead)
	if s.clockInSync.Swap(near) == near && s.compared {
		return
	}
	switch {
	case !near:
		s.opts.Logger.Error("the clocks of the store and this gateway differ too much; nothing is deleted or ended because of its age until they agree", "ahead", ahead.String())
	case s.compared:
		s.opts.Logger.Info("the clocks of the store and this gateway agree again", "ahead", ahead.String())
	}
	s.compared = true
}

// areNear reports whether a clock difference is small enough.
func areNear(ahead time.Duration) bool { return ahead.Abs() <= maxClockDifference }

// ifClocksAgree wraps work that depends on the store's clock. It checks the clocks again first, because the
// store may have failed over to a server with another clock.
func (s *Sweeper) ifClocksAgree(take func(ctx context.Context, limit int) (int, error)) func(ctx context.Context, limit int) (int, error) {
	return func(ctx context.Context, limit int) (int, error) {
		clock, err := s.opts.Store.Now(ctx)
		if err != nil || !areNear(clock.Sub(s.opts.Now())) {
			return 0, err
		}
		return take(ctx, limit)
	}
}
