// SPDX-License-Identifier: Apache-2.0

// Package schedule does what is due: it ends claims whose lease expired, consumes what
// ended runs leave to do, makes room for history, and deletes what is remembered for a
// time only.
package schedule

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/store"
)

// Intervals and bounds of sweeping.
const (
	// sweepInterval is how often leases are looked at.
	sweepInterval = 5 * time.Second
	// expireEvery is how many sweeps make one deletion of what expired, partitionEvery
	// one look at the partitions.
	expireEvery    = 12
	partitionEvery = 720
	// sweepLimit is how many rows one statement moves.
	sweepLimit = 500
	// partitionsAhead is for how many days partitions are made.
	partitionsAhead = 14
	// stepTimeout bounds each step: a store that does not answer, as after a failover
	// that nobody was told of, holds nothing up for longer.
	stepTimeout = 10 * time.Second
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
	// WithTimeout bounds each step; nil means context.WithTimeout.
	WithTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)
}

// Sweeper sweeps at intervals.
type Sweeper struct {
	opts Options
	// reachable is since when the store answered without a break; zero when it
	// did not the last time. looked is when it did last.
	reachable, looked time.Time
	rounds, sweeps    int
}

// New returns a sweeper; all replicas of the gateway may run one.
func New(opts Options) *Sweeper {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.WithTimeout == nil {
		opts.WithTimeout = context.WithTimeout
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

// step runs a part of a round within its time.
func (s *Sweeper) step(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := s.opts.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return do(ctx)
}

// runOnce does what is always due, and sweeps if the store was reachable for the
// whole grace. It says how many runs it moved.
func (s *Sweeper) runOnce(ctx context.Context) (moved int, err error) {
	err = s.step(ctx, s.opts.Store.Ping)
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
	// What does not come off keeps the rest from nothing: least of all leases.
	err = s.always(ctx)
	if now.Sub(s.reachable) >= grace {
		var failed error
		moved, failed = s.sweep(ctx)
		err = errors.Join(err, failed)
	}
	s.looked = s.opts.Now() // however long that took, it was no standstill
	return moved, err
}

// always is what is due whatever the store has been through.
func (s *Sweeper) always(ctx context.Context) error {
	var err error
	if s.rounds++; s.rounds%partitionEvery == 1 {
		if err = s.step(ctx, s.partitions); err != nil {
			s.rounds = 0 // again at once
		}
	}
	return errors.Join(err, s.until(ctx, s.opts.Store.CountStored))
}

// partitions tells how many there are also where no more can be made.
func (s *Sweeper) partitions(ctx context.Context) error {
	days, err := s.opts.Store.EnsurePartitions(ctx, partitionsAhead)
	s.opts.Metrics.Partitions(days)
	return err
}

func (s *Sweeper) sweep(ctx context.Context) (moved int, err error) {
	if moved, err = s.leases(ctx); err != nil {
		s.reachable = time.Time{}
		return moved, err
	}
	s.sweeps++
	if s.sweeps%expireEvery == 1 {
		err = errors.Join(s.until(ctx, s.opts.Store.SweepExpired), s.until(ctx, s.expire))
	}
	return moved, err
}

// leases ends the claims whose lease expired, until few are left: somebody's many
// keep nobody else's waiting.
func (s *Sweeper) leases(ctx context.Context) (moved int, err error) {
	for ctx.Err() == nil {
		var swept store.Swept
		err = s.step(ctx, func(ctx context.Context) (err error) {
			swept, err = s.opts.Store.SweepLeases(ctx, sweepLimit)
			return err
		})
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

// expire ends runs that have been open for too long.
func (s *Sweeper) expire(ctx context.Context, limit int) (int, error) {
	n, err := s.opts.Store.ExpireRuns(ctx, store.MaxOpen, limit)
	s.opts.Metrics.Ended(string(store.RunFailed), n)
	return n, err
}

// until repeats what takes so many at a time until few are left.
func (s *Sweeper) until(ctx context.Context, take func(ctx context.Context, limit int) (int, error)) error {
	for ctx.Err() == nil {
		var n int
		err := s.step(ctx, func(ctx context.Context) (err error) {
			n, err = take(ctx, sweepLimit)
			return err
		})
		if err != nil || n < sweepLimit {
			return err
		}
	}
	return nil
}
