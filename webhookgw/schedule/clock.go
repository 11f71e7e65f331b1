// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"time"
)

const (
	// maxLeap is by how much the store's clock may go ahead of this process's between
	// two looks. A lease that is renewed in time has twice as much left.
	maxLeap = grace / 3
	// maxApart is how far the store's clock and this process's may be apart for anything to be
	// deleted, or ended, for its age: one of them is wrong then, and by the store's all of history
	// might be too old at once. The summer's hour, which some take for UTC, is not that far.
	maxApart = 2 * time.Hour
)

// look asks the store whether it is there, and begins the grace where runners may have
// been unable to renew leases that look expired.
func (s *Sweeper) look(ctx context.Context) error {
	if err := s.opts.Store.Ping(ctx); err != nil {
		return err
	}
	before := s.opts.Now()
	clock, err := s.opts.Store.Now(ctx)
	if err != nil {
		return err
	}
	now := s.opts.Now()
	leap := clock.Sub(s.clock) - before.Sub(s.asked)
	switch {
	case s.reachable.IsZero(), now.Sub(s.looked) > grace/2:
		// A process that stood still saw no break, and its runners could not reach it.
		s.reachable = now
	case leap > maxLeap:
		// All leases expire at once by a clock that leaps ahead, as another server's may
		// after a failover. One that is set back lets them last longer, and that is all.
		s.opts.Logger.Warn("the store's clock leapt ahead: no lease is ended until all could be renewed", "by", leap.String())
		s.reachable = now
	}
	s.looked, s.clock, s.asked = now, clock, now
	s.compare(clock.Sub(now))
	return nil
}

// compare says by how much the store's clock is ahead of this process's.
func (s *Sweeper) compare(ahead time.Duration) {
	s.opts.Metrics.StoreClockAhead(ahead)
	near := areNear(ahead)
	if s.agree.Swap(near) == near && s.compared {
		return
	}
	switch {
	case !near:
		s.opts.Logger.Error("the store's clock and this gateway's are too far apart: nothing is deleted, or ended, for its age until they agree", "ahead", ahead.String())
	case s.compared:
		s.opts.Logger.Info("the store's clock and this gateway's agree again", "ahead", ahead.String())
	}
	s.compared = true
}

// areNear says whether clocks that are so far apart agree.
func areNear(ahead time.Duration) bool { return ahead.Abs() <= maxApart }

// aged takes what goes by the store's clock, while that agrees with this process's: since it was
// looked at another server may have come, with a clock of its own.
func (s *Sweeper) aged(take func(ctx context.Context, limit int) (int, error)) func(ctx context.Context, limit int) (int, error) {
	return func(ctx context.Context, limit int) (int, error) {
		clock, err := s.opts.Store.Now(ctx)
		if err != nil || !areNear(clock.Sub(s.opts.Now())) {
			return 0, err
		}
		return take(ctx, limit)
	}
}
