// SPDX-License-Identifier: Apache-2.0

// Package schedule does what is due: it ends claims whose lease expired and
// deletes what is remembered for a time only.
package schedule

import (
	"context"
	"log/slog"
	"time"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/store"
)

// Intervals and bounds of sweeping.
const (
	// sweepInterval is how often leases are looked at.
	sweepInterval = 5 * time.Second
	// expireEvery is how many sweeps make one deletion of what expired.
	expireEvery = 12
	// sweepLimit is how many rows one statement moves.
	sweepLimit = 500
)

// grace is how long the store must have answered without a break before leases
// are swept: runners need that long to renew theirs after an outage.
const grace = store.LeaseDuration

// Options configure a Sweeper.
type Options struct {
	Store interface {
		store.Housekeeping
		Ping(ctx context.Context) error
	}
	Logger *slog.Logger
	// Metrics count what is swept; nil counts nowhere.
	Metrics *metrics.Gateway
	// Now is the clock of the grace; nil means time.Now.
	Now func() time.Time
}

// Sweeper sweeps at intervals.
type Sweeper struct {
	opts Options
	// reachable is since when the store answered without a break; zero when it
	// did not the last time. looked is when it did last.
	reachable, looked time.Time
	sweeps            int
}

// New returns a sweeper; all replicas of the gateway may run one.
func New(opts Options) *Sweeper {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil)
	}
	return &Sweeper{opts: opts}
}

// Run sweeps until ctx ends.
func (s *Sweeper) Run(ctx context.Context) error {
	ticks := time.NewTicker(sweepInterval)
	defer ticks.Stop()
	for {
		moved, err := s.runOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			s.opts.Logger.Error("sweeping", "error", err)
		case moved > 0:
			s.opts.Logger.Info("ended claims without a runner", "runs", moved)
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// runOnce sweeps, if the store was reachable for the whole grace, and says how
// many runs it moved.
func (s *Sweeper) runOnce(ctx context.Context) (moved int, err error) {
	err = s.opts.Store.Ping(ctx)
	s.opts.Metrics.StoreReachable(err == nil)
	if err != nil {
		s.reachable = time.Time{}
		return 0, err
	}
	now := s.opts.Now()
	// A process that stood still saw no break, and its runners could not reach it.
	if s.reachable.IsZero() || now.Sub(s.looked) > grace/2 {
		s.reachable = now
	}
	s.looked = now
	if now.Sub(s.reachable) < grace {
		return 0, nil
	}
	if moved, err = s.leases(ctx); err != nil {
		s.reachable = time.Time{}
		return moved, err
	}
	s.looked = s.opts.Now() // however long that took, it was no standstill
	s.sweeps++
	if s.sweeps%expireEvery == 1 {
		err = s.expire(ctx)
		s.looked = s.opts.Now()
	}
	return moved, err
}

// leases ends the claims whose lease expired, until few are left: somebody's many
// keep nobody else's waiting.
func (s *Sweeper) leases(ctx context.Context) (moved int, err error) {
	for ctx.Err() == nil {
		swept, err := s.opts.Store.SweepLeases(ctx, sweepLimit)
		s.count(swept)
		moved += swept.Runs()
		if err != nil || swept.Runs() < sweepLimit {
			return moved, err
		}
	}
	return moved, nil
}

func (s *Sweeper) count(swept store.Swept) {
	s.opts.Metrics.LeasesLost(metrics.LeaseGivenBack, swept.GivenBack)
	s.opts.Metrics.LeasesLost(metrics.LeaseFailed, swept.Failed)
	s.opts.Metrics.Ended(string(store.RunFailed), swept.Failed)
	s.opts.Metrics.Ended(string(store.RunCancelled), swept.Cancelled)
}

// expire deletes what expired, until little is left.
func (s *Sweeper) expire(ctx context.Context) error {
	for ctx.Err() == nil {
		deleted, err := s.opts.Store.SweepExpired(ctx, sweepLimit)
		if err != nil || deleted < sweepLimit {
			return err
		}
	}
	return nil
}
